//! Working memory compared with a simple model, and under concurrent access.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use rusqlite::params;
use serde_json::{Value, json};

use super::*;
use crate::space::load::integer;
use crate::space::writer::LogKind;
use crate::testing::World;
use crate::{AsOf, PageRequest, View};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn all(view: &View, prefix: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut page = PageRequest::first(3);
    loop {
        let answer = view.kv_list(prefix, page.clone()).await.unwrap();
        found.extend(answer.rows.into_iter().map(|item| (item.key, item.value)));
        match answer.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => return found,
        }
    }
}

// === against a model ===

#[derive(Clone, Debug)]
enum Action {
    Set {
        branch: usize,
        key: u8,
        value: i64,
        ttl_ms: Option<u64>,
    },
    Delete {
        branch: usize,
        key: u8,
    },
    Increment {
        branch: usize,
        key: u8,
    },
    CompareAndSet {
        branch: usize,
        key: u8,
        fresh: bool,
    },
    /// A batch whose last operation fails if `fails`.
    Batch {
        branch: usize,
        first: u8,
        fails: bool,
    },
    Fork {
        branch: usize,
    },
    Wait {
        ms: u64,
    },
    LookBack {
        branch: usize,
        share: u8,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let at = (0..4usize, 0..6u8);
    prop_oneof![
        6 => (at.clone(), 0..100i64, proptest::option::of(1..50u64))
            .prop_map(|((branch, key), value, ttl_ms)| Action::Set { branch, key, value, ttl_ms }),
        2 => at.clone().prop_map(|(branch, key)| Action::Delete { branch, key }),
        3 => at.clone().prop_map(|(branch, key)| Action::Increment { branch, key }),
        3 => (at.clone(), any::<bool>())
            .prop_map(|((branch, key), fresh)| Action::CompareAndSet { branch, key, fresh }),
        2 => (at.clone(), any::<bool>()).prop_map(|((branch, first), fails)| Action::Batch { branch, first, fails }),
        2 => (0..4usize).prop_map(|branch| Action::Fork { branch }),
        3 => (1..40u64).prop_map(|ms| Action::Wait { ms }),
        3 => (0..4usize, any::<u8>()).prop_map(|(branch, share)| Action::LookBack { branch, share }),
    ]
}

#[derive(Clone, Debug)]
struct WrittenValue {
    seq: u64,
    key: String,
    value: Option<i64>,
    expires_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Model {
    /// The writes that each branch sees, including those of its ancestors.
    branches: Vec<Vec<WrittenValue>>,
    /// The time of each sequence number.
    times: BTreeMap<u64, u64>,
}

impl Model {
    fn state(&self, branch: usize, upto: u64, now_ms: u64) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for written in self.branches[branch].iter().filter(|written| written.seq <= upto) {
            let lives = written.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms);
            match written.value.filter(|_| lives) {
                Some(value) => state.insert(written.key.clone(), json!(value)),
                None => state.remove(&written.key),
            };
        }
        state
    }

    fn newest(&self, branch: usize, key: &str, now_ms: u64) -> Option<WrittenValue> {
        let newest = self.branches[branch].iter().rev().find(|written| written.key == key)?;
        let lives = newest.value.is_some() && newest.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms);
        lives.then(|| newest.clone())
    }

    fn write(&mut self, branch: usize, item: &KvItem) {
        self.times.insert(item.version, item.updated_ms);
        self.branches[branch].push(WrittenValue {
            seq: item.version,
            key: item.key.clone(),
            value: item.value.as_i64(),
            expires_ms: item.expires_ms,
        });
    }
}

struct Run {
    world: World,
    views: Vec<View>,
    model: Model,
}

impl Run {
    fn now_ms(&self) -> u64 {
        crate::Clock::now_ms(&*self.world.clock)
    }

    async fn act(&mut self, action: Action) {
        let pick = |branch: usize| branch % self.views.len();
        match action {
            Action::Set { branch, key, value, ttl_ms } => {
                let branch = pick(branch);
                let item =
                    self.views[branch].kv_set(&name(key), json!(value), ttl_ms, Expect::Any).await.unwrap();
                self.model.write(branch, &item);
            }
            Action::Delete { branch, key } => self.delete(pick(branch), &name(key)).await,
            Action::Increment { branch, key } => {
                let branch = pick(branch);
                let before =
                    self.model.newest(branch, &name(key), self.now_ms()).and_then(|written| written.value);
                let item =
                    self.views[branch].kv_increment(&name(key), Amount::Integer(7), None).await.unwrap();
                assert_eq!(item.value, json!(before.unwrap_or(0) + 7));
                self.model.write(branch, &item);
            }
            Action::CompareAndSet { branch, key, fresh } => {
                self.compare_and_set(pick(branch), &name(key), fresh).await
            }
            Action::Batch { branch, first, fails } => self.batch(pick(branch), first, fails).await,
            Action::Fork { branch } if self.views.len() < 4 => {
                let branch = pick(branch);
                let child = self.world.fork(&self.views[branch]).await;
                self.views.push(child);
                let seen = self.model.branches[branch].clone();
                self.model.branches.push(seen);
            }
            Action::Fork { .. } => {}
            Action::Wait { ms } => self.world.clock.advance(ms),
            Action::LookBack { branch, share } => self.look_back(pick(branch), share).await,
        }
        for (branch, view) in self.views.iter().enumerate() {
            assert_eq!(
                all(view, "").await,
                self.model.state(branch, u64::MAX, self.now_ms()),
                "branch {branch}"
            );
        }
    }

    async fn delete(&mut self, branch: usize, key: &str) {
        let known = self.model.newest(branch, key, self.now_ms());
        let deleted = self.views[branch].kv_delete(key, Expect::Any).await.unwrap();
        assert_eq!(deleted.map(|item| item.version), known.map(|written| written.seq));
        let history = self.views[branch].kv_history(key).await.unwrap();
        if let Some(newest) = history.first().filter(|newest| newest.item.is_none()) {
            self.model.times.insert(newest.version, newest.at_ms);
            if self.model.branches[branch].iter().all(|written| written.seq != newest.version) {
                let gone =
                    WrittenValue { seq: newest.version, key: key.to_owned(), value: None, expires_ms: None };
                self.model.branches[branch].push(gone);
            }
        }
    }

    async fn compare_and_set(&mut self, branch: usize, key: &str, fresh: bool) {
        let known = self.model.newest(branch, key, self.now_ms());
        let right = known.map_or(Expect::Absent, |written| Expect::Version(written.seq));
        let expect = if fresh { right } else { Expect::Version(999_999) };
        let set = self.views[branch].kv_set(key, json!(1), None, expect).await;
        match set {
            Ok(item) => {
                assert!(fresh, "a set went through that expected another version");
                self.model.write(branch, &item);
            }
            Err(MemoryError::Conflict { .. }) => {
                assert!(!fresh, "a set was refused that expected the right version")
            }
            Err(other) => panic!("{other}"),
        }
    }

    async fn batch(&mut self, branch: usize, first: u8, fails: bool) {
        let set = |key: u8, value: i64| KvOp::Set {
            key: name(key),
            value: json!(value),
            ttl_ms: None,
            expect: Expect::Any,
        };
        let check = if fails { Expect::Absent } else { Expect::Any };
        let ops = vec![
            set(first, 1),
            KvOp::Increment { key: name(first), by: Amount::Integer(1), ttl_ms: None },
            set(first + 1, 3),
            KvOp::Check { key: name(first), expect: check },
        ];
        match self.views[branch].kv_batch(ops).await {
            Ok(items) => {
                assert!(!fails, "a batch went through whose check fails");
                assert_eq!(items[1].as_ref().unwrap().value, json!(2));
                items[..3].iter().flatten().for_each(|item| self.model.write(branch, item));
            }
            Err(MemoryError::Conflict { .. }) => assert!(fails),
            Err(other) => panic!("{other}"),
        }
    }

    /// Checks a moment of the past of every branch.
    async fn look_back(&mut self, branch: usize, share: u8) {
        let Some((last, _)) = self.model.times.last_key_value() else { return };
        let seq = last * u64::from(share) / 255;
        let Some((_, at_ms)) = self.model.times.range(..=seq).next_back() else { return };
        let past = self.world.at(&self.views[branch], seq).await;
        assert_eq!(
            all(&past, "").await,
            self.model.state(branch, seq, *at_ms),
            "branch {branch} as of {seq}"
        );
        let later_ms = at_ms + 17;
        let upto =
            self.model.times.iter().filter(|(_, at_ms)| **at_ms <= later_ms).map(|(seq, _)| *seq).max();
        if later_ms <= self.now_ms() {
            let past = self.views[branch].at(&AsOf::TimeMs(later_ms)).await.unwrap();
            assert_eq!(all(&past, "").await, self.model.state(branch, upto.unwrap_or(0), later_ms));
        }
    }
}

fn name(key: u8) -> String {
    ["a", "b/1", "b/2", "b/10", "ü", "z", "zz"][usize::from(key)].to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn keys_agree_with_a_simple_model_on_every_branch_and_at_every_moment(
        actions in proptest::collection::vec(action(), 1..60)
    ) {
        block_on(async {
            let world = World::new().await;
            let views = vec![world.view()];
            let model = Model { branches: vec![Vec::new()], times: BTreeMap::new() };
            let mut run = Run { world, views, model };
            for action in actions {
                run.act(action).await;
            }
        });
    }
}

// === one by one ===

#[tokio::test]
async fn a_key_is_listed_by_its_prefix_in_the_order_of_bytes() {
    let world = World::new().await;
    let view = world.view();
    for key in ["b", "a/2", "a/10", "a", "ab", "a/"] {
        view.kv_set(key, json!(key), None, Expect::Any).await.unwrap();
    }
    let found: Vec<_> = all(&view, "a/").await.into_keys().collect();
    assert_eq!(found, ["a/", "a/10", "a/2"]);
    assert_eq!(all(&view, "c").await.len(), 0);
    assert!(view.kv_get("a/3").await.unwrap().is_none());
}

#[tokio::test]
async fn an_expired_key_is_absent_for_reads_checks_and_counts() {
    let world = World::new().await;
    let view = world.view();
    let item = view.kv_set("k", json!(1), Some(100), Expect::Absent).await.unwrap();
    world.clock.advance(99);
    assert_eq!(view.kv_get("k").await.unwrap().unwrap(), item);
    world.clock.advance(1);
    assert_eq!(view.kv_get("k").await.unwrap(), None);
    assert!(all(&view, "").await.is_empty());
    assert_eq!(count_of(&view).await, 0);
    let stale = view.kv_set("k", json!(2), None, Expect::Version(item.version)).await.unwrap_err();
    assert!(stale.to_string().contains("is absent, expected at version"), "{stale}");
    let again = view.kv_increment("k", Amount::Integer(5), None).await.unwrap();
    assert_eq!((again.value, again.expires_ms), (json!(5), None));
    assert_ne!(again.created_ms, item.created_ms);
    // At that time, it existed.
    let then = world.at(&view, item.version).await;
    assert_eq!(then.kv_get("k").await.unwrap(), Some(item));
}

async fn count_of(view: &View) -> u64 {
    view.read(|reader| super::count(reader.connection(), reader.chain(), reader.now_ms())).await.unwrap()
}

#[tokio::test]
async fn a_history_has_every_visible_change() {
    let world = World::new().await;
    let view = world.view();
    view.kv_set("k", json!(1), None, Expect::Any).await.unwrap();
    view.kv_delete("k", Expect::Any).await.unwrap();
    let child = world.fork(&view).await;
    view.kv_set("k", json!("ours"), None, Expect::Any).await.unwrap();
    child.kv_set("k", json!("theirs"), None, Expect::Absent).await.unwrap();
    let values = |history: Vec<KvVersion>| -> Vec<_> {
        history.into_iter().map(|version| version.item.map(|item| item.value)).collect()
    };
    assert_eq!(values(view.kv_history("k").await.unwrap()), [Some(json!("ours")), None, Some(json!(1))]);
    assert_eq!(values(child.kv_history("k").await.unwrap()), [Some(json!("theirs")), None, Some(json!(1))]);
}

#[tokio::test]
async fn errors_of_invalid_values_name_the_key() {
    let world = World::new().await;
    let view = world.view();
    let set = async |key: &str, value: Value| {
        view.kv_set(key, value, None, Expect::Any).await.unwrap_err().to_string()
    };
    assert!(set("", json!(1)).await.contains("it is empty"));
    assert!(set(&"k".repeat(513), json!(1)).await.contains("513 bytes, the limit is 512"));
    let large = set("big", json!("x".repeat(KV_VALUE_BYTES_MAX))).await;
    assert!(large.contains("the value of `big` is too large: 262146 bytes"), "{large}");
    let ops = vec![KvOp::Check { key: "k".to_owned(), expect: Expect::Any }; KV_BATCH_MAX + 1];
    assert!(
        view.kv_batch(ops).await.unwrap_err().to_string().contains("too many operations: the limit is 256")
    );
    view.kv_set("text", json!("7"), None, Expect::Any).await.unwrap();
    let refused = view.kv_increment("text", Amount::Integer(1), None).await.unwrap_err().to_string();
    assert!(refused.contains("`text`: its value is a text, not a number"), "{refused}");
    assert!(matches!(
        view.kv_set("k", json!(1), Some(0), Expect::Any).await,
        Err(MemoryError::Invalid { what: "the time to live", .. })
    ));
}

#[tokio::test]
async fn a_view_of_the_past_cannot_be_written_to() {
    let world = World::new().await;
    let view = world.view();
    view.kv_set("k", json!(1), None, Expect::Any).await.unwrap();
    let past = world.at(&view, 1).await;
    assert!(matches!(past.kv_set("k", json!(2), None, Expect::Any).await, Err(MemoryError::ReadOnly)));
    assert!(past.kv_watch("", None).await.is_err());
}

#[tokio::test]
async fn a_full_branch_removes_expired_keys_before_it_refuses() {
    let world = World::new().await;
    let view = world.view();
    let expires_ms = crate::testing::START_MS + 10;
    view.write(move |writer| {
        for number in 0..KV_KEYS_MAX {
            let (seq, at_ms) = writer.next(LogKind::Kv)?;
            let expires_ms = (number < 3).then_some(expires_ms);
            writer
                .connection()
                .prepare_cached("INSERT INTO kv VALUES (?1, ?2, ?3, '1', ?4, ?4, ?5, ?6, ?7)")?
                .execute(params![
                    integer(seq),
                    writer.branch(),
                    format!("k{number:06}"),
                    integer(at_ms),
                    expires_ms.map(integer),
                    integer(number + 1),
                    integer((number + 1) * 8)
                ])?;
        }
        Ok(())
    })
    .await
    .unwrap();
    let full = view.kv_set("new", json!(1), None, Expect::Any).await.unwrap_err();
    assert!(matches!(full, MemoryError::Full { max: KV_KEYS_MAX, .. }), "{full}");
    view.kv_set("k000007", json!(2), None, Expect::Any).await.unwrap();
    world.clock.advance(10);
    for key in ["new 1", "new 2", "new 3"] {
        view.kv_set(key, json!(1), None, Expect::Any).await.unwrap();
    }
    assert!(view.kv_set("new 4", json!(1), None, Expect::Any).await.is_err());
    view.kv_delete("new 1", Expect::Any).await.unwrap();
    view.kv_set("new 4", json!(1), None, Expect::Any).await.unwrap();
    assert_eq!(count_of(&view).await, KV_KEYS_MAX);
}

// === concurrent access ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_writers_that_compare_and_set_lose_no_count() {
    let world = World::new().await;
    let view = world.view();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let view = view.clone();
        writers.spawn(async move {
            view.kv_increment("added", Amount::Integer(1), None).await.unwrap();
            // Each failure means that another writer succeeded, so 50 attempts are enough for 50 writers.
            for _ in 0..50 {
                let found = view.kv_get("compared").await.unwrap();
                let expect = found.as_ref().map_or(Expect::Absent, |item| Expect::Version(item.version));
                let next = found.map_or(0, |item| item.value.as_i64().unwrap()) + 1;
                match view.kv_set("compared", json!(next), None, expect).await {
                    Ok(_) => return,
                    Err(MemoryError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            panic!("no try got through");
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
    assert_eq!(view.kv_get("added").await.unwrap().unwrap().value, json!(50));
    assert_eq!(view.kv_get("compared").await.unwrap().unwrap().value, json!(50));
    assert_eq!(view.kv_history("compared").await.unwrap().len(), 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_sees_every_change_once_and_in_order() {
    let world = World::new().await;
    let view = world.view();
    let before = view.kv_set("w/before", json!(0), None, Expect::Any).await.unwrap();
    let sibling = world.fork(&view).await;
    let mut from_start = view.kv_watch("w/", Some(0)).await.unwrap();
    let mut from_now = view.kv_watch("w/", None).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (view, sibling) = (view.clone(), sibling.clone());
        writers.spawn(async move {
            for number in 0..100 {
                view.kv_set(&format!("w/{writer}/{number}"), json!(number), None, Expect::Any).await.unwrap();
                view.kv_set(&format!("other/{writer}"), json!(number), None, Expect::Any).await.unwrap();
                sibling.kv_set("w/sibling", json!(number), None, Expect::Any).await.unwrap();
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
    view.kv_delete("w/before", Expect::Any).await.unwrap();
    let drain = async |receiver: &mut tokio::sync::mpsc::Receiver<_>, count: usize| -> Vec<KvEvent> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(Result::<_, MemoryError>::unwrap(receiver.recv().await.unwrap()));
        }
        events
    };
    let seen = drain(&mut from_start, 802).await;
    assert_eq!(drain(&mut from_now, 801).await, seen[1..]);
    assert_eq!(seen[0].seq, before.version);
    assert!(seen.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!(seen.iter().map(|event| &event.key).collect::<HashSet<_>>().len(), 801);
    assert_eq!(
        seen.last().map(|event| (event.key.as_str(), &event.change)),
        Some(("w/before", &KvChange::Deleted))
    );
    let middle = seen[400].seq;
    let mut resumed = view.kv_watch("w/", Some(middle)).await.unwrap();
    assert_eq!(drain(&mut resumed, 401).await, seen[401..]);
}

#[tokio::test]
async fn a_watcher_is_notified_when_a_key_expires() {
    let world = World::new().await;
    let view = world.view();
    let sibling = world.fork(&view).await;
    let mut watch = view.kv_watch("w/", None).await.unwrap();
    let next = async |watch: &mut tokio::sync::mpsc::Receiver<Result<KvEvent, MemoryError>>| {
        let event = tokio::time::timeout(std::time::Duration::from_secs(60), watch.recv()).await;
        let event = event.expect("no event within 60 s").unwrap().unwrap();
        (event.key, event.change)
    };
    let set = async |view: &View, key: &str, ttl_ms| {
        view.kv_set(key, json!(1), Some(ttl_ms), Expect::Any).await.unwrap();
    };
    set(&view, "w/lock", 20).await;
    set(&view, "w/renewed", 20).await;
    set(&view, "w/deleted", 20).await;
    set(&view, "other", 20).await;
    set(&sibling, "w/sibling", 20).await;
    set(&view, "w/renewed", 40).await;
    view.kv_delete("w/deleted", Expect::Any).await.unwrap();
    let started_ms = crate::testing::START_MS;
    for (key, deleted) in [
        ("w/lock", false),
        ("w/renewed", false),
        ("w/deleted", false),
        ("w/renewed", false),
        ("w/deleted", true),
    ] {
        let (changed, change) = next(&mut watch).await;
        assert_eq!((changed.as_str(), change == KvChange::Deleted), (key, deleted), "{change:?}");
    }
    world.clock.advance(30);
    let event = next(&mut watch).await;
    assert_eq!(event, ("w/lock".to_owned(), KvChange::Expired { at_ms: started_ms + 20 }));
    world.clock.advance(30);
    assert_eq!(
        next(&mut watch).await,
        ("w/renewed".to_owned(), KvChange::Expired { at_ms: started_ms + 40 })
    );
    // A watcher that returns later receives the expiries, too; of a key that was set again, only the new value.
    set(&view, "w/lock", 1_000_000).await;
    assert_eq!(next(&mut watch).await.0, "w/lock");
    let mut resumed = view.kv_watch("w/", Some(0)).await.unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|(_, change)| !matches!(change, KvChange::Expired { .. })) {
        events.push(next(&mut resumed).await);
    }
    assert_eq!(events.len(), 7, "{events:?}");
    assert_eq!(events[6].0, "w/renewed");
}

#[tokio::test]
async fn the_past_of_a_fork_without_writes_uses_the_requested_time() {
    let world = World::new().await;
    let view = world.view();
    view.kv_set("k", json!(1), Some(10), Expect::Any).await.unwrap();
    let child = world.fork(&view).await;
    world.clock.advance(20);
    let later = view.kv_set("other", json!(2), None, Expect::Any).await.unwrap();
    let past = world.at(&child, later.version).await;
    assert_eq!(past.kv_get("k").await.unwrap(), None, "it had expired by then");
    assert!(world.at(&child, 1).await.kv_get("k").await.unwrap().is_some());
}

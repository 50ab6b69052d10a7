//! Random operations on a tree of branches, compared with a model that is a map per branch.

use std::collections::BTreeMap;

use burrow_memory::{
    AsOf, EntryChange, EntrySelection, Filter, MemoryId, MemoryPoint, NewEntry, PageRequest, View,
};

use crate::world::{
    Random, WordEmbedder, World, assert_not_found, assert_sound, by_meaning, by_words, listed, note,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelEntry {
    pub(crate) text: String,
    pub(crate) word: String,
    pub(crate) version: u64,
    pub(crate) cold: bool,
    pub(crate) count: u64,
    pub(crate) session: Option<String>,
    pub(crate) at_ms: u64,
}

pub(crate) type State = BTreeMap<MemoryId, ModelEntry>;

/// A recorded moment, and the state that was visible then.
struct Moment {
    view: usize,
    as_of: AsOf,
    state: State,
}

pub(crate) struct Family {
    pub(crate) world: World,
    pub(crate) random: Random,
    pub(crate) views: Vec<View>,
    pub(crate) states: Vec<State>,
    moments: Vec<Moment>,
    points: Vec<(Option<MemoryPoint>, State)>,
    /// All entries that ever existed, with their words.
    pub(crate) all: BTreeMap<MemoryId, Vec<String>>,
    steps: u64,
}

const BRANCHES_MAX: usize = 12;

impl Family {
    pub(crate) async fn new(seed: u64) -> Self {
        let world = World::new().await;
        let view = world.own();
        Self {
            world,
            random: Random::new(seed),
            views: vec![view],
            states: vec![State::new()],
            moments: Vec::new(),
            points: vec![(None, State::new())],
            all: BTreeMap::new(),
            steps: 0,
        }
    }

    pub(crate) async fn step(&mut self) {
        self.steps += 1;
        let branch = self.random.below(self.views.len());
        match self.random.below(100) {
            0..45 => self.add(branch).await,
            45..60 => self.update(branch).await,
            60..68 => self.forget(branch).await,
            68..74 => self.mark(branch).await,
            74..82 => self.fork(branch).await,
            82..87 => self.restore(branch).await,
            87..94 => self.note_moment(branch).await,
            94..98 => self.look_back().await,
            98 => self.erase(branch).await,
            _ => self.world.reopen(WordEmbedder::new("words", 64, true)).await,
        }
        if self.steps.is_multiple_of(100) {
            // Views outlive the views that they were created from.
            let refs: Vec<_> = self.views.iter().map(|view| view.of().clone()).collect();
            self.views = refs.iter().map(|of| self.world.memory.view(of)).collect();
        }
    }

    fn some_id(&mut self, branch: usize) -> Option<MemoryId> {
        let state = &self.states[branch];
        let at = self.random.below(state.len());
        state.keys().nth(at).cloned()
    }

    fn refresh(&mut self, branch: usize) -> View {
        let view = self.world.memory.view(self.views[branch].of());
        self.views[branch] = view.clone();
        view
    }

    fn new_text(&mut self) -> (String, String) {
        let word = format!("w{}x", self.random.next());
        let common = ["alpha", "beta", "gamma", "delta"][self.random.below(4)];
        (format!("{word} {common} shared"), word)
    }

    async fn add(&mut self, branch: usize) {
        let view = self.refresh(branch);
        let mut batch = Vec::new();
        let mut known = Vec::new();
        for _ in 0..=self.random.below(3) {
            let (text, word) = self.new_text();
            let session = (self.random.below(3) > 0).then(|| format!("s{}", self.random.below(3)));
            let at_ms = 1000 + self.random.next() % 1000;
            batch.push(NewEntry { session: session.clone(), at_ms: Some(at_ms), ..note(&text) });
            known.push(ModelEntry { text, word, version: 1, cold: false, count: 1, session, at_ms });
        }
        self.world.clock.advance(self.random.next() % 50);
        for (added, known) in view.add(batch).await.unwrap().into_iter().zip(known) {
            self.all.entry(added.id.clone()).or_default().push(known.word.clone());
            self.states[branch].insert(added.id, known);
        }
    }

    async fn update(&mut self, branch: usize) {
        let Some(id) = self.some_id(branch) else { return };
        let view = self.refresh(branch);
        let (text, word) = self.new_text();
        let change = EntryChange { text: Some(text.clone()), ..EntryChange::nothing() };
        let known = self.states[branch].get_mut(&id).unwrap();
        let entry = view.update(&id, change, Some(known.version)).await.unwrap();
        known.version += 1;
        (known.text, known.word) = (text, word.clone());
        assert_eq!(entry.version, known.version);
        self.all.entry(id).or_default().push(word);
    }

    async fn forget(&mut self, branch: usize) {
        let Some(id) = self.some_id(branch) else { return };
        let view = self.refresh(branch);
        assert_eq!(view.forget(&EntrySelection::Ids(vec![id.clone()]), false).await.unwrap().count, 1);
        self.states[branch].remove(&id);
    }

    async fn mark(&mut self, branch: usize) {
        let Some(id) = self.some_id(branch) else { return };
        let view = self.refresh(branch);
        let known = self.states[branch].get_mut(&id).unwrap();
        match self.random.below(3) {
            0 => {
                view.cool(&[id]).await.unwrap();
                known.cold = true;
            }
            1 => {
                view.warm(&[id]).await.unwrap();
                known.cold = false;
            }
            _ => {
                view.repeat(&[id], 2).await.unwrap();
                known.count += 2;
            }
        }
    }

    async fn fork(&mut self, branch: usize) {
        let view = self.refresh(branch);
        let child = self.world.fork(&view).await;
        let state = self.states[branch].clone();
        if self.views.len() < BRANCHES_MAX {
            self.views.push(child);
            self.states.push(state);
        } else {
            let at = self.random.below(BRANCHES_MAX);
            self.moments.retain(|moment| moment.view != at);
            self.views[at] = child;
            self.states[at] = state;
        }
    }

    /// Restores a snapshot: a new branch from its point replaces the old one.
    async fn restore(&mut self, branch: usize) {
        let at = self.random.below(self.points.len());
        let (point, state) = self.points[at].clone();
        let space = self.views[branch].of().space.clone();
        self.moments.retain(|moment| moment.view != branch);
        self.views[branch] = self.world.memory.view(&burrow_memory::MemoryRef::branched(&space, point));
        self.states[branch] = state;
    }

    async fn note_moment(&mut self, branch: usize) {
        let view = self.refresh(branch);
        let point = view.point().await.unwrap();
        let state = self.states[branch].clone();
        let highest = view.read(|reader| Ok(reader.chain().cut())).await.unwrap();
        let as_of = match self.random.below(2) {
            0 => AsOf::Seq(highest),
            _ => AsOf::Point(point.clone()),
        };
        self.points.push((point, state.clone()));
        self.moments.push(Moment { view: branch, as_of, state });
        if self.moments.len() > 40 {
            self.moments.remove(0);
        }
    }

    async fn look_back(&mut self) {
        if self.moments.is_empty() {
            return;
        }
        let at = self.random.below(self.moments.len());
        let moment = &self.moments[at];
        let (branch, as_of, state) = (moment.view, moment.as_of.clone(), moment.state.clone());
        let view = self.refresh(branch).at(&as_of).await.unwrap();
        verify(&view, &state).await;
    }

    async fn erase(&mut self, branch: usize) {
        let Some(id) = self.some_id(branch) else { return };
        let view = self.refresh(branch);
        assert_eq!(view.erase(&EntrySelection::Ids(vec![id.clone()]), false).await.unwrap().count, 1);
        self.states.iter_mut().for_each(|state| drop(state.remove(&id)));
        self.points.iter_mut().for_each(|(_, state)| drop(state.remove(&id)));
        self.moments.iter_mut().for_each(|moment| drop(moment.state.remove(&id)));
    }

    pub(crate) async fn verify_all(&mut self) {
        for branch in 0..self.views.len() {
            let view = self.refresh(branch);
            verify(&view, &self.states[branch]).await;
        }
        assert_sound(&self.views[0]).await;
    }
}

/// The list, the search by words and the search by vectors agree with the model.
pub(crate) async fn verify(view: &View, state: &State) {
    let found = listed(view, &Filter::everything()).await;
    let found: State = found
        .into_iter()
        .map(|entry| {
            let word = entry.text.split(' ').next().unwrap().to_owned();
            let known = ModelEntry {
                text: entry.text,
                word,
                version: entry.version,
                cold: entry.cold,
                count: entry.count,
                session: entry.session,
                at_ms: entry.at_ms,
            };
            (entry.id, known)
        })
        .collect();
    assert_eq!(&found, state);
    let mut expected: Vec<_> = state.values().map(|known| known.text.clone()).collect();
    expected.sort();
    let mut by_word = by_words(view, "shared").await;
    by_word.sort();
    assert_eq!(by_word, expected, "by words");
    let mut by_vector = by_meaning(view, vec![0.1; 64]).await;
    by_vector.sort();
    assert_eq!(by_vector, expected, "by meaning");
    let stats = view.stats().await.unwrap();
    assert_eq!(stats.entries as usize, state.len());
    assert_eq!(stats.cold as usize, state.values().filter(|known| known.cold).count());
}

async fn live(seed: u64, steps: usize) {
    let mut family = Family::new(seed).await;
    for step in 0..steps {
        family.step().await;
        if step % 150 == 149 {
            family.verify_all().await;
        }
    }
    family.verify_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_agree_with_a_simple_model_over_thousands_of_steps() {
    for seed in [1, 20_261_115, 3] {
        live(seed, 1000).await;
    }
}

#[tokio::test]
async fn a_fork_and_a_snapshot_write_nothing() {
    let world = World::new().await;
    let view = world.own();
    crate::world::add(&view, "one").await;
    let before = std::fs::metadata(world.file(&view.of().space)).unwrap().len();
    let seq = view.stats().await.unwrap().seq;
    let mut deepest = view.clone();
    for _ in 0..30 {
        deepest = world.fork(&deepest).await;
    }
    assert_eq!(
        deepest.point().await.unwrap(),
        view.point().await.unwrap(),
        "a point names a branch that has rows"
    );
    assert_eq!(crate::world::texts(&deepest).await, ["one"]);
    assert_eq!(view.stats().await.unwrap().seq, seq);
    assert_eq!(std::fs::metadata(world.file(&view.of().space)).unwrap().len(), before);
    assert_eq!(deepest.check().await.unwrap().branches, 1);
}

#[tokio::test]
async fn a_branch_twenty_forks_deep_sees_its_whole_past() {
    let world = World::new().await;
    let mut views = vec![world.own()];
    for depth in 0..20 {
        crate::world::add(&views[depth], &format!("before fork {depth}")).await;
        let child = world.fork(&views[depth]).await;
        crate::world::add(&views[depth], &format!("after fork {depth}")).await;
        views.push(child);
    }
    for (depth, view) in views.iter().enumerate() {
        let texts = crate::world::texts(view).await;
        let before = texts.iter().filter(|text| text.starts_with("before")).count();
        let after = texts.iter().filter(|text| text.starts_with("after")).count();
        assert_eq!((before, after), ((depth + 1).min(20), usize::from(depth < 20)));
    }
    let page = views[20].list(&Filter::all(), PageRequest::first(1)).await.unwrap();
    assert_eq!(page.rows[0].text, "before fork 19");
    assert_not_found(views[20].get(&MemoryId::generate()).await);
}

//! Recording in a real space: repetitions, fixes, related memories, sessions, messages.

use burrow_model::RememberMode;

use super::tests::facts;
use super::*;
use crate::testing::{START_MS, World};
use crate::{Filter, NewEntry, PageRequest, View};

const MINUTE_MS: u64 = 60_000;

async fn run(view: &View, command: &str, code: i32, stderr: &str, at_ms: u64) -> Option<RecordedExec> {
    let facts = ExecFacts { at_ms, ..facts(command, code, stderr) };
    record(view, &facts, RememberMode::All, "box s1").await.unwrap()
}

async fn count(view: &View) -> usize {
    view.list(&Filter::everything(), PageRequest::first(1_000)).await.unwrap().rows.len()
}

#[tokio::test]
async fn repeats_are_counted_and_not_stored_again() {
    let world = World::new().await;
    let view = world.view();
    let first = run(&view, "cargo test", 101, "error at line 1: bad", START_MS).await.unwrap();
    let second = run(&view, "cargo  test", 101, "error at line 2: bad", START_MS + 1).await.unwrap();
    assert_eq!((second.id.clone(), second.repeated), (first.id, true));
    assert_eq!(count(&view).await, 1);
    assert_eq!(view.get(&second.id).await.unwrap().count, 2);
    assert_eq!(run(&view, "ls", 0, "", START_MS).await, None);
}

#[tokio::test]
async fn an_exec_is_recorded_once_per_id() {
    let world = World::new().await;
    let view = world.view();
    let tell = async |view: &View, exec: &str| {
        let facts = ExecFacts { exec: Some(exec.to_owned()), ..facts("cargo test", 101, "error: bad") };
        record(view, &facts, RememberMode::Errors, "box s1").await.unwrap()
    };
    let first = tell(&view, "exe1").await.unwrap();
    let before = view.point().await.unwrap();
    assert_eq!((tell(&view, "exe1").await, view.point().await.unwrap()), (None, before));
    let second = tell(&view, "exe2").await.unwrap();
    assert_eq!((second.id, second.repeated), (first.id.clone(), true));
    assert_eq!(tell(&view, "exe2").await, None);
    assert_eq!(tell(&view, "exe1").await, None);
    assert_eq!(view.get(&first.id).await.unwrap().count, 2);
    // A fork has recorded the execs of its parent; its own execs are separate.
    let fork = world.fork(&view).await;
    assert_eq!(tell(&fork, "exe2").await, None);
    assert!(tell(&fork, "exe3").await.is_some() && tell(&view, "exe3").await.is_some());
    // Forgotten execs are not recorded again.
    view.forget(&crate::EntrySelection::Ids(vec![first.id.clone()]), false).await.unwrap();
    assert_eq!(tell(&view, "exe1").await, None);
    tell(&view, "exe4").await;
    assert!(view.get(&first.id).await.is_err());
    assert!(view.check().await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn a_success_closes_the_failure_and_its_fix_is_shown_at_the_next_one() {
    let world = World::new().await;
    let view = world.view();
    let error = "ModuleNotFoundError: No module named 'yaml'";
    let failed = run(&view, "python3 train.py", 1, error, START_MS).await.unwrap();
    assert_eq!(view.get(&failed.id).await.unwrap().metadata["open"], true);
    run(&view, "pip install pyyaml", 0, "", START_MS + MINUTE_MS).await;
    let worked = run(&view, "python3 train.py --epochs 3", 0, "", START_MS + 2 * MINUTE_MS).await.unwrap();
    assert_eq!(worked.fixed, std::slice::from_ref(&failed.id));
    let closed = view.get(&failed.id).await.unwrap();
    assert_eq!(closed.metadata["open"], false);
    assert!(closed.links.contains(&worked.id));

    let later = ExecFacts { at_ms: START_MS + 5_000 * MINUTE_MS, ..facts("python3 train.py", 1, error) };
    let found = related(&view, &later, None).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].id, failed.id);
    assert_eq!(found[0].why, "the same command failed with the same error");
    let fix = found[0].fixed_by.as_ref().unwrap();
    assert_eq!(
        (fix.id.clone(), fix.commands.as_slice()),
        (worked.id, &["pip install pyyaml".to_owned()][..])
    );
    assert!(found[0].excerpt.len() <= 1024);

    // It fails again: the failure is open again, and its previous fix is still known.
    let again = record(&view, &later, RememberMode::Errors, "box s2").await.unwrap().unwrap();
    assert_eq!(again.id, failed.id);
    assert_eq!(view.get(&failed.id).await.unwrap().metadata["open"], true);
    assert_eq!(related(&view, &later, Some(&again.id)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn only_useful_memories_are_shown() {
    let world = World::new().await;
    let view = world.view();
    let failed = run(&view, "make build", 2, "gcc: fatal error: no input files", START_MS).await.unwrap();
    let again = ExecFacts {
        at_ms: START_MS + MINUTE_MS,
        ..facts("make build", 2, "gcc: fatal error: no input files")
    };
    assert_eq!(related(&view, &again, None).await.unwrap(), [], "it is known to whoever repeats it");
    assert_eq!(related(&view, &again, Some(&failed.id)).await.unwrap(), []);
    let other = ExecFacts {
        at_ms: START_MS + 9_000 * MINUTE_MS,
        ..facts("npm test", 1, "Error: cannot find module 'x'")
    };
    assert_eq!(related(&view, &other, None).await.unwrap(), [], "another trouble");
    let fine = ExecFacts { at_ms: START_MS, ..facts("make build", 0, "") };
    assert_eq!(related(&view, &fine, None).await.unwrap(), []);
}

#[tokio::test]
async fn a_note_about_an_error_is_related_to_it() {
    let world = World::new().await;
    let view = world.view();
    let note = "When psycopg2 says: could not connect to server: connection refused, start the tunnel first";
    let id = view.add(vec![NewEntry::note(note)]).await.unwrap().remove(0).id;
    let failed = facts(
        "./manage migrate",
        1,
        "psycopg2.OperationalError: could not connect to server: Connection refused",
    );
    let found = related(&view, &failed, None).await.unwrap();
    assert_eq!(found.iter().map(|related| related.id.clone()).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn the_errors_mode_keeps_only_successes_that_end_a_failure() {
    let world = World::new().await;
    let view = world.view();
    let errors = async |command: &str, code: i32, at_ms: u64| {
        let facts = ExecFacts { at_ms, ..facts(command, code, if code == 0 { "" } else { "error: no" }) };
        record(&view, &facts, RememberMode::Errors, "box s1").await.unwrap()
    };
    assert_eq!(errors("make", 0, START_MS).await, None);
    assert!(errors("make", 2, START_MS + 1).await.is_some());
    assert_eq!(errors("make", 0, START_MS + 2).await.unwrap().fixed.len(), 1);
    assert_eq!(errors("make", 0, START_MS + 3).await, None);
}

#[tokio::test]
async fn sessions_open_and_close_automatically() {
    let world = World::new().await;
    let view = world.view();
    let of = |since_ms| SessionOwner { name: "web".to_owned(), since_ms };
    let first = current_session(&view, &of(None), START_MS).await.unwrap();
    let who = Participants { user: None, agent: None };
    let said = |text: &str| vec![Message { role: "user".to_owned(), content: text.to_owned() }];
    turn(&view, &said("hello"), &first, &who).await.unwrap();
    assert_eq!(current_session(&view, &of(None), START_MS + 10 * MINUTE_MS).await.unwrap(), first);
    assert_ne!(current_session(&view, &of(None), START_MS + 40 * MINUTE_MS).await.unwrap(), first);
    assert_ne!(current_session(&view, &of(Some(START_MS + 1)), START_MS + MINUTE_MS).await.unwrap(), first);
}

#[tokio::test]
async fn a_turn_is_stored_once() {
    let world = World::new().await;
    let view = world.view();
    let who = Participants { user: Some("ann".to_owned()), agent: Some("coder".to_owned()) };
    let mut talk = vec![
        Message { role: "user".to_owned(), content: "deploy it".to_owned() },
        Message { role: "assistant".to_owned(), content: "[tool call] deploy {}".to_owned() },
    ];
    let stored = turn(&view, &talk, "s", &who).await.unwrap();
    assert_eq!((stored.added, stored.known), (2, 0));
    talk.push(Message { role: "tool".to_owned(), content: "ok".to_owned() });
    let again = turn(&view, &talk, "s", &who).await.unwrap();
    assert_eq!((again.added, again.known), (1, 2));
    let entry = view.get(&again.ids[0]).await.unwrap();
    assert_eq!(
        (entry.user.as_deref(), entry.agent.as_deref(), entry.source.as_deref()),
        (Some("ann"), Some("coder"), Some("user"))
    );
    assert_eq!(count(&view).await, 3);
}

#[tokio::test]
async fn commands_between_a_failure_and_its_end_are_the_fix_in_every_mode() {
    let world = World::new().await;
    let view = world.view();
    let at = |minute: u64| START_MS + minute * MINUTE_MS;
    let failed = ExecFacts { at_ms: at(1), ..facts("make install", 2, "fatal: libssl not found") };
    record(&view, &failed, RememberMode::Errors, "s").await.unwrap().unwrap();
    let argv = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let commands =
        ["apt-get install old", "ls -l", "apt-get install libssl-dev", "./configure --token=abc123def456"];
    let earlier: Vec<_> = (0..)
        .zip(commands)
        .filter_map(|(minute, line)| EarlierCommand::of(&argv(line), at(minute)))
        .collect();
    assert_eq!(earlier.len(), 3, "looking mends nothing");
    let fixed = ExecFacts { at_ms: at(9), earlier, ..facts("make install", 0, "") };
    let fixed = record(&view, &fixed, RememberMode::Errors, "s").await.unwrap().unwrap();
    assert_eq!(fixed.fixed.len(), 1);
    let failure = view.get(&fixed.fixed[0]).await.unwrap();
    assert_eq!(
        failure.metadata["fix"]["commands"],
        serde_json::json!(["apt-get install libssl-dev", "./configure --token=[secret removed]"]),
        "what ran before it failed did not fix it, and secrets are gone"
    );
    assert!(failure.links.contains(&fixed.id));
    let again = ExecFacts { at_ms: at(5_000), ..facts("make install", 2, "fatal: libssl not found") };
    let found = related(&view, &again, None).await.unwrap();
    let fix = found[0].fixed_by.as_ref().unwrap();
    assert_eq!(fix.commands[0], "apt-get install libssl-dev");
}

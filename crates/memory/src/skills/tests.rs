//! Skills through a view: versions, outcomes, search, branches.

use std::collections::BTreeMap;

use super::*;
use crate::testing::World;
use crate::{PageRequest, View};

fn skill(name: &str, description: &str, run: &str) -> NewSkill {
    NewSkill {
        name: name.to_owned(),
        description: description.to_owned(),
        when_to_use: String::new(),
        parameters: vec![Parameter {
            name: "target".to_owned(),
            description: "what to act on".to_owned(),
            required: true,
            default: None,
        }],
        steps: vec![Step::Command {
            run: run.to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            timeout_s: None,
        }],
        source: Some("test".to_owned()),
    }
}

fn outcome(ok: bool) -> Outcome {
    Outcome { ok, exit_code: Some(i32::from(!ok)), detail: "as expected".to_owned(), took_ms: 12 }
}

async fn names(view: &View, query: &str) -> Vec<String> {
    view.skill_search(query, 10).await.unwrap().into_iter().map(|hit| hit.skill.name).collect()
}

#[tokio::test]
async fn a_skill_has_versions_and_is_filled_with_its_parameters() {
    let world = World::new().await;
    let view = world.view();
    let first = view.skill_put(skill("deploy", "deploys the web service", "ship {{target}}")).await.unwrap();
    let second = view.skill_put(skill("deploy", "deploys it anew", "ship --force {{target}}")).await.unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    assert_eq!(view.skill_get("deploy", None).await.unwrap(), second);
    assert_eq!(view.skill_get("deploy", Some(1)).await.unwrap(), first);
    assert_eq!(view.skill_versions("deploy").await.unwrap(), [second.clone(), first]);
    let given = BTreeMap::from([("target".to_owned(), "a b".to_owned())]);
    let steps = second.fill(&given).unwrap();
    assert!(matches!(&steps[0], Step::Command { run, .. } if run == "ship --force 'a b'"));
    assert!(matches!(view.skill_get("deploy", Some(3)).await, Err(MemoryError::NotFound { .. })));
    assert!(matches!(view.skill_get("other", None).await, Err(MemoryError::NotFound { .. })));
}

#[tokio::test]
async fn outcomes_are_counted_per_version_and_move_the_ranking() {
    let world = World::new().await;
    let view = world.view();
    view.skill_put(skill("restart-a", "restart the database server", "a {{target}}")).await.unwrap();
    view.skill_put(skill("restart-b", "restart the database server", "b {{target}}")).await.unwrap();
    assert_eq!(names(&view, "how do I restart databases").await, ["restart-a", "restart-b"]);
    for _ in 0..3 {
        view.skill_outcome("restart-a", 1, outcome(false)).await.unwrap();
    }
    let worked = view.skill_outcome("restart-b", 1, outcome(true)).await.unwrap();
    assert_eq!((worked.successes, worked.failures), (1, 0));
    assert_eq!(worked.last.unwrap().outcome, outcome(true));
    assert_eq!(names(&view, "how do I restart databases").await, ["restart-b", "restart-a"]);
    let mended =
        view.skill_put(skill("restart-a", "restart the database server", "c {{target}}")).await.unwrap();
    assert_eq!((mended.successes, mended.failures, mended.last), (0, 0, None));
    assert!(mended.score < 0.5, "a new version starts from what is known of the old: {}", mended.score);
    assert!(matches!(
        view.skill_outcome("restart-a", 9, outcome(true)).await,
        Err(MemoryError::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_fork_learns_separately_and_the_past_is_unchanged() {
    let world = World::new().await;
    let view = world.view();
    let put = view.skill_put(skill("build", "build the project", "make {{target}}")).await.unwrap();
    let child = world.fork(&view).await;
    child.skill_outcome("build", 1, outcome(true)).await.unwrap();
    child.skill_put(skill("build", "build it with ninja", "ninja {{target}}")).await.unwrap();
    assert_eq!(view.skill_get("build", None).await.unwrap(), put);
    assert_eq!(child.skill_get("build", Some(1)).await.unwrap().successes, 1);
    view.skill_forget("build").await.unwrap();
    assert!(view.skill_get("build", None).await.is_err());
    assert!(names(&view, "build").await.is_empty());
    assert_eq!(child.skill_get("build", None).await.unwrap().version, 2);
    assert_eq!(world.at(&view, put.seq).await.skill_get("build", None).await.unwrap(), put);
    let again = view.skill_put(skill("build", "build again", "make {{target}}")).await.unwrap();
    assert_eq!(again.version, 2, "a version's number is never used twice");
    assert_eq!(view.skill_versions("build").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_search_finds_by_words_and_says_why() {
    let world = World::new().await;
    let view = world.view();
    view.skill_put(skill("renew-certificate", "renew the tls certificate of the proxy", "x {{target}}"))
        .await
        .unwrap();
    view.skill_put(skill("resize-disk", "grow the disk of a machine", "y {{target}}")).await.unwrap();
    let hits = view.skill_search("the certificates have expired, renewing them", 10).await.unwrap();
    assert_eq!(hits.len(), 1);
    let hit = &hits[0];
    assert_eq!(hit.skill.name, "renew-certificate");
    assert!(hit.lexical > 0.0 && hit.vector.is_some() && hit.relevance <= 1.0, "{hit:?}");
    assert!((hit.score - hit.relevance * hit.skill.score).abs() < 1e-9);
    assert!(view.skill_search("", 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn skills_are_listed_by_name_page_by_page() {
    let world = World::new().await;
    let view = world.view();
    for name in ["c", "a", "b"] {
        view.skill_put(skill(name, "does something", "x {{target}}")).await.unwrap();
    }
    let first = view.skill_list(PageRequest::first(2)).await.unwrap();
    let rest = view.skill_list(PageRequest { cursor: first.next_cursor, limit: 2 }).await.unwrap();
    let names = |rows: &[Skill]| rows.iter().map(|skill| skill.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&first.rows), names(&rest.rows)),
        (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(rest.next_cursor, None);
}

#[test]
fn skills_that_can_never_run_are_refused_when_they_are_stored() {
    let refused = |change: &dyn Fn(&mut NewSkill)| {
        let mut new = skill("deploy", "deploys", "ship {{target}}");
        change(&mut new);
        new.check().unwrap_err().to_string()
    };
    assert!(refused(&|new| new.name = "Deploy!".to_owned()).contains("lower-case letters"));
    assert!(refused(&|new| new.description = " ".to_owned()).contains("no search could find"));
    assert!(refused(&|new| new.steps.clear()).contains("it has no steps"));
    assert!(refused(&|new| new.parameters.clear()).contains("no such parameter"));
    assert!(refused(&|new| new.parameters[0].name = "Target".to_owned()).contains("lower-case"));
    assert!(refused(&|new| new.parameters.push(new.parameters[0].clone())).contains("twice"));
    let large = refused(&|new| {
        new.steps = vec![Step::Script {
            interpreter: "sh".to_owned(),
            text: "x".repeat(SKILL_BYTES_MAX + 1),
            env: BTreeMap::new(),
        }];
    });
    assert!(large.contains("the limit is 262144"), "{large}");
}

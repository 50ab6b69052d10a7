//! Finds tasks that no code waits for or ends, although no code says so.
//!
//! A statement that only spawns a task drops its handle. `drop(tokio::spawn(…))` does the same, but shows that this is intended; a
//! comment says what ends the task. The methods of a `TaskTracker` or a `JoinSet` keep the task, so they are no such statements.

use crate::tokens::{group_length, tokens_of};

/// Names of variables and fields that are handles of a runtime, whose methods return the handle of the task too.
const RUNTIMES: [&str; 2] = ["runtime", "handle"];

/// The statements that drop the handle of the task they spawn. Of each, the beginning.
pub(crate) fn dropped_handles(tokens: &[String]) -> Vec<String> {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| token(at + 1) == "(") {
        let start = path_start(tokens, at);
        if !spawns(&tokens[start..=at]) || !is_unused(&tokens[..start]) {
            continue;
        }
        let end = at + 1 + group_length(&tokens[at + 1..]);
        if token(end) == ";" {
            found.push((start..end).take(12).map(token).collect());
        }
    }
    found
}

/// The first part of a path or of a chain of fields whose last part is at `at`.
fn path_start(tokens: &[String], at: usize) -> usize {
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut start = at;
    while start >= 2 && ["::", "."].contains(&tokens[start - 1].as_str()) && is_name(&tokens[start - 2]) {
        start -= 2;
    }
    start
}

/// Whether a call of this path returns the handle of a task.
fn spawns(path: &[String]) -> bool {
    let mut parts = path.iter().rev().map(String::as_str);
    let (name, joint, owner) = (parts.next().unwrap_or(""), parts.next(), parts.next().unwrap_or(""));
    match joint {
        Some(".") => ["spawn", "spawn_blocking"].contains(&name) && RUNTIMES.contains(&owner),
        Some("::") if name == "spawn" => ["tokio", "task"].contains(&owner),
        Some(_) | None => ["spawn_blocking", "spawn_local"].contains(&name),
    }
}

/// Whether the value of an expression after these tokens is used by nothing, if a semicolon follows it.
fn is_unused(before: &[String]) -> bool {
    let ignored = ["let", "_", "="];
    before.last().is_none_or(|last| [";", "{", "}", "]"].contains(&last.as_str()))
        || before.ends_with(&ignored.map(str::to_owned))
}

#[test]
fn dropped_handles_are_found() {
    for text in [
        "fn f() { tokio::spawn(async move { g().await; }.instrument(span)); }",
        "a();\n// A comment.\ntokio::task::spawn_blocking(move || {\n    drain(&space)\n});",
        "if x {} task::spawn(g());",
        "#[cfg(unix)] tokio::spawn(g());",
        "let _ = tokio::spawn(g());",
        "a(); spawn_blocking(g);",
        "a(); tokio::task::spawn_local(g());",
        "a(); self.runtime.spawn(g());",
        "a(); tokio::spawn(async { drop(tokio::spawn(g())); });",
    ] {
        assert_eq!(dropped_handles(&tokens_of(text)).len(), 1, "{text}");
    }
    let nested = "a(); tokio::spawn(async { tokio::spawn(g()); });";
    let expected = ["tokio::spawn(async{tokio::spawn(g(", "tokio::spawn(g())"];
    assert_eq!(dropped_handles(&tokens_of(nested)), expected);
}

#[test]
fn handles_that_are_used_or_dropped_explicitly_are_not_found() {
    for text in [
        "a(); drop(tokio::spawn(g()));",
        "let task = tokio::spawn(g());",
        "let _ = tokio::spawn(g()).await;",
        "a(); tokio::spawn(g()).await;",
        "a(); self.task = Some(tokio::spawn(g()));",
        "fn f() -> JoinHandle<()> { tokio::spawn(g()) }",
        "a(); app.tasks.spawn(g());",
        "a(); set.spawn_blocking(g);",
        "a(); drive::spawn(engine);",
        "a(); std::thread::spawn(g);",
        "// tokio::spawn(g());",
        "a(\"tokio::spawn(g());\");",
    ] {
        assert_eq!(dropped_handles(&tokens_of(text)), Vec::<String>::new(), "{text}");
    }
}

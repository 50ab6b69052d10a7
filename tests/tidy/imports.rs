//! Reads imports and paths from tokens.

use crate::tokens::{group_length, tokens_of, without_tests};

/// The path of a module, or of an item in it, from the root of its crate.
pub(crate) type ItemPath = Vec<String>;

/// One name of a `use`.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) path: ItemPath,
    /// The name in this file; `*` for all names of a module.
    pub(crate) name: String,
    pub(crate) public: bool,
}

/// The paths in the code, from the name that an import stands for. A name with several imports in a file stands for each.
pub(crate) fn full_paths(tokens: &[String]) -> Vec<ItemPath> {
    let (code, uses) = split_uses(tokens);
    let full = |path: ItemPath| {
        let imports = uses.iter().filter(|import| import.name == path[0]);
        let found: Vec<ItemPath> = imports.map(|import| [&import.path[..], &path[1..]].concat()).collect();
        if found.is_empty() { vec![path] } else { found }
    };
    paths_in(&code).into_iter().flat_map(full).collect()
}

/// Takes the `use` declarations out of the code.
pub(crate) fn split_uses(tokens: &[String]) -> (Vec<String>, Vec<Import>) {
    let (mut code, mut uses) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        let public = tokens[at] == "pub";
        if public {
            // The path in `pub(in path)` is no use.
            at += 1 + group_length(&tokens[at + 1..]);
        }
        if tokens.get(at).is_some_and(|token| token == "use") && !is_capture(tokens, at) {
            let length = item_end(&tokens[at..]);
            add_imports(&tokens[at + 1..at + length], &[], public, &mut uses);
            at += length + 1;
        } else if !public {
            code.push(tokens[start].clone());
            at += 1;
        }
    }
    (code, uses)
}

/// Whether this is `use<…>` in a type.
fn is_capture(tokens: &[String], at: usize) -> bool {
    tokens.get(at + 1).is_some_and(|next| next == "<")
}

fn item_end(tokens: &[String]) -> usize {
    tokens.iter().position(|token| token == ";").unwrap_or(tokens.len())
}

fn add_imports(tree: &[String], prefix: &[String], public: bool, uses: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].as_str() {
            "::" => at += 1,
            "{" => {
                let length = group_length(&tree[at..]);
                for part in parts(&tree[at + 1..at + length - 1]) {
                    add_imports(part, &path, public, uses);
                }
                return;
            }
            "as" => {
                uses.push(Import { path, name: tree[at + 1].clone(), public });
                return;
            }
            "*" => {
                uses.push(Import { path, name: "*".to_owned(), public });
                return;
            }
            "self" if !path.is_empty() => at += 1,
            name => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
    if let Some(name) = path.last().cloned() {
        uses.push(Import { path, name, public });
    }
}

/// Splits a list at the commas that are in no inner braces.
fn parts(list: &[String]) -> Vec<&[String]> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, token) in list.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.retain(|part| !part.is_empty());
    found
}

/// The paths of more than one part in expressions and types.
pub(crate) fn paths_in(tokens: &[String]) -> Vec<ItemPath> {
    let is_name = |token: &String| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let inside = at > 0 && [".", "::"].contains(&tokens[at - 1].as_str());
        let mut path = Vec::new();
        while tokens.get(at).is_some_and(is_name) {
            path.push(tokens[at].clone());
            at += 1;
            let goes_further = tokens.get(at).is_some_and(|token| token == "::");
            if !goes_further || !tokens.get(at + 1).is_some_and(is_name) {
                break;
            }
            at += 1;
        }
        if path.is_empty() {
            at += 1;
        } else if path.len() > 1 && !inside {
            found.push(path);
        }
    }
    found
}

#[test]
fn imports_are_read_from_the_tokens_without_the_tests() {
    let text = r##"
        use crate::a::{self, B};
        use crate::a::c::{D as E, F};
        pub(crate) use g::*;
        // use crate::comment::No;
        fn f<'a>(s: &'a str) -> h::I { let _ = ('"', '\'', "crate::no::No", r#"x " y"#); s.parse::<u8>(); }
        #[cfg(test)]
        mod tests { use super::*; }
        use crate::last::Last;
    "##;
    let (code, uses) = split_uses(&without_tests(&tokens_of(text)));
    let read: Vec<String> =
        uses.iter().map(|import| format!("{} as {}", import.path.join("::"), import.name)).collect();
    let expected = [
        "crate::a as a",
        "crate::a::B as B",
        "crate::a::c::D as E",
        "crate::a::c::F as F",
        "g as *",
        "crate::last::Last as Last",
    ];
    assert_eq!(read, expected);
    assert_eq!(paths_in(&code), [["h", "I"]]);
}

#[test]
fn names_in_paths_stand_for_what_is_imported() {
    let text = "
        use std::time::{Duration, Instant};
        use std::process::Command as Program;
        fn f() { Instant::now(); Program::new(a); tokio::time::Instant::now(); g::h(); START.get_or_init(Instant::now) }
    ";
    let full: Vec<String> = full_paths(&tokens_of(text)).iter().map(|path| path.join("::")).collect();
    let expected = [
        "std::time::Instant::now",
        "std::process::Command::new",
        "tokio::time::Instant::now",
        "g::h",
        "std::time::Instant::now",
    ];
    assert_eq!(full, expected);
}

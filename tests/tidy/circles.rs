//! Finds circles: files of a crate that import each other, directly or through others.
//!
//! ```text
//!   text ─► tokens, without tests ─► modules: children, imports ─► edges to the files that define what is used ─► circles
//! ```
//!
//! An import through a re-export counts as an import of the file that defines the item; a re-export counts as an import if its own
//! file uses the name. Declaring a module is no import, and calling a method is none either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::tokens::{group_length, tokens_of, without_tests};

/// The path of a module, or of an item in it, from the root of its crate.
type ItemPath = Vec<String>;

/// Re-exports of re-exports that are followed: more than there are folders.
const HOPS_MAX: usize = 16;

const ITEMS: [&str; 8] = ["struct", "enum", "fn", "trait", "type", "const", "static", "union"];

/// One file of a crate.
#[derive(Debug)]
struct Module {
    file: PathBuf,
    tokens: Vec<String>,
    children: BTreeSet<String>,
    uses: Vec<Import>,
}

/// One name of a `use`.
#[derive(Debug)]
struct Import {
    path: ItemPath,
    /// The name in this file; `*` for all names of a module.
    name: String,
    public: bool,
}

/// The modules of a crate.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    modules: BTreeMap<ItemPath, Module>,
}

impl Crate {
    /// Reads the crate whose sources are in `folder`.
    pub(crate) fn read(folder: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|path| path.exists());
        let mut found = Self::default();
        found.load(Vec::new(), root.unwrap());
        found
    }

    fn load(&mut self, at: ItemPath, file: PathBuf) {
        let tokens = without_tests(&tokens_of(&fs::read_to_string(&file).unwrap()));
        let stem = file.file_stem().unwrap().to_owned();
        let beside = file.parent().unwrap().to_owned();
        let folder =
            if ["mod", "lib", "main"].contains(&stem.to_str().unwrap()) { beside } else { beside.join(stem) };
        let declared = tokens.windows(3).filter(|at| at[0] == "mod" && at[2] == ";").map(|at| at[1].clone());
        let file_of = |name: &String| {
            let places = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
            places.into_iter().find(|path| path.exists()).map(|path| (name.clone(), path))
        };
        let children: BTreeMap<String, PathBuf> = declared.filter_map(|name| file_of(&name)).collect();
        let (tokens, uses) = split_uses(&tokens);
        let names = children.keys().cloned().collect();
        self.modules.insert(at.clone(), Module { file, tokens, children: names, uses });
        for (name, path) in children {
            self.load([at.clone(), vec![name]].concat(), path);
        }
    }

    /// The circles of more than `max` files, the largest first.
    pub(crate) fn circles(&self, max: usize) -> Vec<Vec<&Path>> {
        let edges: BTreeMap<&ItemPath, BTreeSet<ItemPath>> =
            self.modules.keys().map(|at| (at, self.edges(at))).collect();
        let reach: BTreeMap<&ItemPath, BTreeSet<&ItemPath>> =
            self.modules.keys().map(|from| (from, reached(from, &edges))).collect();
        let mut circles = BTreeSet::new();
        for (from, reached) in &reach {
            let circle: Vec<&Path> = reached
                .iter()
                .filter(|other| reach[*other].contains(from))
                .map(|other| self.modules[*other].file.as_path())
                .collect();
            if circle.len() > max {
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The modules that define what this one uses.
    fn edges(&self, at: &ItemPath) -> BTreeSet<ItemPath> {
        let module = &self.modules[at];
        // A module that is imported as such counts where one of its items is used.
        let imported = module.uses.iter().filter(|import| !import.public || module.mentions(&import.name));
        let imported = imported.filter_map(|import| {
            let path = self.absolute(at, &import.path)?;
            (import.name == "*" || !self.is_module(&path)).then_some(path)
        });
        let used = paths_in(&module.tokens).into_iter().filter_map(|path| self.absolute(at, &path));
        let defined = imported.chain(used).filter_map(|path| self.definition(&path, 0));
        defined.filter(|found| found != at).collect()
    }

    /// A path as it is written in a module, from the root of the crate; `None` if it leads out of the crate.
    fn absolute(&self, at: &[String], path: &[String]) -> Option<ItemPath> {
        let module = &self.modules[at];
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([at, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                Some([at.get(..at.len().checked_sub(ups)?)?, &path[ups..]].concat())
            }
            first if module.children.contains(first) => Some([at, path].concat()),
            first => {
                let import = module.uses.iter().find(|import| import.name == first && import.path != path)?;
                (import.path.first()? != first).then_some(())?;
                self.absolute(at, &[&import.path[..], &path[1..]].concat())
            }
        }
    }

    fn is_module(&self, path: &ItemPath) -> bool {
        let last = path.last().is_some_and(|last| last.starts_with(char::is_lowercase));
        last && self.modules.contains_key(path)
    }

    /// The module that defines an item.
    fn definition(&self, path: &[String], hops: usize) -> Option<ItemPath> {
        let depth = (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth]))?;
        let (at, rest) = (path[..depth].to_vec(), &path[depth..]);
        let Some(name) = rest.first() else { return Some(at) };
        if hops > HOPS_MAX {
            return Some(at);
        }
        let module = &self.modules[&at];
        if let Some(import) = module.uses.iter().find(|import| import.name == *name) {
            let target = self.absolute(&at, &import.path)?;
            let target = [target, rest[1..].to_vec()].concat();
            return if target == path { None } else { self.definition(&target, hops + 1) };
        }
        let globs = module.uses.iter().filter(|import| import.name == "*");
        let through_glob = globs.filter_map(|glob| self.absolute(&at, &glob.path)).find_map(|from| {
            let found = self.definition(&[from, rest.to_vec()].concat(), hops + 1)?;
            self.modules[&found].defines(name).then_some(found)
        });
        Some(through_glob.unwrap_or(at))
    }
}

impl Module {
    /// Whether the code names an item: a type, a function that is called, or the start of a path.
    fn mentions(&self, name: &str) -> bool {
        let token = |at: usize| self.tokens.get(at).map_or("", String::as_str);
        let named = (0..self.tokens.len()).filter(|at| token(*at) == name);
        let mut free = named
            .filter(|at| !at.checked_sub(1).is_some_and(|before| [".", "::", "fn"].contains(&token(before))));
        free.any(|at| name.starts_with(char::is_uppercase) || ["(", "::"].contains(&token(at + 1)))
    }

    fn defines(&self, name: &str) -> bool {
        self.tokens.windows(2).any(|at| ITEMS.contains(&at[0].as_str()) && at[1] == name)
    }
}

fn reached<'a>(
    from: &ItemPath,
    edges: &BTreeMap<&'a ItemPath, BTreeSet<ItemPath>>,
) -> BTreeSet<&'a ItemPath> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&ItemPath> = edges[from].iter().collect();
    while let Some(next) = open.pop() {
        let (key, further) = edges.get_key_value(next).unwrap();
        if found.insert(*key) {
            open.extend(further);
        }
    }
    found
}

/// Takes the `use` declarations out of the code.
fn split_uses(tokens: &[String]) -> (Vec<String>, Vec<Import>) {
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
fn paths_in(tokens: &[String]) -> Vec<ItemPath> {
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

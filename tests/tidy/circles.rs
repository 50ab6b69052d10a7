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

use crate::imports::{Import, ItemPath, paths_in, split_uses};
use crate::tokens::{tokens_of, without_tests};

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

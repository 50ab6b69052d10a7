//! Cache keys of steps: the digest of everything on which the result of a step depends.

use std::collections::BTreeMap;

use super::{Run, RunCommand, RunMount, SourceTree, Step, TreeCopy};
use crate::{Digest, Hasher};

/// Identifies the image after a step. The same base, steps and files have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepKey(pub Digest);

/// Changed when a step with the same text starts to do something else.
const VERSION: &str = "burrow build 1";

/// The key before the first step. `base` identifies the base image exactly.
pub fn base_key(base: &str) -> StepKey {
    let mut fields = Fields::default();
    fields.text(VERSION);
    fields.text(base);
    StepKey(fields.0.finish())
}

/// The key after `step`. `content` is the [`super::content_hash`] of the copied files, and `None` for every other
/// step.
pub fn key(parent: StepKey, step: &Step, content: Option<Digest>) -> StepKey {
    let mut fields = Fields::default();
    fields.bytes(parent.0.as_bytes());
    match step {
        Step::Packages(names) => fields.list("packages", names),
        Step::Copy(copy) => {
            fields.text("copy");
            fields.text(&copy.from);
            fields.text(&copy.to);
            fields.optional(copy.owner.as_deref());
            fields.optional(copy.mode.map(|mode| mode.to_string()).as_deref());
        }
        Step::Run(Run::Shell(line)) => {
            fields.text("shell");
            fields.text(line);
        }
        Step::Run(Run::Bash(line)) => {
            fields.text("bash");
            fields.text(line);
        }
        Step::Run(Run::Argv(argv)) => fields.list("argv", argv),
        Step::Env(variables) => fields.map("env", variables),
        Step::User(user) => {
            fields.text("user");
            fields.text(user);
        }
        Step::Workdir(path) => {
            fields.text("workdir");
            fields.text(path);
        }
        Step::Entrypoint(argv) => fields.list("entrypoint", argv),
        Step::Cmd(argv) => fields.list("cmd", argv),
        Step::Labels(labels) => fields.map("labels", labels),
        Step::Command(command) => fields.command(command),
        Step::CopyTree(copy) => fields.tree_copy(copy),
        Step::Expose(ports) => fields.list("expose", &ports.iter().cloned().collect::<Vec<_>>()),
    }
    fields.optional(content.map(|content| content.to_string()).as_deref());
    StepKey(fields.0.finish())
}

/// Every field is preceded by its length, so that no two lists of fields give the same bytes.
#[derive(Default)]
struct Fields(Hasher);

impl Fields {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.text(if text.is_some() { "some" } else { "none" });
        self.text(text.unwrap_or_default());
    }

    fn list(&mut self, kind: &str, texts: &[String]) {
        self.text(kind);
        self.bytes(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.text(text));
    }

    fn command(&mut self, command: &RunCommand) {
        let RunCommand { argv, arguments, mounts, offline } = command;
        self.list("command", argv);
        self.map("arguments", arguments);
        self.text(if *offline { "offline" } else { "online" });
        self.bytes(&(mounts.len() as u64).to_le_bytes());
        for mount in mounts {
            match mount {
                // Which cache it is does not change the result.
                RunMount::Cache(cache) => self.list("cache", std::slice::from_ref(&cache.target)),
                RunMount::Bind { tree: _, source, target } => {
                    self.list("bind", &[source.clone(), target.clone()])
                }
                RunMount::Tmpfs { target } => self.list("tmpfs", std::slice::from_ref(target)),
            }
        }
    }

    fn tree_copy(&mut self, copy: &TreeCopy) {
        // The digest of the content covers the sources, wherever they are from.
        let TreeCopy { tree, sources, files, to, owner, mode, unpack } = copy;
        self.text("copy tree");
        self.text(if *tree == SourceTree::Context { "context" } else { "tree" });
        self.list("sources", sources);
        self.bytes(&(files.len() as u64).to_le_bytes());
        for file in files {
            self.text(&file.name);
            self.text(&file.content);
        }
        self.text(to);
        self.optional(owner.as_deref());
        self.optional(mode.map(|mode| mode.to_string()).as_deref());
        self.text(if *unpack { "unpack" } else { "plain" });
    }

    fn map(&mut self, kind: &str, map: &BTreeMap<String, String>) {
        self.text(kind);
        self.bytes(&(map.len() as u64).to_le_bytes());
        for (name, value) in map {
            self.text(name);
            self.text(value);
        }
    }
}

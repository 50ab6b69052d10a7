//! Merges of trees: single cases, and random ones compared with a model that merges recursively.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::apply::{self, Sources};

// === The model ===

/// A tree as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Model {
    File { content: u8, mode: u32 },
    Link { target: u8 },
    Folder { mode: u32, children: BTreeMap<u8, Model> },
}

type Children = BTreeMap<u8, Model>;

impl Model {
    fn children(&self) -> Option<&Children> {
        match self {
            Self::Folder { children, .. } => Some(children),
            Self::File { .. } | Self::Link { .. } => None,
        }
    }

    fn mode(&self) -> u32 {
        match self {
            Self::Folder { mode, .. } | Self::File { mode, .. } => *mode,
            Self::Link { .. } => 0,
        }
    }
}

struct Reference {
    policy: Policy,
    conflicts: usize,
}

impl Reference {
    /// Applies a policy to one conflict: ours or theirs.
    fn choose<T>(&mut self, ours: T, theirs: T) -> T {
        match self.policy {
            Policy::Theirs => theirs,
            Policy::Ours => ours,
            Policy::Fail | Policy::Union | Policy::Text => {
                self.conflicts += 1;
                ours
            }
        }
    }

    fn merge(&mut self, base: Option<&Model>, ours: Option<&Model>, theirs: Option<&Model>) -> Option<Model> {
        if theirs == base || ours == theirs {
            return ours.cloned();
        }
        if ours == base {
            return theirs.cloned();
        }
        let folder = |model: Option<&Model>| model.and_then(Model::children).is_some();
        match (ours, theirs) {
            (Some(mine), Some(others)) if folder(ours) && folder(theirs) => {
                let mode = match base.filter(|_| folder(base)).map(Model::mode) {
                    Some(mode) if others.mode() == mode => mine.mode(),
                    Some(mode) if mine.mode() == mode => others.mode(),
                    _ if mine.mode() == others.mode() => mine.mode(),
                    _ => self.choose(mine.mode(), others.mode()),
                };
                Some(Model::Folder { mode, children: self.children(base, ours, theirs) })
            }
            (Some(mine), None) if folder(ours) => self.one_sided(base, mine, Owner::Ours),
            (None, Some(others)) if folder(theirs) => self.one_sided(base, others, Owner::Theirs),
            (Some(mine), Some(others)) if folder(ours) && !folder(theirs) => {
                // The folder is a conflict, unless ours changed nothing in it.
                let clean = folder(base) && base.map(Model::mode) == Some(mine.mode());
                if clean && self.probe().children(base, ours, None).is_empty() {
                    return Some(others.clone());
                }
                self.choose(Some(mine.clone()), Some(others.clone()))
            }
            (Some(mine), Some(others)) if folder(theirs) && !folder(ours) => {
                let clean = folder(base) && base.map(Model::mode) == Some(others.mode());
                let mut probe = self.probe();
                if clean && probe.children(base, None, theirs).is_empty() && probe.conflicts == 0 {
                    return Some(mine.clone());
                }
                self.choose(Some(mine.clone()), Some(others.clone()))
            }
            _ => self.leaves(base, ours, theirs),
        }
    }

    /// A copy that counts no conflicts, and takes theirs where possible.
    fn probe(&self) -> Self {
        Self { policy: self.policy, conflicts: 0 }
    }

    fn children(&mut self, base: Option<&Model>, ours: Option<&Model>, theirs: Option<&Model>) -> Children {
        let of = |model: Option<&Model>| model.and_then(Model::children).cloned().unwrap_or_default();
        let (base, ours, theirs) = (of(base), of(ours), of(theirs));
        let names: BTreeSet<u8> = base.keys().chain(ours.keys()).chain(theirs.keys()).copied().collect();
        let merged = names.into_iter().filter_map(|name| {
            let merged = self.merge(base.get(&name), ours.get(&name), theirs.get(&name))?;
            Some((name, merged))
        });
        merged.collect()
    }

    /// A folder that only one side has.
    fn one_sided(&mut self, base: Option<&Model>, folder: &Model, whose: Owner) -> Option<Model> {
        let base_folder = base.filter(|base| base.children().is_some());
        let untouched = base_folder.is_some_and(|base| base.mode() == folder.mode());
        let stays = match (untouched, whose) {
            (true, _) => false,
            // The folder itself: the policy decides whether it is kept.
            (false, Owner::Ours) => self.choose(true, false),
            (false, Owner::Theirs) => self.choose(false, true),
        };
        let children = match whose {
            Owner::Ours => self.children(base_folder, Some(folder), None),
            Owner::Theirs => self.children(base_folder, None, Some(folder)),
        };
        (stays || !children.is_empty()).then(|| Model::Folder { mode: folder.mode(), children })
    }

    fn leaves(
        &mut self,
        base: Option<&Model>,
        ours: Option<&Model>,
        theirs: Option<&Model>,
    ) -> Option<Model> {
        if let (
            Some(Model::File { content: base, mode: base_mode }),
            Some(Model::File { content: mine, mode: my_mode }),
            Some(Model::File { content: others, mode: their_mode }),
        ) = (base, ours, theirs)
        {
            let merged = |base, mine, others| match (mine == others || others == base, mine == base) {
                (true, _) => Some(mine),
                (_, true) => Some(others),
                _ => None,
            };
            let content = merged(u32::from(*base), u32::from(*mine), u32::from(*others));
            if let (Some(content), Some(mode)) = (content, merged(*base_mode, *my_mode, *their_mode)) {
                return Some(Model::File { content: u8::try_from(content).unwrap(), mode });
            }
        }
        self.choose(ours.cloned(), theirs.cloned())
    }
}

#[derive(Clone, Copy)]
enum Owner {
    Ours,
    Theirs,
}

// === Trees on disk ===

fn write(root: &Path, children: &Children) {
    for (name, model) in children {
        let path = root.join(format!("n{name}"));
        match model {
            Model::File { content, mode } => {
                fs::write(&path, format!("content {content}")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Model::Link { target } => symlink(format!("target {target}"), &path).unwrap(),
            Model::Folder { mode, children } => {
                fs::create_dir(&path).unwrap();
                write(&path, children);
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
    }
}

fn read(root: &Path) -> Children {
    let mut children = Children::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().strip_prefix('n').unwrap().parse().unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        let number = |text: &str| text.rsplit(' ').next().unwrap().parse().unwrap();
        let mode = found.permissions().mode() & 0o7777;
        let model = if found.is_dir() {
            Model::Folder { mode, children: read(&path) }
        } else if found.is_symlink() {
            Model::Link { target: number(fs::read_link(&path).unwrap().to_str().unwrap()) }
        } else {
            Model::File { content: number(&fs::read_to_string(&path).unwrap()), mode }
        };
        children.insert(name, model);
    }
    children
}

struct World {
    folder: tempfile::TempDir,
    trees: Trees,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            Root::open(&path).unwrap()
        };
        let trees = Trees { base: make("base"), ours: make("ours"), theirs: make("theirs") };
        Self { folder, trees }
    }

    fn of(base: &Children, ours: &Children, theirs: &Children) -> Self {
        let world = Self::new();
        for (name, children) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            write(&world.path(name), children);
        }
        world
    }

    fn path(&self, side: &str) -> std::path::PathBuf {
        self.folder.path().join(side)
    }

    /// The names that either side changed, and no others, as a pool reports them.
    fn names(&self) -> PlanInput {
        let trees = [&self.trees.base, &self.trees.ours, &self.trees.theirs];
        let all: BTreeSet<Vec<u8>> = trees.iter().flat_map(|tree| tree.walk(9999).unwrap()).collect();
        let changed = |side: &Root| {
            let differences = crate::diff::compare(&self.trees.base, side, &all).unwrap();
            differences.into_iter().map(|difference| (difference.path, ChangeSinceBase::Something)).collect()
        };
        self.trees.gather(&changed(&self.trees.ours), &changed(&self.trees.theirs)).unwrap()
    }

    fn plan(&self, policies: &Policies) -> Plan {
        plan(self.names(), &self.trees, &ChangedNamesOnly, policies).unwrap()
    }

    /// Merges into a copy of ours, and returns its content.
    fn merged(&self, plan: &Plan) -> Children {
        let live = self.folder.path().join("live");
        fs::create_dir(&live).unwrap();
        write(&live, &read(&self.path("ours")));
        let root = Root::open(&live).unwrap();
        let sources = Sources { ours: &self.trees.ours, theirs: &self.trees.theirs };
        apply::apply(&root, sources, &plan.actions, &mut |_| Ok(())).unwrap();
        let merged = read(&live);
        // And rolls it back, as after a crash during the merge.
        let all = root.walk(9999).unwrap().into_iter().chain(self.trees.ours.walk(9999).unwrap()).collect();
        let back = apply::mirror(&root, &self.trees.ours, &all).unwrap();
        let sources = Sources { ours: &self.trees.ours, theirs: &self.trees.ours };
        apply::apply(&root, sources, &back, &mut |_| Ok(())).unwrap();
        assert_eq!(read(&live), read(&self.path("ours")), "a merge can be taken back");
        merged
    }
}

fn policies(otherwise: Policy) -> Policies {
    Policies { rules: Vec::new(), otherwise }
}

// === Random trees ===

fn tree(depth: u32) -> impl Strategy<Value = Children> {
    let leaf = prop_oneof![
        3 => (0..4u8, prop_oneof![Just(0o644), Just(0o600)])
            .prop_map(|(content, mode)| Model::File { content, mode }),
        1 => (0..3u8).prop_map(|target| Model::Link { target }),
    ];
    let node = leaf.prop_recursive(depth, 24, 4, |inner| {
        (prop_oneof![3 => Just(0o755), 1 => Just(0o700)], prop::collection::btree_map(0..4u8, inner, 0..4))
            .prop_map(|(mode, children)| Model::Folder { mode, children })
    });
    prop::collection::btree_map(0..4u8, node, 0..4)
}

/// A few changes of a tree: entries replaced, removed or added, anywhere in it.
fn edited(base: Children) -> impl Strategy<Value = Children> {
    let edit = (prop::collection::vec(0..4u8, 1..4), prop::option::weighted(0.7, tree(1)));
    prop::collection::vec(edit, 0..4).prop_map(move |edits| {
        let mut tree = base.clone();
        for (path, with) in edits {
            change(&mut tree, &path, with.and_then(|with| with.into_values().next()));
        }
        tree
    })
}

fn change(children: &mut Children, path: &[u8], with: Option<Model>) {
    match (path, path.first().and_then(|name| children.get_mut(name))) {
        ([_, rest @ ..], Some(Model::Folder { children, .. })) if !rest.is_empty() => {
            change(children, rest, with);
        }
        ([name, ..], _) => {
            match with {
                Some(with) => drop(children.insert(*name, with)),
                None => drop(children.remove(name)),
            };
        }
        ([], _) => {}
    }
}

fn three() -> impl Strategy<Value = (Children, Children, Children)> {
    tree(3).prop_flat_map(|base| (Just(base.clone()), edited(base.clone()), edited(base)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// For any trees, a plan from only the changed names has the same result as a recursive merge of whole trees.
    #[test]
    fn a_plan_has_the_result_of_the_model((base, ours, theirs) in three()) {
        let wrap = |children: &Children| Model::Folder { mode: 0, children: children.clone() };
        let world = World::of(&base, &ours, &theirs);
        let (base, ours, theirs) = (wrap(&base), wrap(&ours), wrap(&theirs));
        let merge = |policy| {
            let mut reference = Reference { policy, conflicts: 0 };
            let merged = reference.merge(Some(&base), Some(&ours), Some(&theirs)).unwrap();
            (merged, reference.conflicts)
        };
        let (expected, conflicts) = merge(Policy::Fail);
        let found = world.plan(&policies(Policy::Fail));
        prop_assert_eq!(found.conflicts.is_empty(), conflicts == 0, "{:?}", found.conflicts);
        if conflicts == 0 {
            prop_assert_eq!(Some(&world.merged(&found)), expected.children());
            return Ok(());
        }
        for policy in [Policy::Ours, Policy::Theirs] {
            let (expected, _) = merge(policy);
            let found = world.plan(&policies(policy));
            prop_assert!(found.conflicts.is_empty());
            let merged = world.merged(&found);
            prop_assert_eq!(Some(&merged), expected.children(), "{:?} {:?}", policy, found.actions);
            fs::remove_dir_all(world.folder.path().join("live")).unwrap();
        }
    }
}

// === One by one ===

/// The conflicts as `path kind`, with one policy for all.
fn conflicts(world: &World, policy: Policy) -> Vec<String> {
    let found = world.plan(&policies(policy)).conflicts;
    found.iter().map(|found| format!("{} {:?}", String::from_utf8_lossy(&found.path), found.kind)).collect()
}

#[test]
fn each_kind_of_conflict_is_reported_with_all_three_sides() {
    let file = |content| Model::File { content, mode: 0o644 };
    let folder = |children: &[(u8, Model)]| Model::Folder {
        mode: 0o755,
        children: children.iter().cloned().collect(),
    };
    let world = World::of(
        &BTreeMap::from([
            (0, file(0)),
            (1, file(0)),
            (2, file(0)),
            (3, file(0)),
            (5, folder(&[(0, file(0))])),
            (6, file(0)),
        ]),
        &BTreeMap::from([
            (0, file(1)),
            (2, file(1)),
            (3, folder(&[])),
            (4, file(1)),
            (5, folder(&[(0, file(0)), (1, file(1))])),
            (6, Model::File { content: 0, mode: 0o600 }),
        ]),
        &BTreeMap::from([
            (0, file(2)),
            (1, file(2)),
            (3, file(2)),
            (4, file(2)),
            (5, file(2)),
            (6, Model::File { content: 0, mode: 0o640 }),
        ]),
    );
    let expected = [
        "/n0 BothChanged",
        "/n1 DeletedByOurs",
        "/n2 DeletedByTheirs",
        "/n3 Kind",
        "/n4 BothAdded",
        "/n5 Directory",
        "/n6 Attributes",
    ];
    assert_eq!(conflicts(&world, Policy::Fail), expected);
    assert_eq!(conflicts(&world, Policy::Ours), [""; 0]);
    let plan = world.plan(&policies(Policy::Fail));
    let first = &plan.conflicts[0];
    assert!(first.base.is_some() && first.ours.is_some() && first.theirs.is_some());
    // Text is merged by lines; a file that one side deleted and the other changed is kept.
    assert_eq!(conflicts(&world, Policy::Union), ["/n3 Kind", "/n5 Directory", "/n6 Attributes"]);
}

#[test]
fn policies_count_by_path_and_the_first_that_matches() {
    let file = |content| Model::File { content, mode: 0o644 };
    let world = World::of(
        &BTreeMap::from([(0, file(0)), (1, file(0)), (2, file(0))]),
        &BTreeMap::from([(0, file(1)), (1, file(1)), (2, file(1))]),
        &BTreeMap::from([(0, file(2)), (1, file(2)), (2, file(2))]),
    );
    let rules = [("n0", Policy::Theirs), ("n[01]", Policy::Ours)];
    let rules = rules.map(|(glob, policy)| (glob.parse().unwrap(), policy)).to_vec();
    let plan = world.plan(&Policies { rules: rules.clone(), otherwise: Policy::Fail });
    assert_eq!(plan.conflicts.iter().map(|conflict| &*conflict.path).collect::<Vec<_>>(), [b"/n2"]);
    let plan = world.plan(&Policies { rules, otherwise: Policy::Theirs });
    let merged = world.merged(&plan);
    assert_eq!(merged, BTreeMap::from([(0, file(2)), (1, file(1)), (2, file(2))]));
}

#[test]
fn lines_of_both_sides_are_merged_where_the_policy_says_text() {
    let world = World::new();
    let lines =
        |from: &str, to: &str| (1..20).map(|n| format!("{n}\n")).collect::<String>().replace(from, to);
    fs::write(world.path("base").join("f"), lines("", "")).unwrap();
    fs::write(world.path("ours").join("f"), lines("2\n3\n", "two\n3\n")).unwrap();
    fs::write(world.path("theirs").join("f"), lines("17\n", "seventeen\n")).unwrap();
    fs::write(world.path("base").join("b"), b"\0base").unwrap();
    fs::write(world.path("ours").join("b"), b"\0ours").unwrap();
    fs::write(world.path("theirs").join("b"), b"\0thei").unwrap();
    assert_eq!(conflicts(&world, Policy::Fail), ["/b BothChanged", "/f BothChanged"]);
    assert_eq!(conflicts(&world, Policy::Text), ["/b BothChanged"], "what is no text has no lines");
    let plan = world.plan(&policies(Policy::Text));
    assert_eq!(plan.merged, [b"/f".to_vec()]);
    let [Action::Put { content: Content::Merged { content }, .. }] = &plan.actions[..] else {
        panic!("{:?}", plan.actions)
    };
    let expected = lines("2\n3\n", "two\n3\n").replace("17\n", "seventeen\n");
    assert_eq!(String::from_utf8_lossy(content), expected);
}

#[test]
fn a_file_that_one_side_moved_and_the_other_changed_is_changed_at_its_new_path() {
    let world = World::new();
    let [base, ours, theirs] = ["base", "ours", "theirs"].map(|side| world.path(side));
    for side in [&base, &ours, &theirs] {
        for file in ["a", "b"] {
            fs::write(side.join(file), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
        }
    }
    // As in snapshots: one file with the same inode number in all three.
    let mut names = {
        fs::rename(theirs.join("a"), theirs.join("a-moved")).unwrap();
        fs::write(ours.join("a"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
        fs::rename(ours.join("b"), ours.join("b-moved")).unwrap();
        fs::write(theirs.join("b"), "1\n2\n3\n4\n5\n6\n7\n8\nnine\n").unwrap();
        world.names()
    };
    for (path, three) in &mut names.names {
        let inode = if path.starts_with(b"/a") { 1 } else { 2 };
        for at in [&mut three.base, &mut three.ours, &mut three.theirs].into_iter().flatten() {
            at.node.identity = Some(crate::Identity { inode, born: (0, 0), links: 1 });
        }
    }
    let plan = plan(names, &world.trees, &ChangedNamesOnly, &policies(Policy::Fail)).unwrap();
    assert_eq!(plan.conflicts, []);
    assert_eq!(plan.moved.len(), 2);
    let root = Root::open(&ours).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for file in ["a", "b-moved"] {
        fs::copy(ours.join(file), copy.path().join(file)).unwrap();
    }
    let live = Root::open(copy.path()).unwrap();
    let sources = Sources { ours: &root, theirs: &world.trees.theirs };
    apply::apply(&live, sources, &plan.actions, &mut |_| Ok(())).unwrap();
    let left: BTreeSet<_> = live.walk(9).unwrap().into_iter().collect();
    assert_eq!(left, BTreeSet::from([b"/a-moved".to_vec(), b"/b-moved".to_vec()]));
    assert!(fs::read_to_string(copy.path().join("a-moved")).unwrap().starts_with("one\n"));
    assert!(fs::read_to_string(copy.path().join("b-moved")).unwrap().ends_with("nine\n"));
}

#[test]
fn hard_links_stay_hard_links() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    for side in ["base", "ours", "theirs"] {
        fs::write(world.path(side).join("kept"), "kept").unwrap();
    }
    let theirs = world.path("theirs");
    fs::write(theirs.join("x"), "new").unwrap();
    fs::hard_link(theirs.join("x"), theirs.join("y")).unwrap();
    fs::hard_link(theirs.join("kept"), theirs.join("z")).unwrap();
    struct KeptNames;
    impl OtherNames for KeptNames {
        fn names_of(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
            Ok(if path == b"/z" { vec![b"/kept".to_vec(), b"/z".to_vec()] } else { Vec::new() })
        }
    }
    let plan = plan(world.names(), &world.trees, &KeptNames, &policies(Policy::Fail)).unwrap();
    let ours = world.path("ours");
    let live = Root::open(&ours).unwrap();
    let sources = Sources { ours: &world.trees.ours, theirs: &world.trees.theirs };
    apply::apply(&live, sources, &plan.actions, &mut |_| Ok(())).unwrap();
    let inode = |name: &str| fs::metadata(ours.join(name)).unwrap().ino();
    assert_eq!(inode("x"), inode("y"));
    assert_eq!(inode("kept"), inode("z"));
    assert_ne!(inode("x"), inode("z"));
}

#[test]
fn a_file_that_only_theirs_wrote_to_is_taken_unchanged() {
    let file = |content| Model::File { content, mode: 0o644 };
    let tree = |content| Children::from([(1, file(content)), (2, file(content))]);
    let world = World::of(&tree(1), &tree(1), &tree(2));
    let written = |paths: &[&str]| -> ChangedPaths {
        paths.iter().map(|path| (path.as_bytes().to_vec(), ChangeSinceBase::Written)).collect()
    };
    // Ours has changed one of them too, so it is compared.
    let gathered = world.trees.gather(&written(&["/n2"]), &written(&["/n1", "/n2"])).unwrap();
    assert_eq!(gathered.overwritten.iter().map(|(path, _)| &path[..]).collect::<Vec<_>>(), [b"/n1"]);
    assert_eq!(gathered.names.keys().map(|path| &path[..]).collect::<Vec<_>>(), [b"/n2"]);
    let plan = plan(gathered, &world.trees, &ChangedNamesOnly, &policies(Policy::Fail)).unwrap();
    assert!(plan.conflicts.is_empty());
    assert_eq!(world.merged(&plan), tree(2));
}

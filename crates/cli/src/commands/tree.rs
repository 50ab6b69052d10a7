//! `burrow tree` and `burrow snapshot tree`: the lineage of sandboxes and snapshots.
//!
//! The daemon returns nodes, parents first. When a view omits a node, its children move to its parent, so that the
//! lineage stays connected. A deleted sandbox whose snapshots still exist gets its own line.

use std::collections::BTreeMap;

use burrow_api::{SandboxState, SnapshotKind, Tree, TreeNode, TreeNodeKind};

use super::ls::short;
use crate::commands::prelude::*;
use crate::print::forest::{self, Cell, Item, Style};
use crate::print::paint::{self, Colour};

/// Show the lineage of sandboxes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow tree
  burrow tree web --snapshots                  a sandbox, its snapshots and its descendants")]
pub(crate) struct TreeArgs {
    /// Only this sandbox and its descendants
    sandbox: Option<String>,
    /// Include snapshots
    #[arg(short = 's', long)]
    snapshots: bool,
    #[command(flatten)]
    format: Format,
}

/// Show the lineage of snapshots, below their sandboxes
///
/// Each snapshot follows the one above it. Snapshots that a restore left behind, and sandboxes created from a snapshot,
/// are indented below it.
#[derive(Debug, Args)]
pub(crate) struct SnapshotTreeArgs {
    /// Only snapshots of this sandbox and its descendants
    sandbox: Option<String>,
    /// Include snapshots that forks are based on
    #[arg(short = 'a', long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

/// The nodes that are shown besides sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Sandboxes,
    Snapshots,
    /// With the snapshots that forks are based on.
    All,
}

pub(crate) async fn run(ctx: &Context, args: TreeArgs) -> Result<(), Stop> {
    let view = if args.snapshots { View::Snapshots } else { View::Sandboxes };
    show(&ctx.client()?, args.sandbox.as_deref(), view, args.format).await
}

pub(crate) async fn snapshots(ctx: &Context, args: SnapshotTreeArgs) -> Result<(), Stop> {
    let view = if args.all { View::All } else { View::Snapshots };
    show(&ctx.client()?, args.sandbox.as_deref(), view, args.format).await
}

async fn show(client: &Client, sandbox: Option<&str>, view: View, format: Format) -> Result<(), Stop> {
    let tree = client.tree().await.or_fail("could not read the lineage")?;
    let mut nodes = tree.nodes;
    if let Some(sandbox) = sandbox {
        nodes = of_sandbox(&nodes, sandbox);
        if nodes.is_empty() {
            return fail(
                format!("could not find a sandbox `{sandbox}`, or snapshots of it"),
                "`burrow tree` shows all of them",
            );
        }
    }
    if format.json {
        return print::json::pretty(&Tree { nodes });
    }
    let style = Style { utf8: paint::is_utf8(), colours: paint::colours_on_stdout() };
    print::data(&forest::draw(&items(&nodes, view, quantity::now_ms()), style))
}

/// The parent of a node, if the daemon's answer is valid.
fn parent(nodes: &[TreeNode], place: usize) -> Option<usize> {
    nodes[place].parent.filter(|parent| *parent < place)
}

/// The nodes of a sandbox, which may be deleted: itself, its snapshots, and all descendants.
fn of_sandbox(nodes: &[TreeNode], sandbox: &str) -> Vec<TreeNode> {
    let named = |node: &TreeNode| {
        let (id, name) = match node.kind {
            TreeNodeKind::Sandbox => (Some(&node.id), &node.name),
            TreeNodeKind::Snapshot => (node.sandbox_id.as_ref(), &node.sandbox_name),
        };
        name.as_deref() == Some(sandbox) || id.is_some_and(|id| id.starts_with(sandbox))
    };
    let mut places = vec![None; nodes.len()];
    let mut kept = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let above = parent(nodes, place).and_then(|parent| places[parent]);
        if above.is_some() || named(node) {
            places[place] = Some(kept.len());
            kept.push(TreeNode { parent: above, ..node.clone() });
        }
    }
    kept
}

/// One line of a view.
#[derive(Debug)]
struct Entry<'a> {
    /// `None`: a deleted sandbox.
    node: Option<&'a TreeNode>,
    parent: Option<usize>,
    cells: Vec<Cell>,
}

fn items(nodes: &[TreeNode], view: View, now_ms: u64) -> Vec<Item> {
    let mut entries = with_deleted_sandboxes(nodes, now_ms);
    collapse(&mut entries, |entry| match entry.node {
        Some(node) => is_shown(node, view),
        None => true,
    });
    if view != View::Sandboxes {
        flatten_successors(&mut entries);
    }
    // A deleted sandbox without children is not shown.
    let parents: Vec<_> = entries.iter().filter_map(|entry| entry.parent).collect();
    let mut place = 0;
    collapse(&mut entries, |entry| {
        place += 1;
        entry.node.is_some() || parents.contains(&(place - 1))
    });
    entries.into_iter().map(|entry| Item { parent: entry.parent, cells: entry.cells }).collect()
}

fn is_shown(node: &TreeNode, view: View) -> bool {
    match (node.kind, view) {
        (TreeNodeKind::Sandbox, _) | (TreeNodeKind::Snapshot, View::All) => true,
        (TreeNodeKind::Snapshot, View::Snapshots) => node.snapshot_kind != Some(SnapshotKind::Fork),
        (TreeNodeKind::Snapshot, View::Sandboxes) => false,
    }
}

/// The nodes, preceded by one entry for each deleted sandbox that still has snapshots.
fn with_deleted_sandboxes(nodes: &[TreeNode], now_ms: u64) -> Vec<Entry<'_>> {
    let living: BTreeMap<&str, usize> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.kind == TreeNodeKind::Sandbox)
        .map(|(place, node)| (node.id.as_str(), place))
        .collect();
    let mut deleted: BTreeMap<&str, usize> = BTreeMap::new();
    let mut entries = Vec::new();
    let orphans = nodes.iter().enumerate().filter(|(place, _)| parent(nodes, *place).is_none());
    for (_, node) in orphans.filter(|(_, node)| node.kind == TreeNodeKind::Snapshot) {
        let Some(id) = node.sandbox_id.as_deref().filter(|id| !living.contains_key(id)) else { continue };
        deleted.entry(id).or_insert_with(|| {
            let cells = cells(node.sandbox_name.as_deref(), id, Cell::coloured("deleted", Colour::Faint));
            entries.push(Entry { node: None, parent: None, cells });
            entries.len() - 1
        });
    }
    let before = entries.len();
    for (place, node) in nodes.iter().enumerate() {
        let own = parent(nodes, place).map(|parent| before + parent);
        // A snapshot whose predecessor was deleted still belongs to its sandbox.
        let adopted = || {
            let id = node.sandbox_id.as_deref().filter(|_| node.kind == TreeNodeKind::Snapshot)?;
            let living = living.get(id).filter(|sandbox| **sandbox < place).map(|sandbox| before + sandbox);
            deleted.get(id).copied().or(living)
        };
        entries.push(Entry {
            node: Some(node),
            parent: own.or_else(adopted),
            cells: node_cells(nodes, place, now_ms),
        });
    }
    entries
}

/// Removes entries; their children move to their parents.
fn collapse(entries: &mut Vec<Entry<'_>>, mut keep: impl FnMut(&Entry<'_>) -> bool) {
    let mut places = Vec::with_capacity(entries.len());
    let mut kept = Vec::with_capacity(entries.len());
    for mut entry in entries.drain(..) {
        entry.parent = entry.parent.and_then(|parent: usize| places[parent]);
        if keep(&entry) {
            places.push(Some(kept.len()));
            kept.push(entry);
        } else {
            places.push(entry.parent);
        }
    }
    *entries = kept;
}

/// Moves each snapshot to the level of its predecessor, so that the snapshots of a sandbox are a list, not a staircase.
/// Only the newest successor continues the list; snapshots that a restore left behind stay below.
fn flatten_successors(entries: &mut [Entry<'_>]) {
    let follows = |entries: &[Entry<'_>], place: usize| {
        let above = entries[place].parent?;
        let (own, other) = (entries[place].node?, entries[above].node?);
        let snapshots = own.kind == TreeNodeKind::Snapshot && other.kind == TreeNodeKind::Snapshot;
        (snapshots && own.sandbox_id == other.sandbox_id).then_some(above)
    };
    let mut successors = BTreeMap::new();
    for place in 0..entries.len() {
        if let Some(above) = follows(entries, place) {
            successors.insert(above, place);
        }
    }
    // Parents come first, so that each predecessor has moved already.
    let mut successors: Vec<_> =
        successors.into_iter().map(|(above, successor)| (successor, above)).collect();
    successors.sort_unstable();
    for (successor, above) in successors {
        entries[successor].parent = entries[above].parent;
    }
}

fn node_cells(nodes: &[TreeNode], place: usize, now_ms: u64) -> Vec<Cell> {
    let node = &nodes[place];
    let what = match node.kind {
        TreeNodeKind::Sandbox => node.state.map_or_else(|| Cell::plain(""), state),
        TreeNodeKind::Snapshot => {
            Cell::coloured(node.snapshot_kind.map_or("", SnapshotKind::as_str), Colour::Faint)
        }
    };
    let mut cells = cells(node.name.as_deref(), &node.id, what);
    cells.push(Cell::plain(quantity::age(node.created_ms, now_ms)));
    cells.push(Cell::plain(match node.kind {
        TreeNodeKind::Sandbox => {
            parent(nodes, place).map(|parent| origin(&nodes[parent])).unwrap_or_default()
        }
        TreeNodeKind::Snapshot => content(node).to_owned(),
    }));
    cells
}

fn cells(name: Option<&str>, id: &str, what: Cell) -> Vec<Cell> {
    match name {
        Some(name) => vec![Cell::plain(name), Cell::plain(short(id)), what],
        None => vec![Cell::plain(short(id)), Cell::plain(""), what],
    }
}

/// How a sandbox came from a snapshot.
fn origin(snapshot: &TreeNode) -> String {
    if snapshot.snapshot_kind == Some(SnapshotKind::Fork) {
        return "fork".to_owned();
    }
    format!("from {}", snapshot.name.clone().unwrap_or_else(|| short(&snapshot.id)))
}

fn content(snapshot: &TreeNode) -> &'static str {
    match snapshot.processes {
        Some(true) => "files, processes",
        Some(false) => "files",
        None => "",
    }
}

fn state(state: SandboxState) -> Cell {
    let colour = match state {
        SandboxState::Running => Some(Colour::Good),
        SandboxState::Paused | SandboxState::Hibernated => Some(Colour::Asleep),
        SandboxState::Stopped => Some(Colour::Faint),
        SandboxState::Failed => Some(Colour::Bad),
        SandboxState::Creating
        | SandboxState::Starting
        | SandboxState::Hibernating
        | SandboxState::Waking
        | SandboxState::Restoring
        | SandboxState::Stopping
        | SandboxState::Deleting => None,
    };
    Cell { text: state.as_str().to_owned(), colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str, name: &str, parent: Option<usize>, state: SandboxState) -> TreeNode {
        TreeNode {
            kind: TreeNodeKind::Sandbox,
            id: id.to_owned(),
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            parent,
            created_ms: 0,
            state: Some(state),
            snapshot_kind: None,
            processes: None,
            sandbox_id: None,
            sandbox_name: None,
        }
    }

    fn snapshot(id: &str, of: (&str, &str), parent: Option<usize>, kind: SnapshotKind) -> TreeNode {
        TreeNode {
            kind: TreeNodeKind::Snapshot,
            id: id.to_owned(),
            name: None,
            parent,
            created_ms: 0,
            state: None,
            snapshot_kind: Some(kind),
            processes: Some(kind != SnapshotKind::Policy),
            sandbox_id: Some(of.0.to_owned()),
            sandbox_name: Some(of.1.to_owned()),
        }
    }

    const WEB: (&str, &str) = ("sbxweb", "web");

    /// web: s1 → s2, restored to s1, → s3; forked into kid; copy created from s1; old is deleted except for a snapshot and its copy.
    fn family() -> Vec<TreeNode> {
        vec![
            sandbox("sbxweb", "web", None, SandboxState::Running),
            snapshot("snp1", WEB, Some(0), SnapshotKind::Manual),
            snapshot("snp2", WEB, Some(1), SnapshotKind::BeforeRestore),
            snapshot("snp3", WEB, Some(1), SnapshotKind::Policy),
            snapshot("snpfork", WEB, Some(3), SnapshotKind::Fork),
            sandbox("sbxkid", "kid", Some(4), SandboxState::Hibernated),
            sandbox("sbxcopy", "", Some(1), SandboxState::Stopped),
            snapshot("snpold", ("sbxold", "old"), None, SnapshotKind::Manual),
            sandbox("sbxnew", "new", Some(7), SandboxState::Failed),
        ]
    }

    #[track_caller]
    fn check(nodes: &[TreeNode], view: View, expected: &str) {
        let drawn = forest::draw(&items(nodes, view, 60_000), Style { utf8: true, colours: false });
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    #[test]
    fn sandboxes_are_below_their_ancestors_when_snapshots_are_omitted() {
        check(
            &family(),
            View::Sandboxes,
            "old         sbxold  deleted\n\
             └─ new      sbxnew  failed      1m  from snpold\n\
             web         sbxweb  running     1m\n\
             ├─ kid      sbxkid  hibernated  1m  fork\n\
             └─ sbxcopy          stopped     1m  from snp1\n",
        );
    }

    #[test]
    fn successive_snapshots_are_a_list_and_those_left_behind_are_below() {
        check(
            &family(),
            View::Snapshots,
            "old            sbxold  deleted\n\
             └─ snpold              manual          1m  files, processes\n   \
                └─ new      sbxnew  failed          1m  from snpold\n\
             web            sbxweb  running         1m\n\
             ├─ snp1                manual          1m  files, processes\n\
             │  ├─ snp2             before-restore  1m  files, processes\n\
             │  └─ sbxcopy          stopped         1m  from snp1\n\
             └─ snp3                policy          1m  files\n   \
                └─ kid      sbxkid  hibernated      1m  fork\n",
        );
    }

    #[test]
    fn all_shows_the_snapshots_that_forks_are_based_on() {
        let nodes = of_sandbox(&family(), "web");
        check(
            &nodes,
            View::All,
            "web            sbxweb  running         1m\n\
             ├─ snp1                manual          1m  files, processes\n\
             │  ├─ snp2             before-restore  1m  files, processes\n\
             │  └─ sbxcopy          stopped         1m  from snp1\n\
             ├─ snp3                policy          1m  files\n\
             └─ snpfork             fork            1m  files, processes\n   \
                └─ kid      sbxkid  hibernated      1m  fork\n",
        );
    }

    #[test]
    fn a_part_of_the_tree_is_found_by_name_or_id_also_of_a_deleted_sandbox() {
        let ids =
            |sandbox| of_sandbox(&family(), sandbox).into_iter().map(|node| node.id).collect::<Vec<_>>();
        assert_eq!(ids("old"), ["snpold", "sbxnew"]);
        assert_eq!(ids("sbxk"), ["sbxkid"]);
        assert_eq!(ids("sbxweb").len(), 7);
        assert!(ids("missing").is_empty());
    }

    #[test]
    fn a_snapshot_without_its_predecessor_still_belongs_to_its_sandbox() {
        let nodes = vec![
            sandbox("sbxweb", "web", None, SandboxState::Running),
            snapshot("snp9", WEB, None, SnapshotKind::Manual),
        ];
        check(
            &nodes,
            View::Snapshots,
            "web      sbxweb  running  1m\n\
             └─ snp9          manual   1m  files, processes\n",
        );
    }

    #[test]
    fn invalid_parents_are_ignored() {
        let mut nodes = family();
        nodes[1].parent = Some(5);
        nodes[5].parent = Some(99);
        assert_eq!(items(&nodes, View::All, 0).len(), nodes.len() + 1, "and the deleted sandbox");
    }
}

//! Any sequence of entries, with few names and links to any place, stays within its root.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    File(String),
    Directory(String),
    Symlink(String, String),
    HardLink(String, String),
    Whiteout(String),
    Opaque(String),
    Device(String),
    NextLayer,
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "outside", "."]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn target() -> impl Strategy<Value = String> {
    let parts = vec!["a", "b", "..", "..", ".", "outside", "root", "victim"];
    (any::<bool>(), prop::collection::vec(prop::sample::select(parts), 1..5))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => path().prop_map(Step::File),
        3 => path().prop_map(Step::Directory),
        4 => (path(), target()).prop_map(|(path, target)| Step::Symlink(path, target)),
        2 => (path(), path()).prop_map(|(path, target)| Step::HardLink(path, target)),
        1 => path().prop_map(Step::Whiteout),
        1 => path().prop_map(Step::Opaque),
        1 => path().prop_map(Step::Device),
        2 => Just(Step::NextLayer),
    ]
}

fn layers(steps: &[Step]) -> Vec<Vec<u8>> {
    let mut layers = Vec::new();
    let mut tar = Tar::default();
    for step in steps {
        tar = match step {
            Step::File(path) => tar.file(path, "content"),
            Step::Directory(path) => tar.directory(path),
            Step::Symlink(path, target) => tar.symlink(path, target),
            Step::HardLink(path, target) => tar.hard_link(path, target),
            Step::Whiteout(path) => {
                tar.file(&format!("x/.wh.{}", path.replace('/', "")).replace("x/", "a/"), "")
            }
            Step::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), ""),
            Step::Device(path) => tar.raw(&Raw::new(EntryType::Block, path)),
            Step::NextLayer => {
                layers.push(tar.end());
                Tar::default()
            }
        };
    }
    layers.push(tar.end());
    layers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_sequence_of_entries_leaves_its_root(steps in prop::collection::vec(step(), 1..25)) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("root")).unwrap();
        fs::create_dir_all(at("outside/a")).unwrap();
        fs::write(at("outside/victim"), "untouched").unwrap();
        fs::write(at("victim"), "untouched").unwrap();
        let outside = || {
            let mut tree = describe(folder.path());
            tree.retain(|path, _| !path.starts_with("root"));
            tree
        };
        let before = outside();
        for layer in layers(&steps) {
            // Many are refused and partly applied; none may write outside.
            let _ = apply(&at("root"), &layer);
        }
        prop_assert_eq!(before, outside());
        // No file inside is a hard link to a file outside.
        let names = describe(folder.path());
        for (path, described) in names {
            prop_assert!(!path.starts_with("root") || described.same_as.starts_with("root"));
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), flips in prop::collection::vec((0usize..4000, any::<u8>()), 0..6)) {
        let root = tempfile::tempdir().unwrap();
        let _ = apply(root.path(), &bytes);
        let mut tar = Tar::default().directory("d/").file("d/f", "content").symlink("d/l", "f").hard_link("d/h", "d/f").end();
        for (at, value) in flips {
            let length = tar.len();
            tar[at % length] = value;
        }
        let _ = apply(root.path(), &tar);
    }
}

//! Dumps on the real file system.

use burrow_model::DumpId;

use super::*;

/// How many pages of a file the page cache holds.
fn cached_pages(path: &Path) -> u64 {
    let said = run(command("fincore").args(["--noheadings", "--output", "PAGES"]).arg(path)).unwrap();
    said.trim().parse().unwrap()
}

#[tokio::test]
async fn an_evicted_dump_is_not_in_the_page_cache_and_opens_all_the_same() {
    let pool = TestPool::new();
    for (evict, cached) in [(false, true), (true, false)] {
        let id = DumpId::generate();
        let staged = pool.disks.stage_dump(&id).await.unwrap();
        // Not with `fill`, which syncs.
        fs::write(staged.join("pages-1.img"), vec![3; 9 * MIB as usize]).unwrap();
        fs::write(staged.join("core-1.img"), "core").unwrap();
        assert_eq!(pool.disks.seal_dump(&id, "", evict).await.unwrap(), 9 * MIB + 4);
        let sealed = pool.disks.root().join("dumps").join(id.as_str());
        // Sealing does not wait for the eviction, so the test does.
        pool.disks.inner.dumping.finish();
        assert_eq!(cached_pages(&sealed.join("pages-1.img")) > 0, cached);
        assert_eq!(pool.disks.open_dump(&id).await.unwrap().bytes, 9 * MIB + 4);
    }
    let dumps = fs::metadata(pool.disks.root().join("dumps")).unwrap();
    assert_eq!(dumps.mode() & 0o7777, 0o700, "only root gets there");
}

/// After one verification, a dump is not hashed again at each open; but any change is detected at the next open.
#[tokio::test]
async fn a_dump_verified_a_moment_ago_is_verified_again_once_anything_of_it_has_changed() {
    let pool = TestPool::new();
    let id = DumpId::generate();
    let staged = pool.disks.stage_dump(&id).await.unwrap();
    fs::write(staged.join("pages-1.img"), vec![3; 9 * MIB as usize]).unwrap();
    fs::write(staged.join("core-1.img"), "core").unwrap();
    pool.disks.seal_dump(&id, "", true).await.unwrap();
    let dump = pool.disks.open_dump(&id).await.unwrap();
    for name in ["pages-1.img", "core-1.img"] {
        use std::os::unix::fs::FileExt;
        let file = File::options().read(true).write(true).open(dump.path.join(name)).unwrap();
        let (times, mut byte) = (file.metadata().unwrap().modified().unwrap(), [0]);
        file.read_exact_at(&mut byte, 3).unwrap();
        for flipped in [true, false, true, false] {
            file.write_all_at(&[byte[0] ^ u8::from(flipped)], 3).unwrap();
            // A change is detected even if the modification time is set back.
            file.set_modified(times).unwrap();
            let opened = pool.disks.open_dump(&id).await;
            match flipped {
                true => {
                    assert!(
                        matches!(&opened, Err(DiskError::Damaged { file, .. }) if file == name),
                        "{opened:?}"
                    );
                }
                false => assert_eq!(opened.unwrap(), dump),
            }
        }
    }
}

/// The thread that writes a dump early ends with the dump, whether it is sealed or removed.
#[tokio::test]
async fn a_sealed_or_removed_dump_is_not_written_early() {
    let pool = TestPool::new();
    let (sealed, removed) = (DumpId::generate(), DumpId::generate());
    for id in [&sealed, &removed] {
        let staged = pool.disks.stage_dump(id).await.unwrap();
        fill(&staged.join("pages-1.img"), 9).unwrap();
        // Staged again, it is watched again.
        let staged = pool.disks.stage_dump(id).await.unwrap();
        fs::write(staged.join("pages-1.img"), vec![1; 9 * MIB as usize]).unwrap();
    }
    let watched = || pool.disks.inner.dumping.watching();
    assert_eq!(watched(), 2);
    pool.disks.seal_dump(&sealed, "", false).await.unwrap();
    assert_eq!(watched(), 1);
    pool.disks.remove_dump(&removed).await.unwrap();
    assert_eq!(watched(), 0);
}

#[tokio::test]
async fn staged_dumps_are_found_after_a_crash_and_their_space_is_freed() {
    let mut pool = TestPool::new();
    let (staged_id, sealed_id) = (DumpId::generate(), DumpId::generate());
    let staged = pool.disks.stage_dump(&staged_id).await.unwrap();
    fill(&staged.join("pages-1.img"), 32).unwrap();
    let other = pool.disks.stage_dump(&sealed_id).await.unwrap();
    fill(&other.join("pages-1.img"), 32).unwrap();
    pool.disks.seal_dump(&sealed_id, "", false).await.unwrap();
    pool.reopen();
    let mut dumps = vec![staged_id.clone(), sealed_id.clone()];
    dumps.sort_unstable();
    assert_eq!(pool.disks.inventory().await.unwrap().dumps, dumps);
    let before = pool.disks.space().await.unwrap().free_bytes;
    for id in &dumps {
        pool.disks.remove_dump(id).await.unwrap();
    }
    let inner = &pool.disks.inner;
    eventually("the space is free again", || {
        ioctl::commit(&inner.pool.directory).unwrap();
        inner.pool.space().unwrap().free_bytes >= before + 60 * MIB
    });
}

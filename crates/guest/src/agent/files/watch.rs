//! Reports changes below a path to the host.
//!
//! inotify watches single directories; the agent implements recursion: a new directory is watched and then searched,
//! since files may have been created in it before the watch existed. Nothing is queued here: events wait in the
//! kernel until the host has received the earlier ones, and if there are too many the kernel reports an overflow.
//!
//! Temporary names of running uploads (`upload`) are not reported: for a file that is replaced, the host receives one
//! write event. Several changes of a file within a moment are reported once.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::io::Interest;

use super::upload::is_hidden;
use super::{check_path, on_disk};
use crate::agent::failure::{fail, refused};
use crate::agent::watched_fd::{WatchedFd, watch as watch_fd};
use crate::agent::wire::{Inbox, Outbox, WireError};
use crate::protocol::{ErrorCode, RequestError, WatchEvent, WatchEventKind, WatchFiles};

/// Directories watched for one host: the kernel's default for a whole user is not much more.
const WATCHES_MAX: usize = 8192;

/// The longest time between both halves of a rename. The kernel writes both together.
const RENAME_WAIT: Duration = Duration::from_millis(10);

/// How long events are collected before they are sent, so that a file written in several steps is one event.
const GATHER: Duration = Duration::from_millis(10);

/// Reads in one collection, so that a program that writes continuously does not delay events.
const GATHERED_READS_MAX: usize = 16;

/// Bytes of events read at a time.
const BUFFER_BYTES: usize = 16 * 1024;

/// Events held between two reads. If a larger tree is moved in, the host must list it itself.
const EVENTS_MAX: usize = 16_384;

/// Carries out [`crate::protocol::Request::Watch`].
pub(in crate::agent) async fn watch(
    request: WatchFiles,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let watcher = match on_disk(move || Watcher::start(&request)).await {
        Ok(watcher) => watcher,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    let clone = watcher.inotify.try_clone()?;
    let ready = watch_fd(clone, Interest::READABLE)?;
    outbox.reply(Ok(())).await?;
    tokio::select! {
        result = report_changes(watcher, &ready, outbox) => result,
        // Of the messages that the host may send now, only its hang-up has a meaning.
        received = async { while inbox.next().await?.is_some() {} Ok(()) } => received,
    }
}

async fn report_changes(
    mut watcher: Watcher,
    ready: &WatchedFd,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    loop {
        let waited = match watcher.half_rename {
            None => ready.readable().await.map(Some),
            Some(_) => match tokio::time::timeout(RENAME_WAIT, ready.readable()).await {
                Ok(guard) => guard.map(Some),
                Err(_) => Ok(None),
            },
        }?;
        match waited {
            None => watcher.give_up_half_rename(),
            Some(mut guard) => {
                if !watcher.read()? {
                    guard.clear_ready();
                }
            }
        }
        watcher = watcher.follow_new_directories().await?;
        if watcher.events.is_empty() {
            continue;
        }
        tokio::time::sleep(GATHER).await;
        for _ in 0..GATHERED_READS_MAX {
            if !watcher.read()? {
                break;
            }
        }
        watcher = watcher.follow_new_directories().await?;
        for event in merged(watcher.events.drain(..)) {
            outbox.push_control(&event)?;
        }
        outbox.flush().await?;
    }
}

/// Removes repeated events: several writes of a file become one, and changes of its owner and mode become one.
fn merged(events: impl Iterator<Item = WatchEvent>) -> Vec<WatchEvent> {
    let (mut created, mut written, mut changed) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut result = Vec::new();
    for event in events {
        let is_new = match event.kind {
            WatchEventKind::Created => {
                written.remove(&event.path);
                changed.remove(&event.path);
                created.insert(event.path.clone())
            }
            WatchEventKind::Written => written.insert(event.path.clone()),
            WatchEventKind::Attributes => changed.insert(event.path.clone()),
            WatchEventKind::Removed | WatchEventKind::Renamed => {
                for path in [Some(&event.path), event.from.as_ref()].into_iter().flatten() {
                    created.remove(path);
                    written.remove(path);
                    changed.remove(path);
                }
                true
            }
            WatchEventKind::Overflow => true,
        };
        if is_new {
            result.push(event);
        }
    }
    result
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    Silently,
    TellWhatIsThere,
}

struct HalfRename {
    cookie: u32,
    from: PathBuf,
    directory: bool,
}

impl HalfRename {
    fn is_hidden(&self) -> bool {
        self.from.file_name().is_some_and(is_hidden)
    }
}

struct Watcher {
    inotify: Arc<OwnedFd>,
    root: PathBuf,
    recursive: bool,
    paths: HashMap<i32, PathBuf>,
    events: Vec<WatchEvent>,
    half_rename: Option<HalfRename>,
    new_directories: Vec<PathBuf>,
    /// Paths that a search has reported, because the kernel may report them again.
    searched: HashSet<PathBuf>,
}

impl Watcher {
    fn start(request: &WatchFiles) -> Result<Self, RequestError> {
        let path = check_path(&request.path)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| watch_refused(path, errno))?;
        let root: PathBuf = Path::new(path).components().collect();
        let mut watcher = Self {
            inotify: Arc::new(inotify),
            root: root.clone(),
            recursive: request.recursive,
            paths: HashMap::new(),
            events: Vec::new(),
            half_rename: None,
            new_directories: Vec::new(),
            searched: HashSet::new(),
        };
        watcher.add(&root, WatchFlags::empty()).map_err(|errno| watch_refused(path, errno))?;
        if root.is_dir() && request.recursive {
            watcher.add_tree(&root, Search::Silently).map_err(|errno| watch_refused(path, errno))?;
        }
        Ok(watcher)
    }

    fn add(&mut self, path: &Path, extra: WatchFlags) -> Result<(), Errno> {
        if self.paths.len() >= WATCHES_MAX {
            return Err(Errno::NOSPC);
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | extra;
        let watch = inotify::add_watch(&self.inotify, path, flags)?;
        self.paths.insert(watch, path.to_owned());
        Ok(())
    }

    /// Watches a directory and all directories below it.
    fn add_tree(&mut self, path: &Path, search: Search) -> Result<(), Errno> {
        let mut waiting = vec![path.to_owned()];
        while let Some(directory) = waiting.pop() {
            match self.add(&directory, WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW) {
                Ok(()) => {}
                // The root may be a link to a directory, and is watched already.
                Err(Errno::NOTDIR | Errno::LOOP) if directory == self.root => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open(&directory, flags, Mode::empty()) else { continue };
            for entry in Dir::read_from(&fd)?.flatten() {
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let path = directory.join(os_str(name));
                if search == Search::TellWhatIsThere && !is_hidden(os_str(name)) {
                    self.push(WatchEventKind::Created, path.clone(), None);
                    self.searched.insert(path.clone());
                }
                if entry.file_type() == FileType::Directory {
                    waiting.push(path);
                }
            }
        }
        Ok(())
    }

    /// Reads the kernel's events. Returns false if there were none.
    fn read(&mut self) -> Result<bool, WireError> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let inotify = Arc::clone(&self.inotify);
        let mut reader = inotify::Reader::new(&*inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    self.note(event.wd(), event.events(), event.cookie(), event.file_name().map(os_str))
                }
                Err(Errno::AGAIN) => {
                    // All events from before and during a search have been read.
                    self.searched.clear();
                    return Ok(false);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
            if reader.is_buffer_empty() {
                return Ok(true);
            }
        }
    }

    /// Watches directories that were created since, and reports their content.
    async fn follow_new_directories(mut self) -> Result<Self, WireError> {
        while let Some(directory) = self.new_directories.pop() {
            // A directory that was removed, or is beyond the limit, is not watched; in the latter case the host must
            // list it.
            let added;
            (self, added) = tokio::task::spawn_blocking(move || {
                let added = self.add_tree(&directory, Search::TellWhatIsThere);
                (self, added)
            })
            .await
            .map_err(|_| WireError::HungUp)?;
            if added.is_err() {
                self.push(WatchEventKind::Overflow, self.root.clone(), None);
            }
        }
        Ok(self)
    }

    fn note(&mut self, watch: i32, flags: ReadFlags, cookie: u32, name: Option<&OsStr>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(WatchEventKind::Overflow, self.root.clone(), None);
            if self.recursive {
                // Directories may have been created without an event.
                self.new_directories.push(self.root.clone());
            }
            return;
        }
        let Some(directory) = self.paths.get(&watch) else { return };
        let path = match name {
            Some(name) => directory.join(name),
            None => directory.clone(),
        };
        if flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&watch);
            return;
        }
        let is_directory = flags.contains(ReadFlags::ISDIR);
        if flags.contains(ReadFlags::MOVED_TO) {
            return self.note_moved_to(path, cookie, is_directory);
        }
        self.give_up_half_rename();
        if name.is_some_and(|name| is_internal(name, &path)) && !flags.contains(ReadFlags::MOVED_FROM) {
            return;
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.half_rename = Some(HalfRename { cookie, from: path, directory: is_directory });
        } else if flags.contains(ReadFlags::CREATE) {
            if self.searched.remove(&path) {
                return;
            }
            self.push(WatchEventKind::Created, path.clone(), None);
            self.watch_if_directory(path, is_directory);
        } else if flags.contains(ReadFlags::MODIFY) {
            self.push(WatchEventKind::Written, path, None);
        } else if flags.contains(ReadFlags::DELETE)
            || (flags.contains(ReadFlags::DELETE_SELF) && path == self.root)
        {
            self.push(WatchEventKind::Removed, path, None);
        } else if flags.contains(ReadFlags::ATTRIB) && (name.is_some() || path == self.root) {
            self.push(WatchEventKind::Attributes, path, None);
        }
    }

    fn note_moved_to(&mut self, path: PathBuf, cookie: u32, directory: bool) {
        let hidden = path.file_name().is_some_and(is_hidden);
        match self.half_rename.take_if(|half| half.cookie == cookie) {
            // An upload has replaced the file.
            Some(half) if half.is_hidden() => {
                if !hidden {
                    self.push(WatchEventKind::Written, path, None);
                }
            }
            // The old file of a replacement: the new one follows.
            Some(_) if hidden => {}
            Some(half) => {
                if half.directory {
                    self.move_paths(&half.from, &path);
                }
                self.push(WatchEventKind::Renamed, path, Some(half.from));
            }
            None if hidden => self.give_up_half_rename(),
            None => {
                self.give_up_half_rename();
                self.push(WatchEventKind::Created, path.clone(), None);
                self.watch_if_directory(path, directory);
            }
        }
    }

    fn watch_if_directory(&mut self, path: PathBuf, directory: bool) {
        if directory && self.recursive {
            self.new_directories.push(path);
        }
    }

    /// The second half did not arrive: the file left the watched tree.
    fn give_up_half_rename(&mut self) {
        let Some(half) = self.half_rename.take() else { return };
        if half.directory {
            let gone: Vec<i32> = self.below(&half.from).map(|(watch, _)| watch).collect();
            for watch in gone {
                let _ = inotify::remove_watch(&self.inotify, watch);
                self.paths.remove(&watch);
            }
        }
        if !half.is_hidden() {
            self.push(WatchEventKind::Removed, half.from, None);
        }
    }

    fn move_paths(&mut self, from: &Path, to: &Path) {
        let moved: Vec<(i32, PathBuf)> =
            self.below(from).map(|(watch, rest)| (watch, to.join(rest).components().collect())).collect();
        self.paths.extend(moved);
    }

    fn below<'a>(&'a self, from: &'a Path) -> impl Iterator<Item = (i32, &'a Path)> {
        self.paths.iter().filter_map(move |(watch, path)| Some((*watch, path.strip_prefix(from).ok()?)))
    }

    /// Adds an event. A program that writes line by line causes one event for each read, not for each line.
    fn push(&mut self, kind: WatchEventKind, path: PathBuf, from: Option<PathBuf>) {
        let shown = |path: PathBuf| path.to_string_lossy().into_owned();
        let event = WatchEvent { kind, path: shown(path), from: from.map(shown) };
        if self.events.len() >= EVENTS_MAX {
            self.events.clear();
            let path = self.root.to_string_lossy().into_owned();
            self.events.push(WatchEvent { kind: WatchEventKind::Overflow, path, from: None });
        }
        if self.events.last() != Some(&event) {
            self.events.push(event);
        }
    }
}

/// Whether a name belongs to a running upload: a temporary name, or the `#INODE` by which the kernel reports an
/// unnamed file. A file that has such a name itself exists at the path.
fn is_internal(name: &OsStr, path: &Path) -> bool {
    let number = name.as_bytes().strip_prefix(b"#");
    let nameless = number.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit));
    is_hidden(name) || (nameless && rustix::fs::lstat(path).is_err())
}

fn os_str(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

fn watch_refused(path: &str, errno: Errno) -> RequestError {
    match errno {
        // inotify returns ENOSPC and EMFILE when the limit of watches is reached.
        Errno::NOSPC | Errno::MFILE => {
            fail(ErrorCode::TooMany, format_args!("too many directories to watch below `{path}`"))
        }
        _ => refused("watch", path, errno),
    }
}

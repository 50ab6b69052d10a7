//! Open files and directories of a client, by numbers.

use std::fs::{File, ReadDir};
use std::path::PathBuf;

/// Open at once: clients that copy trees need a few.
const HANDLES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) enum Handle {
    File { file: File, append: bool },
    Directory { entries: ReadDir, path: PathBuf },
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    open: Vec<Option<Handle>>,
    free: Vec<usize>,
}

impl Handles {
    /// `None` if there are too many.
    pub(super) fn insert(&mut self, handle: Handle) -> Option<[u8; 4]> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.open.len() < HANDLES_MAX => {
                self.open.push(None);
                self.open.len() - 1
            }
            None => return None,
        };
        self.open[at] = Some(handle);
        Some(u32::try_from(at).expect("handles are few").to_be_bytes())
    }

    pub(super) fn get(&mut self, name: &[u8]) -> Option<&mut Handle> {
        self.open.get_mut(place(name)?)?.as_mut()
    }

    pub(super) fn file(&mut self, name: &[u8]) -> Option<(&File, bool)> {
        match self.get(name)? {
            Handle::File { file, append } => Some((file, *append)),
            Handle::Directory { .. } => None,
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Handle> {
        let at = place(name)?;
        let handle = self.open.get_mut(at)?.take()?;
        self.free.push(at);
        Some(handle)
    }
}

fn place(name: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(name.try_into().ok()?) as usize)
}

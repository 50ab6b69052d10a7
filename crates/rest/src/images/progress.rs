//! Passes the progress of work on an image to the client that reads it.
//!
//! The work never waits for the client: if the client is slow or gone, it misses progress that newer progress replaces. The
//! states of a layer or step, and the end, are never lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_api::{BuildProgress, ItemState};
use burrow_engine::{ImageItem, ImageProgress, ImageProgressSink};
use tokio::sync::Notify;

/// Progress that may wait. An image has at most 127 layers; the rest is output of steps.
const PROGRESS_MAX: usize = 1024;

/// Output that is merged into one message.
const OUTPUT_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct ProgressQueue {
    waiting: Mutex<VecDeque<BuildProgress>>,
    changed: Notify,
}

impl ProgressQueue {
    /// A queue, and its sender.
    pub(super) fn new() -> (Arc<Self>, ImageProgressSink) {
        let queue = Arc::new(Self::default());
        let sender = queue.clone();
        (queue, ImageProgressSink::new(move |progress| sender.add(convert(progress))))
    }

    pub(super) fn next(&self) -> Option<BuildProgress> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Returns when there may be progress.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn add(&self, progress: BuildProgress) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !merge(&mut waiting, &progress) {
            if waiting.len() >= PROGRESS_MAX {
                // The oldest output is dropped, because the latest output explains a failure.
                let output = |waiting: &BuildProgress| matches!(waiting, BuildProgress::Output { .. });
                let oldest = waiting.iter().position(output).unwrap_or(0);
                waiting.remove(oldest);
            }
            waiting.push_back(progress);
        }
        drop(waiting);
        self.changed.notify_one();
    }
}

/// Merges new progress into waiting progress, if that loses nothing.
fn merge(waiting: &mut VecDeque<BuildProgress>, progress: &BuildProgress) -> bool {
    match progress {
        BuildProgress::Item { index, state, .. } => {
            let same = |old: &&mut BuildProgress| matches!(old, BuildProgress::Item { index: i, state: s, .. } if i == index && s == state);
            waiting.iter_mut().rev().find(same).map(|old| *old = progress.clone()).is_some()
        }
        BuildProgress::Stage { .. } => match waiting.back_mut() {
            Some(old @ BuildProgress::Stage { .. }) => {
                *old = progress.clone();
                true
            }
            Some(_) | None => false,
        },
        BuildProgress::Output { text } => match waiting.back_mut() {
            Some(BuildProgress::Output { text: old }) if old.len() + text.len() <= OUTPUT_BYTES_MAX => {
                old.push_str(text);
                true
            }
            Some(_) | None => false,
        },
        BuildProgress::Done { .. } | BuildProgress::Error { .. } => false,
    }
}

fn convert(progress: ImageProgress) -> BuildProgress {
    match progress {
        ImageProgress::Stage { stage, percent } => BuildProgress::Stage { stage, percent },
        ImageProgress::Output { text } => BuildProgress::Output { text },
        ImageProgress::Item(ImageItem { index, count, what, state, bytes, bytes_total }) => {
            let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            BuildProgress::Item {
                index: small(index),
                count: small(count),
                what,
                state: match state {
                    burrow_engine::ItemState::Downloading => ItemState::Downloading,
                    burrow_engine::ItemState::Unpacking => ItemState::Unpacking,
                    burrow_engine::ItemState::Running => ItemState::Running,
                    burrow_engine::ItemState::Cached => ItemState::Cached,
                    burrow_engine::ItemState::Done => ItemState::Done,
                },
                bytes,
                bytes_total,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(index: u32, state: ItemState, bytes: u64) -> BuildProgress {
        BuildProgress::Item { index, count: 2, what: "x".to_owned(), state, bytes, bytes_total: None }
    }

    fn output(text: &str) -> BuildProgress {
        BuildProgress::Output { text: text.to_owned() }
    }

    #[test]
    fn newer_progress_replaces_older_but_keeps_states() {
        let queue = ProgressQueue::default();
        for progress in [
            item(0, ItemState::Downloading, 1),
            item(1, ItemState::Downloading, 1),
            item(0, ItemState::Downloading, 9),
            item(0, ItemState::Done, 9),
            output("a"),
            output("b"),
        ] {
            queue.add(progress);
        }
        let all: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(
            all,
            [
                item(0, ItemState::Downloading, 9),
                item(1, ItemState::Downloading, 1),
                item(0, ItemState::Done, 9),
                output("ab")
            ]
        );
    }

    #[test]
    fn a_flood_of_output_is_bounded() {
        let queue = ProgressQueue::default();
        queue.add(item(0, ItemState::Running, 0));
        for _ in 0..PROGRESS_MAX * 2 {
            queue.add(output(&"x".repeat(OUTPUT_BYTES_MAX)));
        }
        assert_eq!(queue.next(), Some(item(0, ItemState::Running, 0)));
        let rest = std::iter::from_fn(|| queue.next()).count();
        assert!(rest < PROGRESS_MAX, "{rest}");
    }
}

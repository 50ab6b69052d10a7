//! What is told of work on an image, from the work to whoever reads.
//!
//! The work waits for nobody: a reader that is slow, or gone, misses what newer news replaces. States of a layer or
//! step, and the end, are never lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_api::{BuildProgress, ItemState};
use burrow_engine::{ImageItem, ImageProgress, Tell};
use tokio::sync::Notify;

/// News that may wait. An image has at most 127 layers; the rest is output of steps.
const NEWS_MAX: usize = 1024;

/// Output that is told together.
const OUTPUT_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Told {
    news: Mutex<VecDeque<BuildProgress>>,
    changed: Notify,
}

impl Told {
    /// A queue, and the way into it.
    pub(super) fn new() -> (Arc<Self>, Tell) {
        let told = Arc::new(Self::default());
        let sender = told.clone();
        (told, Tell::new(move |progress| sender.add(convert(progress))))
    }

    pub(super) fn next(&self) -> Option<BuildProgress> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Returns when there may be news.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn add(&self, progress: BuildProgress) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if !merge(&mut news, &progress) {
            if news.len() >= NEWS_MAX {
                // The oldest output goes: what came last explains a failure.
                let output = |news: &BuildProgress| matches!(news, BuildProgress::Output { .. });
                let oldest = news.iter().position(output).unwrap_or(0);
                news.remove(oldest);
            }
            news.push_back(progress);
        }
        drop(news);
        self.changed.notify_one();
    }
}

/// Takes newer news into older that wait, where that loses nothing.
fn merge(news: &mut VecDeque<BuildProgress>, progress: &BuildProgress) -> bool {
    match progress {
        BuildProgress::Item { index, state, .. } => {
            let same = |old: &&mut BuildProgress| matches!(old, BuildProgress::Item { index: i, state: s, .. } if i == index && s == state);
            news.iter_mut().rev().find(same).map(|old| *old = progress.clone()).is_some()
        }
        BuildProgress::Stage { .. } => match news.back_mut() {
            Some(old @ BuildProgress::Stage { .. }) => {
                *old = progress.clone();
                true
            }
            Some(_) | None => false,
        },
        BuildProgress::Output { text } => match news.back_mut() {
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
    fn newer_numbers_replace_older_and_states_are_kept() {
        let told = Told::default();
        for progress in [
            item(0, ItemState::Downloading, 1),
            item(1, ItemState::Downloading, 1),
            item(0, ItemState::Downloading, 9),
            item(0, ItemState::Done, 9),
            output("a"),
            output("b"),
        ] {
            told.add(progress);
        }
        let all: Vec<_> = std::iter::from_fn(|| told.next()).collect();
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
    fn a_flood_of_output_costs_no_more_than_its_bound() {
        let told = Told::default();
        told.add(item(0, ItemState::Running, 0));
        for _ in 0..NEWS_MAX * 2 {
            told.add(output(&"x".repeat(OUTPUT_BYTES_MAX)));
        }
        assert_eq!(told.next(), Some(item(0, ItemState::Running, 0)));
        let rest = std::iter::from_fn(|| told.next()).count();
        assert!(rest < NEWS_MAX, "{rest}");
    }
}

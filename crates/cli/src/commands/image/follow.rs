//! Shows the progress of an image: a bar for each active layer on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use burrow_api::{BuildProgress, Image, ItemState};
use burrow_client::NdjsonStream;
use indicatif::{MultiProgress, ProgressBar};

use crate::commands::prelude::*;
use crate::transfer::progress::{TICK, style};

/// The progress display.
#[derive(Debug)]
struct ProgressDisplay {
    /// `None` where there is no terminal.
    bars: Option<MultiProgress>,
    stage: Option<ProgressBar>,
    items: BTreeMap<u32, ProgressBar>,
    /// Without a terminal: the stage that was printed last, and the printed state of each item.
    last_stage: String,
    states: BTreeMap<u32, (String, ItemState)>,
}

/// Reads events to the end, and returns the images.
pub(crate) async fn follow(
    mut lines: NdjsonStream<BuildProgress>,
    what: impl Fn() -> String,
) -> Result<Vec<Image>, Stop> {
    let mut screen = ProgressDisplay::new();
    while let Some(progress) = lines.next().await.or_fail(&what)? {
        match progress {
            BuildProgress::Stage { stage, percent } => screen.stage(&stage, percent),
            BuildProgress::Item { index, count, what, state, bytes, bytes_total } => {
                screen.item(index, count, &what, state, bytes, bytes_total);
            }
            BuildProgress::Output { text } => screen.output(&text),
            BuildProgress::Done { image, more } => {
                screen.clear();
                return Ok([*image].into_iter().chain(more).collect());
            }
            BuildProgress::Error { error } => {
                screen.clear();
                return Err(Failure::new(what()).detail(error).into());
            }
        }
    }
    screen.clear();
    fail(what(), "the daemon ended the stream without a result; see its log")
}

impl ProgressDisplay {
    fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(MultiProgress::new);
        Self { bars, stage: None, items: BTreeMap::new(), last_stage: String::new(), states: BTreeMap::new() }
    }

    fn stage(&mut self, stage: &str, percent: Option<u8>) {
        let text = escape(stage);
        let Some(bars) = &self.bars else {
            if self.last_stage != text {
                print::note(&text);
                self.last_stage = text;
            }
            return;
        };
        let bar = self.stage.get_or_insert_with(|| bars.insert(0, ProgressBar::new(100)));
        let template = if percent.is_some() { "{msg} [{bar:30}] {percent}%" } else { "{spinner} {msg}" };
        bar.set_style(style(template));
        bar.set_message(text);
        bar.enable_steady_tick(TICK);
        if let Some(percent) = percent {
            bar.set_position(u64::from(percent.min(100)));
        }
    }

    fn item(&mut self, index: u32, count: u32, what: &str, state: ItemState, bytes: u64, total: Option<u64>) {
        let word = print::json::word(state);
        let what = escape(what);
        let Some(bars) = &self.bars else {
            // The layers of a pull and the steps of a build have the same numbers.
            let shown = (what.clone(), state);
            if self.states.get(&index) != Some(&shown) {
                print::note(format!("[{}/{count}] {what}: {word}", index + 1));
                self.states.insert(index, shown);
            }
            return;
        };
        if let Some(stage) = self.stage.take() {
            stage.finish_and_clear();
        }
        let place = self.items.range(..index).count();
        let bar = self.items.entry(index).or_insert_with(|| bars.insert(place, ProgressBar::new(1)));
        bar.set_message(format!("[{}/{count}] {what}: {word}", index + 1));
        match state {
            ItemState::Downloading | ItemState::Unpacking => {
                bar.set_style(style("{msg} [{bar:30}] {bytes}/{total_bytes}"));
                bar.set_length(total.unwrap_or(bytes).max(1));
                bar.set_position(bytes);
            }
            ItemState::Running => {
                bar.set_style(style("{spinner} {msg}"));
                bar.enable_steady_tick(TICK);
            }
            ItemState::Cached | ItemState::Done => {
                bar.set_style(style("{msg}"));
                bar.finish();
            }
        }
    }

    fn output(&self, text: &str) {
        // Output of an untrusted program: its control characters must not reach the terminal.
        for line in text.split_inclusive('\n') {
            let shown = escape(line.trim_end_matches(['\r', '\n']));
            match &self.bars {
                Some(bars) => {
                    let _ = bars.println(shown);
                }
                None => {
                    let _ = writeln!(std::io::stderr().lock(), "{shown}");
                }
            }
        }
    }

    fn clear(&mut self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

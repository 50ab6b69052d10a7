//! Progress display: bars on standard error when it is a terminal, plain lines for stages when it is not.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::print;
use crate::print::escape::escape;

/// How often spinners turn.
pub(crate) const TICK: Duration = Duration::from_millis(200);

pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are ours").progress_chars("=> ")
}

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    label: String,
    /// Without a terminal: the stage that was printed last.
    printed: Mutex<Option<String>>,
}

impl Progress {
    /// Progress of a transfer, of known or unknown size.
    pub(crate) fn bytes(label: &str, total: Option<u64>) -> Self {
        let progress = Self::new(label, total);
        let template = match total {
            Some(_) => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{msg} {spinner} {bytes} {bytes_per_sec}",
        };
        progress.style(template);
        progress.bar.set_message(progress.label.clone());
        progress
    }

    /// Progress of work in stages.
    pub(crate) fn stages(label: &str) -> Self {
        let progress = Self::new(label, Some(100));
        progress.style("{msg} [{bar:30}] {percent}%");
        progress
    }

    /// Progress of work of unknown length: shown on a terminal only, and removed at the end.
    pub(crate) fn working(label: &str) -> Self {
        let progress = Self::new(label, None);
        progress.style("{spinner} {msg} {elapsed}");
        progress.bar.set_message(progress.label.clone());
        progress
    }

    /// Shows work of unknown length while `work` runs.
    pub(crate) async fn during<T>(label: &str, work: impl Future<Output = T>) -> T {
        let _working = Self::working(label);
        work.await
    }

    fn new(label: &str, total: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        Self { bar, label: escape(label), printed: Mutex::new(None) }
    }

    fn style(&self, template: &str) {
        self.bar.set_style(style(template));
        if std::io::stderr().is_terminal() {
            self.bar.enable_steady_tick(TICK);
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    pub(crate) fn stage(&self, stage: &str, percent: Option<u8>) {
        let text = format!("{}: {}", self.label, escape(stage));
        if std::io::stderr().is_terminal() {
            self.bar.set_message(text);
            if let Some(percent) = percent {
                self.bar.set_position(u64::from(percent.min(100)));
            }
            return;
        }
        let mut printed = self.printed.lock().expect("no panic while the lock is held");
        if printed.as_ref() != Some(&text) {
            print::note(&text);
            *printed = Some(text);
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

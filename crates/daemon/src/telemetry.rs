//! The log: structured lines on standard error, for people or for machines.
//!
//! The log never contains keys, tokens, environments, query values or bodies.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt};

use burrow_config::{LogConfig, LogFormat};

/// Libraries that log every packet at `debug` and below.
const QUIET: [&str; 9] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "tungstenite",
    "netlink_proto",
    "netlink_packet_core",
    "mio",
    "tokio",
];

/// Changes the log level at runtime.
#[derive(Clone, Debug)]
pub(crate) struct LogLevel(Handle<Targets, Registry>);

impl LogLevel {
    pub(crate) fn set(&self, level: &str) {
        match self.0.reload(filter(level)) {
            Ok(()) => tracing::info!(level, "log level set"),
            Err(error) => tracing::warn!(%error, "could not change the log level"),
        }
    }
}

/// Installs the log. A second call in one process (tests) changes nothing.
pub(crate) fn start(config: &LogConfig) -> LogLevel {
    let (level, handle) = reload::Layer::new(filter(&config.level));
    let lines = match config.format {
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(std::io::stderr).boxed()
        }
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            fmt::layer().with_ansi(colours).with_target(false).with_writer(std::io::stderr).boxed()
        }
    };
    // An error means that a subscriber is installed already: then it stays.
    if tracing_subscriber::registry().with(level).with(lines).try_init().is_ok() {
        log_panics();
    }
    LogLevel(handle)
}

fn filter(level: &str) -> Targets {
    let level: LevelFilter = level.parse().expect("the configuration accepts only names of levels");
    let quiet = level.min(LevelFilter::INFO);
    Targets::new().with_default(level).with_targets(QUIET.map(|library| (library, quiet)))
}

/// A panic is a bug in Burrow, so a person must look at it.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let message =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(message, place, "a thread panicked");
    }));
}

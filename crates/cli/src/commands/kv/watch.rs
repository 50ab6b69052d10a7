//! `burrow kv watch`: changes as they happen, none missed.

use burrow_api::memory::KvEvent;
use burrow_client::MemoryOf;
use clap::Args;

use crate::commands::memory::show::{excerpt, text_width};
use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format};

/// Show changes of keys as they happen
///
/// With --since all that came after that number is shown first. A lost connection is taken up again where it was. A
/// key whose time is over is told as expired; `reset` tells that the sandbox went back to a snapshot or was given another
/// space, so that every key may hold something else.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv watch web
  burrow kv watch web plan/ --since 17 --json
  burrow kv watch web done --count 1           waits for one change")]
pub(super) struct WatchArgs {
    /// A sandbox, or a space; `space:NAME` where both have the name
    #[arg(value_name = "SANDBOX")]
    of: String,
    /// Only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// From after this number of the log
    #[arg(long, value_name = "NUMBER")]
    since: Option<u64>,
    /// Leave after so many changes
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// An attached space instead of the one the sandbox remembers in
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: WatchArgs) -> Result<(), Stop> {
    let what = || format!("could not watch the keys of `{}`", args.of);
    let whose = MemoryOf { of: args.of.clone(), as_of: None, space: args.space.clone() };
    let memory = ctx.client()?.memory(whose);
    let mut watch = memory.kv_watch(&args.prefix, args.since).await.or_fail(what)?;
    let mut told = false;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = watch.next().await.or_fail(what)?;
        if let KvEvent::Heartbeat { seq } = &event {
            if !std::mem::replace(&mut told, true) {
                print::note(&format!("watching `{}` from number {seq}", escape(&args.of)));
            }
            continue;
        }
        left -= 1;
        match args.format.json {
            true => print::json::compact(&event)?,
            false => print::line(&line(&event, text_width(40)))?,
        }
    }
    Ok(())
}

fn line(event: &KvEvent, width: usize) -> String {
    match event {
        KvEvent::Set { seq, item } => {
            format!("{seq:>8}  {} = {}", escape(&item.key), excerpt(&item.value.to_string(), width))
        }
        KvEvent::Deleted { seq, key } => format!("{seq:>8}  {} is gone", escape(key)),
        KvEvent::Expired { seq, key, .. } => format!("{seq:>8}  {} has expired", escape(key)),
        KvEvent::Reset { seq } => {
            format!("{seq:>8}  (reset: the sandbox remembers elsewhere now; read the keys anew)")
        }
        KvEvent::Heartbeat { seq } => format!("{seq:>8}"),
        KvEvent::Error { error } => escape(&error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_whatever_it_holds() {
        let gone = KvEvent::Deleted { seq: 9, key: "a\u{1b}".to_owned() };
        assert_eq!(line(&gone, 40), "       9  a\\x1b is gone");
        let expired = KvEvent::Expired { seq: 9, key: "a\u{1b}".to_owned(), at_ms: 1 };
        assert_eq!(line(&expired, 40), "       9  a\\x1b has expired");
        assert!(line(&KvEvent::Reset { seq: 9 }, 40).contains("reset"));
    }
}

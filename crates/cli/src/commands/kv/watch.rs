//! `burrow kv watch`: shows changes as they happen, without gaps.

use burrow_api::memory::KvEvent;
use burrow_client::MemorySelection;

use crate::commands::memory::show::{excerpt, text_width};
use crate::commands::prelude::*;

/// Show changes of keys as they happen
///
/// With --since, all changes after that number are shown first. A lost connection is resumed where it ended. A key
/// whose lifetime is over is reported as expired. `reset` means that the sandbox was restored from a snapshot or got
/// another space, so that every key may have another value.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv watch web
  burrow kv watch web plan/ --since 17 --json
  burrow kv watch web done --count 1           waits for one change")]
pub(crate) struct WatchArgs {
    /// Sandbox or space; `space:NAME` if both have this name
    #[arg(value_name = "SANDBOX")]
    of: String,
    /// Only keys that start with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Start after this number of the log
    #[arg(long, value_name = "NUMBER")]
    since: Option<u64>,
    /// Exit after this many changes
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// Attached space, instead of the main space of the sandbox
    #[arg(long, value_name = "SPACE")]
    space: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: WatchArgs) -> Result<(), Stop> {
    let what = || format!("could not watch the keys of `{}`", args.of);
    let selection = MemorySelection { of: args.of.clone(), as_of: None, space: args.space.clone() };
    let memory = ctx.client()?.memory(selection);
    let mut watch = memory.kv_watch(&args.prefix, args.since).await.or_fail(what)?;
    let mut announced = false;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = watch.next().await.or_fail(what)?;
        if let KvEvent::Heartbeat { seq } = &event {
            if !std::mem::replace(&mut announced, true) {
                print::note(format!("watching `{}` from number {seq}", escape(&args.of)));
            }
            continue;
        }
        left -= 1;
        args.format.line(&event, |event| line(event, text_width(40)))?;
    }
    Ok(())
}

fn line(event: &KvEvent, width: usize) -> String {
    match event {
        KvEvent::Set { seq, item } => {
            format!("{seq:>8}  {} = {}", escape(&item.key), excerpt(&item.value.to_string(), width))
        }
        KvEvent::Deleted { seq, key } => format!("{seq:>8}  {} was deleted", escape(key)),
        KvEvent::Expired { seq, key, .. } => format!("{seq:>8}  {} has expired", escape(key)),
        KvEvent::Reset { seq } => {
            format!("{seq:>8}  (reset: the sandbox has another memory now; read the keys again)")
        }
        KvEvent::Heartbeat { seq } => format!("{seq:>8}"),
        KvEvent::Error { error } => escape(&error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_printed_on_one_line() {
        let gone = KvEvent::Deleted { seq: 9, key: "a\u{1b}".to_owned() };
        assert_eq!(line(&gone, 40), "       9  a\\x1b was deleted");
        let expired = KvEvent::Expired { seq: 9, key: "a\u{1b}".to_owned(), at_ms: 1 };
        assert_eq!(line(&expired, 40), "       9  a\\x1b has expired");
        assert!(line(&KvEvent::Reset { seq: 9 }, 40).contains("reset"));
    }
}

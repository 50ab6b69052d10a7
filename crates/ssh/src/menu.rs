//! On login, asks whether to return to a shell that was left running.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use russh::{ChannelMsg, ChannelReadHalf};

use crate::attached_execs::ExecGuard;
use crate::listing::DetachedShell;
use crate::output::Output;

/// Enough for any user to decide.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) enum Choice {
    Reattach(ExecGuard),
    New,
    /// Neither; or the client has disconnected.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MenuKey {
    Shell(usize),
    New,
    Leave,
    /// Not one of the offered keys.
    Unclear,
}

/// The choice, and the input that followed it.
pub(crate) async fn ask(
    reader: &mut ChannelReadHalf,
    output: &Output,
    mut shells: Vec<DetachedShell>,
) -> (Choice, Bytes) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
    let ages: Vec<u64> = shells.iter().map(|shell| now_ms.saturating_sub(shell.started_ms) / 1000).collect();
    output.print(&question(&ages)).await;
    let answer = tokio::time::timeout(PATIENCE, read_answer(reader, shells.len())).await;
    let (answer, typed) = answer.unwrap_or((MenuKey::Leave, Bytes::new()));
    let choice = match answer {
        MenuKey::Shell(index) => Choice::Reattach(shells.swap_remove(index).guard),
        MenuKey::New => Choice::New,
        MenuKey::Leave | MenuKey::Unclear => Choice::Leave,
    };
    output.print("\n").await;
    (choice, typed)
}

fn question(ages: &[u64]) -> String {
    let many = if ages.len() == 1 { "A shell was" } else { "Shells were" };
    let mut text = format!("{many} left open here:\n");
    for (number, seconds) in (1..).zip(ages) {
        let _ = writeln!(text, "  {number}  started {} ago", age(*seconds));
    }
    text.push_str("Enter attaches to 1, a number to another, n starts a new shell, q quits: ");
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Reads until a key is one of those offered.
async fn read_answer(reader: &mut ChannelReadHalf, count: usize) -> (MenuKey, Bytes) {
    loop {
        match reader.wait().await {
            None | Some(ChannelMsg::Close | ChannelMsg::Eof) => return (MenuKey::Leave, Bytes::new()),
            Some(ChannelMsg::Data { data }) => {
                let mut keys = data.iter().map(|key| meaning(*key, count)).enumerate();
                if let Some((at, answer)) = keys.find(|(_, answer)| *answer != MenuKey::Unclear) {
                    return (answer, data.slice(at + 1..));
                }
            }
            Some(_) => {}
        }
    }
}

fn meaning(key: u8, count: usize) -> MenuKey {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    match key {
        b'\r' | b'\n' => MenuKey::Shell(0),
        b'1'..=b'9' if usize::from(key - b'0') <= count => MenuKey::Shell(usize::from(key - b'1')),
        b'n' | b'N' => MenuKey::New,
        b'q' | b'Q' | CTRL_C | CTRL_D => MenuKey::Leave,
        _ => MenuKey::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_is_answered_with_one_key() {
        for (key, expected) in [
            (b'\r', MenuKey::Shell(0)),
            (b'2', MenuKey::Shell(1)),
            (b'3', MenuKey::Unclear),
            (b'0', MenuKey::Unclear),
            (b'n', MenuKey::New),
            (b'q', MenuKey::Leave),
            (3, MenuKey::Leave),
            (b'x', MenuKey::Unclear),
        ] {
            assert_eq!(meaning(key, 2), expected, "{key}");
        }
    }

    #[test]
    fn the_question_names_each_shell() {
        let text = question(&[5, 4000]);
        assert_eq!(
            text,
            "Shells were left open here:\n  1  started 5 s ago\n  2  started 1 h ago\n\
             Enter attaches to 1, a number to another, n starts a new shell, q quits: "
        );
        assert_eq!(age(200_000), "2 d");
    }
}

//! Asks, on a login, whether to go back to a shell that was left open.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use russh::{ChannelMsg, ChannelReadHalf};

use crate::listing::{Held, LeftOpen};
use crate::output::Output;

/// Longer than anybody thinks about it.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) enum Choice {
    Back(Held),
    New,
    /// Neither; or the client is gone.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Shell(usize),
    New,
    Leave,
    /// Nothing that was offered.
    Unclear,
}

/// What was chosen, and what was typed behind that.
pub(crate) async fn ask(
    reader: &mut ChannelReadHalf,
    output: &Output,
    mut left: Vec<LeftOpen>,
) -> (Choice, Bytes) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
    let ages: Vec<u64> = left.iter().map(|shell| now_ms.saturating_sub(shell.started_ms) / 1000).collect();
    output.say(&question(&ages)).await;
    let answer = tokio::time::timeout(PATIENCE, answer(reader, left.len())).await;
    let (answer, typed) = answer.unwrap_or((Answer::Leave, Bytes::new()));
    let choice = match answer {
        Answer::Shell(index) => Choice::Back(left.swap_remove(index).held),
        Answer::New => Choice::New,
        Answer::Leave | Answer::Unclear => Choice::Leave,
    };
    output.say("\n").await;
    (choice, typed)
}

fn question(ages: &[u64]) -> String {
    let many = if ages.len() == 1 { "A shell was" } else { "Shells were" };
    let mut text = format!("{many} left open here:\n");
    for (number, seconds) in (1..).zip(ages) {
        let _ = writeln!(text, "  {number}  started {} ago", age(*seconds));
    }
    text.push_str("Enter goes back to 1, a number to another, n opens a new one, q leaves: ");
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

/// The first key that means something.
async fn answer(reader: &mut ChannelReadHalf, count: usize) -> (Answer, Bytes) {
    loop {
        match reader.wait().await {
            None | Some(ChannelMsg::Close | ChannelMsg::Eof) => return (Answer::Leave, Bytes::new()),
            Some(ChannelMsg::Data { data }) => {
                let mut meant = data.iter().map(|key| meaning(*key, count)).enumerate();
                if let Some((at, answer)) = meant.find(|(_, answer)| *answer != Answer::Unclear) {
                    return (answer, data.slice(at + 1..));
                }
            }
            Some(_) => {}
        }
    }
}

fn meaning(key: u8, count: usize) -> Answer {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    match key {
        b'\r' | b'\n' => Answer::Shell(0),
        b'1'..=b'9' if usize::from(key - b'0') <= count => Answer::Shell(usize::from(key - b'1')),
        b'n' | b'N' => Answer::New,
        b'q' | b'Q' | CTRL_C | CTRL_D => Answer::Leave,
        _ => Answer::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_answers() {
        for (key, expected) in [
            (b'\r', Answer::Shell(0)),
            (b'2', Answer::Shell(1)),
            (b'3', Answer::Unclear),
            (b'0', Answer::Unclear),
            (b'n', Answer::New),
            (b'q', Answer::Leave),
            (3, Answer::Leave),
            (b'x', Answer::Unclear),
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
             Enter goes back to 1, a number to another, n opens a new one, q leaves: "
        );
        assert_eq!(age(200_000), "2 d");
    }
}

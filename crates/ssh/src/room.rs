//! One session channel: hears what its client wants (a terminal, variables, then a shell, a command or sftp), and does it.

use std::collections::BTreeMap;
use std::sync::Arc;

use burrow_api::{CreateExec, StdinMode, TerminalSize};
use burrow_client::ClientError;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf};

use crate::lobby::NoSandbox;
use crate::menu::{self, Choice};
use crate::output::{Ending, Output};
use crate::pump::{self, Fate, Pump};
use crate::visit::Visit;
use crate::{SFTP_ARGV, listing};

pub(crate) const SFTP: &str = "sftp";

/// Variables of one channel, and the length of one.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 1024;

/// A terminal larger than this is none.
const TERMINAL_SIDE_MAX: u32 = 4096;

/// What a client may set: its language. Anything else could change what programs inside do (`LD_PRELOAD`, `BASH_ENV`).
pub(crate) fn may_set(name: &str, value: &str) -> bool {
    let word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let named = name == "LANG" || name.strip_prefix("LC_").is_some_and(|rest| !rest.is_empty() && word(rest));
    named && value.len() <= VARIABLE_BYTES_MAX && !value.bytes().any(|b| b == 0)
}

/// What was asked for before anything was started.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    pub(crate) terminal: Option<TerminalSize>,
    env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) enum Wanted {
    Shell,
    Command(Vec<u8>),
    Sftp,
}

pub(crate) async fn serve(visit: Arc<Visit>, channel: Channel<Msg>, handle: Handle) {
    let (mut reader, writer) = channel.split();
    let mut setting = Setting::default();
    let Some(wanted) = hear(&mut reader, &mut setting).await else { return };
    visit.moved();
    let output = Output::begin(&visit, writer, handle, setting.terminal.is_some());
    let ending = match start(&visit, &mut reader, &output, &setting, wanted).await {
        Ok(Started::Running(pump)) => pump.run(&visit, reader, &output).await,
        Ok(Started::Told(ending)) => ending,
        Err(error) => {
            output.tell(&explained(&error)).await;
            Ending::Code(CODE_OWN_FAILURE)
        }
    };
    output.end(ending).await;
}

/// What `ssh` itself answers when it, and not the command, has failed.
const CODE_OWN_FAILURE: u32 = 255;

enum Started {
    Running(Box<Pump>),
    /// All was said.
    Told(Ending),
}

/// Until something is to be started. `None`: the client is gone.
async fn hear(reader: &mut ChannelReadHalf, setting: &mut Setting) -> Option<Wanted> {
    while let Some(message) = reader.wait().await {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the library's, and may grow")]
        match message {
            ChannelMsg::RequestPty { term, col_width, row_height, .. } => {
                setting.terminal = Some(size(col_width, row_height));
                let good = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
                if (1..=64).contains(&term.len()) && term.chars().all(good) {
                    setting.env.insert("TERM".to_owned(), term);
                }
            }
            ChannelMsg::WindowChange { col_width, row_height, .. } if setting.terminal.is_some() => {
                setting.terminal = Some(size(col_width, row_height));
            }
            ChannelMsg::SetEnv { variable_name, variable_value, .. }
                if setting.env.len() < VARIABLES_MAX && may_set(&variable_name, &variable_value) =>
            {
                setting.env.insert(variable_name, variable_value);
            }
            ChannelMsg::RequestShell { .. } => return Some(Wanted::Shell),
            ChannelMsg::Exec { command, .. } => return Some(Wanted::Command(command)),
            ChannelMsg::RequestSubsystem { name, .. } if name == SFTP => return Some(Wanted::Sftp),
            ChannelMsg::Close => return None,
            // Of the rest nothing makes sense before there is something to send it to.
            _ => {}
        }
    }
    None
}

/// A client without a size (some say 0 by 0) gets the usual one.
pub(crate) fn size(columns: u32, rows: u32) -> TerminalSize {
    let side = |side: u32, usual: u16| match u16::try_from(side.min(TERMINAL_SIDE_MAX)) {
        Ok(side) if side > 0 => side,
        _ => usual,
    };
    TerminalSize { columns: side(columns, 80), rows: side(rows, 24) }
}

async fn start(
    visit: &Arc<Visit>,
    reader: &mut ChannelReadHalf,
    output: &Output,
    setting: &Setting,
    wanted: Wanted,
) -> Result<Started, ClientError> {
    let found = match visit.sandbox().await {
        Ok(found) => found,
        Err(NoSandbox::Failed(error)) => return Err(error),
        Err(NoSandbox::Claimed) => {
            output.tell("this SSH key is yours now: it opens what your API key opens").await;
            return Ok(Started::Told(Ending::Code(0)));
        }
        Err(NoSandbox::Unknown) => return unknown(visit, output, setting, &wanted).await,
    };
    let sandbox = found.id.as_str();
    if found.is_new && !matches!(wanted, Wanted::Sftp) {
        output.tell(&format!("made sandbox {}", found.name())).await;
    }
    if let (Wanted::Shell, Some(_), false) = (&wanted, setting.terminal, found.is_new) {
        let left = listing::left_open(visit, sandbox).await?;
        if !left.is_empty() {
            let (choice, typed) = menu::ask(reader, output, left).await;
            let pump = match choice {
                Choice::New => begin(visit, sandbox, setting, wanted).await?,
                Choice::Back(held) => pump::back(visit, held, setting).await?,
                Choice::Leave => return Ok(Started::Told(Ending::Code(0))),
            };
            return Ok(Started::running(pump.with_input(typed)));
        }
    }
    begin(visit, sandbox, setting, wanted).await.map(Started::running)
}

impl Started {
    fn running(pump: Pump) -> Self {
        Self::Running(Box::new(pump))
    }
}

async fn begin(
    visit: &Arc<Visit>,
    sandbox: &str,
    setting: &Setting,
    wanted: Wanted,
) -> Result<Pump, ClientError> {
    let fate =
        if matches!(wanted, Wanted::Shell) && setting.terminal.is_some() { Fate::GoesOn } else { Fate::Ends };
    let request = request(setting, wanted);
    let exec = visit.client().create_exec(sandbox, &request).await?;
    let held = visit.shared.attached.enter(&exec.id);
    pump::to(visit, exec, held, 0, fate).await
}

fn request(setting: &Setting, wanted: Wanted) -> CreateExec {
    let mut request = CreateExec {
        env: setting.env.clone(),
        stdin: StdinMode::Pipe,
        terminal: setting.terminal,
        hold: true,
        ..CreateExec::default()
    };
    match wanted {
        Wanted::Shell => request.argv = burrow_api::login_shell(),
        // What is not UTF-8 can be a file's name at most, and finds none.
        Wanted::Command(line) => request.command = Some(String::from_utf8_lossy(&line).into_owned()),
        Wanted::Sftp => {
            request.argv = SFTP_ARGV.map(str::to_owned).to_vec();
            request.terminal = None;
        }
    }
    request
}

/// Somebody who named no sandbox, as in `ssh host`, is shown those there are.
async fn unknown(
    visit: &Visit,
    output: &Output,
    setting: &Setting,
    wanted: &Wanted,
) -> Result<Started, ClientError> {
    let name = visit.login_name();
    output.tell(&format!("there is no sandbox `{}`", listing::shown(name))).await;
    let asked = matches!(wanted, Wanted::Shell);
    if asked {
        output.say(&listing::page(visit.client()).await?).await;
    }
    // Who looks around has not failed; a script that meant a sandbox has.
    let code = if asked && setting.terminal.is_some() { 0 } else { 1 };
    Ok(Started::Told(Ending::Code(code)))
}

fn explained(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    match error.hint() {
        Some(hint) => format!("{text}\nhint: {hint}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sets_its_language_and_nothing_else() {
        for (name, good) in [
            ("LANG", true),
            ("LC_ALL", true),
            ("LC_TIME", true),
            ("LC_", false),
            ("LC_A=B", false),
            ("LANGUAGE_", false),
            ("LD_PRELOAD", false),
            ("BASH_ENV", false),
            ("PATH", false),
            ("", false),
        ] {
            assert_eq!(may_set(name, "C.UTF-8"), good, "{name}");
        }
        assert!(!may_set("LANG", "a\0b"));
        assert!(!may_set("LANG", &"x".repeat(2000)));
    }

    #[test]
    fn a_terminal_has_a_size_that_can_be() {
        assert_eq!(size(120, 40), TerminalSize { columns: 120, rows: 40 });
        assert_eq!(size(0, 0), TerminalSize { columns: 80, rows: 24 });
        assert_eq!(size(u32::MAX, 1), TerminalSize { columns: 4096, rows: 1 });
    }
}

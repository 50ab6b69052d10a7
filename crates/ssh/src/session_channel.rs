//! One session channel: reads what the client requests (a terminal, variables, then a shell, a command or sftp) and starts it.

use std::collections::BTreeMap;
use std::sync::Arc;

use burrow_api::{CreateExec, StdinMode, TerminalSize};
use burrow_client::ClientError;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf};

use crate::connection::Connection;
use crate::listing;
use crate::login_name::NoSandbox;
use crate::menu::{self, Choice};
use crate::output::{ChannelEnd, Output};
use crate::pump::{self, OnDisconnect, Pump};

pub(crate) const SFTP: &str = "sftp";

/// The exec that serves sftp inside a sandbox: the agent's own program.
pub const SFTP_ARGV: [&str; 2] = ["/.burrow/guest", "sftp"];

/// Number of variables of one channel, and the length of a value.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 1024;

/// Larger sizes are not plausible for a terminal.
const TERMINAL_SIDE_MAX: u32 = 4096;

/// A client may set only its locale. Other variables could change what programs inside do (`LD_PRELOAD`, `BASH_ENV`).
pub(crate) fn may_set(name: &str, value: &str) -> bool {
    let word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let named = name == "LANG" || name.strip_prefix("LC_").is_some_and(|rest| !rest.is_empty() && word(rest));
    named && value.len() <= VARIABLE_BYTES_MAX && !value.bytes().any(|b| b == 0)
}

/// The requests that preceded the start.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    pub(crate) terminal: Option<TerminalSize>,
    env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) enum SessionRequest {
    Shell,
    Command(Vec<u8>),
    Sftp,
}

pub(crate) async fn serve(connection: Arc<Connection>, channel: Channel<Msg>, handle: Handle) {
    let (mut reader, writer) = channel.split();
    let mut settings = SessionSettings::default();
    let Some(requested) = read_requests(&mut reader, &mut settings).await else { return };
    connection.record_activity();
    let output = Output::spawn(&connection, writer, handle, settings.terminal.is_some());
    let ending = match start(&connection, &mut reader, &output, &settings, requested).await {
        Ok(StartResult::Running(pump)) => pump.run(&connection, reader, &output).await,
        Ok(StartResult::Done(ending)) => ending,
        Err(error) => {
            output.print_note(&error_text(&error)).await;
            ChannelEnd::Code(CODE_OWN_FAILURE)
        }
    };
    output.end(ending).await;
}

/// The status that `ssh` itself returns if it, and not the command, has failed.
const CODE_OWN_FAILURE: u32 = 255;

enum StartResult {
    Running(Box<Pump>),
    /// There is nothing to run, and all messages were printed.
    Done(ChannelEnd),
}

/// Reads requests until one starts something. `None`: the client has disconnected.
async fn read_requests(
    reader: &mut ChannelReadHalf,
    settings: &mut SessionSettings,
) -> Option<SessionRequest> {
    while let Some(message) = reader.wait().await {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the library's, and may grow")]
        match message {
            ChannelMsg::RequestPty { term, col_width, row_height, .. } => {
                settings.terminal = Some(size(col_width, row_height));
                let good = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
                if (1..=64).contains(&term.len()) && term.chars().all(good) {
                    settings.env.insert("TERM".to_owned(), term);
                }
            }
            ChannelMsg::WindowChange { col_width, row_height, .. } if settings.terminal.is_some() => {
                settings.terminal = Some(size(col_width, row_height));
            }
            ChannelMsg::SetEnv { variable_name, variable_value, .. }
                if settings.env.len() < VARIABLES_MAX && may_set(&variable_name, &variable_value) =>
            {
                settings.env.insert(variable_name, variable_value);
            }
            ChannelMsg::RequestShell { .. } => return Some(SessionRequest::Shell),
            ChannelMsg::Exec { command, .. } => return Some(SessionRequest::Command(command)),
            ChannelMsg::RequestSubsystem { name, .. } if name == SFTP => return Some(SessionRequest::Sftp),
            ChannelMsg::Close => return None,
            // Other messages have no meaning before something runs.
            _ => {}
        }
    }
    None
}

/// Replaces missing sizes (some clients send 0 by 0) by 80 by 24.
pub(crate) fn size(columns: u32, rows: u32) -> TerminalSize {
    let side = |side: u32, usual: u16| match u16::try_from(side.min(TERMINAL_SIDE_MAX)) {
        Ok(side) if side > 0 => side,
        _ => usual,
    };
    TerminalSize { columns: side(columns, 80), rows: side(rows, 24) }
}

async fn start(
    connection: &Arc<Connection>,
    reader: &mut ChannelReadHalf,
    output: &Output,
    settings: &SessionSettings,
    requested: SessionRequest,
) -> Result<StartResult, ClientError> {
    let found = match connection.sandbox().await {
        Ok(found) => found,
        Err(NoSandbox::Failed(error)) => return Err(error),
        Err(NoSandbox::Claimed) => {
            output.print_note("this SSH key now belongs to you: it has the rights of your API key").await;
            return Ok(StartResult::Done(ChannelEnd::Code(0)));
        }
        Err(NoSandbox::Unknown) => {
            return report_unknown_sandbox(connection, output, settings, &requested).await;
        }
    };
    let sandbox = found.id.as_str();
    if found.is_new && !matches!(requested, SessionRequest::Sftp) {
        output.print_note(&format!("created sandbox {}", found.name())).await;
    }
    if let (SessionRequest::Shell, Some(_), false) = (&requested, settings.terminal, found.is_new) {
        let shells = listing::detached_shells(connection, sandbox).await?;
        if !shells.is_empty() {
            let (choice, typed) = menu::ask(reader, output, shells).await;
            let pump = match choice {
                Choice::New => start_exec(connection, sandbox, settings, requested).await?,
                Choice::Reattach(guard) => pump::reattach(connection, guard, settings).await?,
                Choice::Leave => return Ok(StartResult::Done(ChannelEnd::Code(0))),
            };
            return Ok(StartResult::running(pump.with_input(typed)));
        }
    }
    start_exec(connection, sandbox, settings, requested).await.map(StartResult::running)
}

impl StartResult {
    fn running(pump: Pump) -> Self {
        Self::Running(Box::new(pump))
    }
}

async fn start_exec(
    connection: &Arc<Connection>,
    sandbox: &str,
    settings: &SessionSettings,
    requested: SessionRequest,
) -> Result<Pump, ClientError> {
    let on_disconnect = if matches!(requested, SessionRequest::Shell) && settings.terminal.is_some() {
        OnDisconnect::Continue
    } else {
        OnDisconnect::HangUp
    };
    let request = request(settings, requested);
    let exec = connection.client().create_exec(sandbox, &request).await?;
    let guard = connection.shared.attached.insert(&exec.id);
    pump::attach(connection, exec, guard, 0, on_disconnect).await
}

fn request(settings: &SessionSettings, requested: SessionRequest) -> CreateExec {
    let mut request = CreateExec {
        env: settings.env.clone(),
        stdin: StdinMode::Pipe,
        terminal: settings.terminal,
        hold: true,
        ..CreateExec::default()
    };
    match requested {
        SessionRequest::Shell => request.argv = burrow_api::login_shell(),
        // A command that is not UTF-8 could at most contain a file name that is not; such a file is not found.
        SessionRequest::Command(line) => request.command = Some(String::from_utf8_lossy(&line).into_owned()),
        SessionRequest::Sftp => {
            request.argv = SFTP_ARGV.map(str::to_owned).to_vec();
            request.terminal = None;
        }
    }
    request
}

/// A client that names no existing sandbox, as in `ssh host`, is printable a list.
async fn report_unknown_sandbox(
    connection: &Connection,
    output: &Output,
    settings: &SessionSettings,
    requested: &SessionRequest,
) -> Result<StartResult, ClientError> {
    let name = connection.login_name();
    output.print_note(&format!("no sandbox `{}`", listing::printable(name))).await;
    let wants_list = matches!(requested, SessionRequest::Shell);
    if wants_list {
        output.print(&listing::sandbox_list(connection.client()).await?).await;
    }
    // An interactive client that wants the list has not failed; a script that named a sandbox has.
    let code = if wants_list && settings.terminal.is_some() { 0 } else { 1 };
    Ok(StartResult::Done(ChannelEnd::Code(code)))
}

fn error_text(error: &ClientError) -> String {
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
    fn a_client_can_set_only_its_locale() {
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
    fn terminal_sizes_are_corrected_to_plausible_ones() {
        assert_eq!(size(120, 40), TerminalSize { columns: 120, rows: 40 });
        assert_eq!(size(0, 0), TerminalSize { columns: 80, rows: 24 });
        assert_eq!(size(u32::MAX, 1), TerminalSize { columns: 4096, rows: 1 });
    }
}

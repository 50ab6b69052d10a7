//! A user at a terminal: a pseudo-terminal of the test, on which the command line runs.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::harness::{Daemon, eventually};

/// A terminal that runs a command.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: File,
    /// Kept open, so that remaining output can be read after the command has ended.
    side: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs the command line on a new terminal, which becomes its controlling terminal.
    pub(crate) fn run(daemon: &Daemon, arguments: &[&str], columns: u16, rows: u16) -> Self {
        Self::run_with(daemon, arguments, columns, rows, &[])
    }

    /// The same with additional environment variables.
    pub(crate) fn run_with(
        daemon: &Daemon,
        arguments: &[&str],
        columns: u16,
        rows: u16,
        env: &[(&str, &str)],
    ) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        let plain = daemon.command(arguments);
        // A terminal sends the signals of Ctrl-C and of a new size only to the session it controls.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(plain.get_program()).args(plain.get_args());
        for (key, value) in plain.get_envs() {
            if let Some(value) = value {
                command.env(key, value);
            }
        }
        command.env("TERM", "xterm-256color").envs(env.iter().copied());
        command.stdin(Stdio::from(side.try_clone().unwrap())).stdout(Stdio::from(side.try_clone().unwrap()));
        let child = command.stderr(Stdio::from(side.try_clone().unwrap())).spawn().unwrap();
        let master = File::from(master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut source, into) = (master.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { master, side, child, seen }
    }

    /// Types keys.
    pub(crate) fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
    }

    /// All output so far.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} on the terminal, which shows {:?}", self.screen()), || {
            self.screen().contains(text).then_some(())
        });
    }

    /// Whether the terminal echoes and edits lines, as it does outside raw mode.
    pub(crate) fn is_cooked(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = tcgetattr(&self.side).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// The exit code of the command, once it has ended.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let screen = self.screen();
        eventually(&format!("the command to end; the terminal shows {screen:?}"), || {
            self.child.try_wait().unwrap()
        })
        .code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

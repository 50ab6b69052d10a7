//! Temporary machines that read disks: see [`crate::disks`].
//!
//! They are confined as all others, in their own cgroups, without a network interface. Disks are passed as descriptors.
//! A disk that is only read is passed as a copy that shares its content and has no name, so the machine may replay a
//! journal, and whatever else it does has no effect. If this process dies, `inventory` finds the remains of the machine
//! and `destroy` removes them.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use burrow_trees::carry;
use burrow_trees::survey::{NameChange, Survey};
use rustix::fs::{CWD, Mode, OFlags, ioctl_ficlone, openat};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::agent::unix_ns;
use super::boot::{EmulatorParts, boot_timeout};
use super::model::{Accelerator, Model};
use super::probe::NoPlug;
use super::qmp::Qmp;
use super::run_dir::Socket;
use super::shared_state::{Shared, step};
use super::stream::{self, TimedSocket};
use super::{MicrovmRuntime, disk};
use crate::disks::{DISKS_MAX, DiskAccess, Names, OpenDisks, ReceiveFn, SendFn};
use crate::report::Report;
use crate::{Ability, RuntimeError};

/// RAM for the names of the differences, and for reading.
const LIMITS: Limits = Limits { ram_mib: 192, cpu_millis: 1000, pids: 64, disk_mib: 0 };

/// Number of reader machines at once; others wait.
pub(super) const READERS_MAX: usize = 3;

/// For one answer, however large the disks: an emulated machine reads some tens of megabytes per second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Limit on the differences that a machine may report. A little more than it reports itself.
const NAMES_MAX: usize = 500_000;
const NAMES_BYTES_MAX: u64 = 64 << 20;

pub(super) struct Reader {
    shared: Arc<Shared>,
    id: SandboxId,
    /// `None`: the machine is no longer usable.
    stream: Option<UnixStream>,
    _permit: OwnedSemaphorePermit,
}

impl MicrovmRuntime {
    pub(super) async fn open_reader(&self, options: OpenDisks) -> Result<Reader, RuntimeError> {
        if let Ability::No { reason, .. } = &self.capabilities.available {
            return Err(RuntimeError::Disks { reason: reason.clone() });
        }
        if options.disks.len() > DISKS_MAX {
            return Err(RuntimeError::Disks { reason: format!("more than {DISKS_MAX} disks") });
        }
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let permit = permit.map_err(|error| RuntimeError::Disks { reason: error.to_string() })?;
        let (shared, id) = (Arc::clone(&self.shared), SandboxId::generate());
        let mut reader = Reader { shared, id, stream: None, _permit: permit };
        // If the caller no longer waits, the reader is dropped when it has booted, and with it the machine.
        let opened = tokio::task::spawn_blocking(move || {
            reader.stream = Some(reader.shared.boot_reader(&reader.id, &options)?);
            Ok(reader)
        });
        opened.await.map_err(|error| RuntimeError::Disks { reason: error.to_string() })?
    }
}

impl Shared {
    fn boot_reader(&self, id: &SandboxId, options: &OpenDisks) -> Result<UnixStream, RuntimeError> {
        let mut disks = Vec::new();
        for of in &options.disks {
            let disk = disk::open(&of.root, of.writable).map_err(step("open a disk", id))?;
            disks.push(match of.writable {
                true => disk,
                false => copy_of(&disk, &options.scratch).map_err(step("copy a disk", id))?,
            });
        }
        let model = Model::new(&LIMITS, self.here.accelerator, self.here.tsc_khz);
        let group = self.group(id)?;
        group.create().map_err(step("create the cgroups", id))?;
        group.set_limits(&model.emulator_limits(&LIMITS)).map_err(step("set the limits", id))?;
        self.run_dir.make(id).map_err(step("create the machine's directory", id))?;
        let listen =
            |socket| self.run_dir.listen(id, socket).map_err(step("create the machine's sockets", id));
        let (qmp, agent) = (listen(Socket::Qmp)?, listen(Socket::Agent)?);
        let nothing = File::options().read(true).write(true).open("/dev/null");
        let nothing = nothing.map_err(step("open `/dev/null`", id))?;
        let kvm = match model.accelerator {
            Accelerator::Kvm => super::probe::open_kvm().map_err(step("open `/dev/kvm`", id))?,
            Accelerator::Emulation => nothing.try_clone().map_err(step("open `/dev/null`", id))?,
        };
        let mut given: Vec<BorrowedFd<'_>> =
            vec![qmp.as_fd(), agent.as_fd(), nothing.as_fd(), nothing.as_fd(), kvm.as_fd()];
        given.extend(disks.iter().map(|disk| disk.as_fd()));
        let parts =
            EmulatorParts { model: &model, limits: &LIMITS, disk: &nothing, plug: &NoPlug, ram: None };
        let (_, said) = self.emulate(id, &group, model.reader_command(disks.len()), &parts, &given)?;
        drop((qmp, agent));
        let stream = self.run_dir.connect(id, Socket::Agent).map_err(step("connect to the machine", id))?;
        let writable = options.disks.iter().enumerate().filter(|(_, of)| of.writable);
        let writable: Vec<usize> = writable.map(|(number, _)| number).collect();
        let open = json!({ "op": "open", "unix_ns": unix_ns(), "disks": disks.len(), "writable": writable });
        let opened = converse(&stream, boot_timeout(model.accelerator), &open, None, |_| Ok(()));
        opened.map_err(|error| match error {
            // The agent sent no answer at all.
            RequestFailure::Silent(error) => {
                let console = self.session(id).with_qmp(Qmp::console).unwrap_or_default();
                tracing::warn!(%id, console, %error, "a machine for reading disks did not boot");
                RuntimeError::Disks { reason: said.or(&error) }
            }
            RequestFailure::Refused(reason) => RuntimeError::Disks { reason },
        })?;
        Ok(stream)
    }
}

/// Why a request has no answer.
enum RequestFailure {
    /// The machine reported an error.
    Refused(String),
    Silent(io::Error),
}

/// Sends one request: a line, a stream if there is one, and receives the stream that answers.
fn converse(
    stream: &UnixStream,
    within: Duration,
    request: &Value,
    give: Option<SendFn>,
    take: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> Result<(), RequestFailure> {
    let mut timed = TimedSocket::new(stream, within);
    let asked = || -> io::Result<Report> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        timed.write_all(&line)?;
        if let Some(give) = give {
            stream::give(&mut timed, give)?;
        }
        stream::take(&mut timed, take)
    };
    match asked() {
        Ok(Report::Ready) => Ok(()),
        Ok(Report::Failed { step, message }) => {
            Err(RequestFailure::Refused(format!("could not {step}: {message}")))
        }
        Err(error) => Err(RequestFailure::Silent(error)),
    }
}

/// A disk that shares its content with another one and has no name.
fn copy_of(disk: &File, scratch: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mut copy = File::from(openat(CWD, scratch, flags, Mode::RUSR | Mode::WUSR)?);
    if ioctl_ficlone(&copy, disk).is_err() {
        // On a file system that cannot share extents.
        io::copy(&mut &*disk, &mut copy)?;
    }
    Ok(copy)
}

impl Reader {
    /// Sends a request off the async threads. The machine is unusable if the caller does not wait for the answer.
    async fn ask(
        &mut self,
        request: Value,
        give: Option<SendFn>,
        take: impl FnOnce(&mut dyn Read) -> io::Result<()> + Send + 'static,
    ) -> Result<(), RuntimeError> {
        let gone = || RuntimeError::Disks { reason: "the machine that reads the disks has ended".to_owned() };
        let stream = self.stream.take().ok_or_else(gone)?;
        let asked = tokio::task::spawn_blocking(move || {
            let answered = converse(&stream, ANSWER_TIMEOUT, &request, give, take);
            (stream, answered)
        });
        let (stream, answered) = asked.await.map_err(|_| gone())?;
        match answered {
            Ok(()) => {
                self.stream = Some(stream);
                Ok(())
            }
            Err(RequestFailure::Refused(reason)) => Err(RuntimeError::Disks { reason }),
            Err(RequestFailure::Silent(error)) => Err(RuntimeError::Disks { reason: error.to_string() }),
        }
    }
}

#[async_trait]
impl DiskAccess for Reader {
    async fn changes(&mut self, old: usize, new: usize) -> Result<Survey, RuntimeError> {
        let (send, receive) = std::sync::mpsc::channel();
        let take = move |input: &mut dyn Read| {
            let survey = read_survey(input)?;
            // The caller may have stopped waiting.
            let _ = send.send(survey);
            Ok(())
        };
        self.ask(json!({ "op": "changes", "old": old, "new": new }), None, take).await?;
        receive.try_recv().map_err(|error| RuntimeError::Disks { reason: error.to_string() })
    }

    async fn copy_out(&mut self, disk: usize, names: Names, take: ReceiveFn) -> Result<(), RuntimeError> {
        let (whole, names) = match names {
            Names::All => (true, Default::default()),
            Names::These(names) => (false, names),
        };
        let give: SendFn = Box::new(move |out| {
            for name in &names {
                let length = u32::try_from(name.len()).map_err(io::Error::other)?;
                out.write_all(&length.to_le_bytes())?;
                out.write_all(name)?;
            }
            Ok(())
        });
        self.ask(json!({ "op": "copy", "disk": disk, "whole": whole }), Some(give), take).await
    }

    async fn apply(&mut self, disk: usize, give: SendFn) -> Result<(), RuntimeError> {
        self.ask(json!({ "op": "apply", "disk": disk }), Some(give), |_| Ok(())).await
    }

    async fn close(mut self: Box<Self>) -> Result<(), RuntimeError> {
        self.stream = None;
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        let ended = tokio::task::spawn_blocking(move || shared.destroy(&id)).await;
        ended.map_err(|error| RuntimeError::Disks { reason: error.to_string() })?
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        // Ending a machine takes a wait; if this thread must not block, another thread waits.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || shared.clean_up(&id))),
            Err(_) => shared.clean_up(&id),
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Reads the machine's report, which is untrusted like the machine.
fn read_survey(input: &mut dyn Read) -> io::Result<Survey> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut survey = Survey::default();
    let mut input = input.take(NAMES_BYTES_MAX);
    loop {
        let mut letter = [0];
        input.read_exact(&mut letter)?;
        let became = match letter[0] {
            b'+' => NameChange::Added,
            b'~' => NameChange::Changed,
            b'-' => NameChange::Deleted,
            b'e' => return Ok(survey),
            b'm' => {
                survey.more = true;
                return Ok(survey);
            }
            _ => return Err(invalid()),
        };
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let mut name = Vec::new();
        (&mut input).take(u64::from(u32::from_le_bytes(length))).read_to_end(&mut name)?;
        if !carry::is_plain(&name) || survey.found.len() >= NAMES_MAX {
            return Err(invalid());
        }
        survey.found.insert(name, became);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_escape_and_truncated_streams_are_rejected() {
        let told = |bytes: &[u8]| read_survey(&mut &bytes[..]);
        let fine = told(b"+\x02\0\0\0/a-\x04\0\0\0/b/cm").unwrap();
        assert_eq!((fine.found.len(), fine.more), (2, true));
        for hostile in [
            &b"+\x02\0\0\0ab"[..],
            b"+\x05\0\0\0/../ae",
            b"+\x03\0\0\0/a\0e",
            b"+\x02\0\0\0/a",
            b"?e",
            b"+\xff\xff\xff\xff/a",
        ] {
            assert!(told(hostile).is_err(), "{hostile:?}");
        }
    }
}

//! The control group of all processes except the agent: limited in number, and frozen as a whole.
//!
//! It uses cgroup v1 for two reasons: joining takes a tenth of a millisecond instead of ten, and the v2 tree, with
//! all controllers except `pids`, remains available to software inside. It is mounted nowhere, so only the agent can
//! reach it by name; root inside may mount another view of it, which harms only this sandbox.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};

use super::failure::{AtStep as _, Failure};

const NAME: &str = "sandbox";

/// Processes in the middle of disk work freeze only after it.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_micros(500);

pub(in crate::agent) struct Group {
    directory: OwnedFd,
    /// A process that writes `0` to it joins the group.
    tasks: OwnedFd,
    held: Cell<bool>,
}

impl Group {
    pub(super) fn make() -> Result<Self, Failure> {
        let context = fsopen("cgroup", FsOpenFlags::FSOPEN_CLOEXEC).at("open the control groups")?;
        for controller in ["freezer", "pids"] {
            fsconfig_set_flag(&context, controller).at("select the cgroup controllers")?;
        }
        fsconfig_create(&context).at("make the control groups")?;
        let tree = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .at("mount the control groups")?;
        match mkdirat(&tree, NAME, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).at("make the control group"),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&tree, NAME, flags, Mode::empty()).at("open the control group")?;
        let tasks = open(&directory, "tasks", OFlags::WRONLY).at("open the control group's list")?;
        Ok(Self { directory, tasks, held: Cell::new(false) })
    }

    /// Where a child writes to join the group.
    pub(in crate::agent) fn tasks(&self) -> BorrowedFd<'_> {
        self.tasks.as_fd()
    }

    pub(super) fn set_pids(&self, pids: u32) -> Result<(), Failure> {
        self.write("pids.max", &pids.to_string()).at("limit the number of processes")
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.get()
    }

    /// Returns when all processes are frozen. On failure they are thawed again.
    pub(super) async fn hold(&self) -> Result<(), Failure> {
        if self.held.replace(true) {
            return Ok(());
        }
        let stopped = async {
            self.write("freezer.state", "FROZEN")?;
            while self.read("freezer.state")? != b"FROZEN" {
                tokio::time::sleep(LOOK_EVERY).await;
                // The freezer checks for late processes only if it is set again.
                self.write("freezer.state", "FROZEN")?;
            }
            Ok::<(), Errno>(())
        };
        let outcome = tokio::time::timeout(HOLD_WAIT_MAX, stopped).await.unwrap_or(Err(Errno::TIMEDOUT));
        if outcome.is_err() {
            let _ = self.release();
        }
        outcome.at("freeze the processes")
    }

    pub(super) fn release(&self) -> Result<(), Failure> {
        self.held.set(false);
        self.write("freezer.state", "THAWED").at("thaw the processes")
    }

    fn write(&self, name: &str, value: &str) -> Result<(), Errno> {
        rustix::io::write(open(&self.directory, name, OFlags::WRONLY)?, value.as_bytes()).map(drop)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let mut text = [0; 64];
        let length = rustix::io::read(open(&self.directory, name, OFlags::RDONLY)?, &mut text[..])?;
        Ok(text[..length].trim_ascii().to_vec())
    }
}

fn open(directory: &OwnedFd, name: &str, mode: OFlags) -> Result<OwnedFd, Errno> {
    openat(directory, name, mode | OFlags::CLOEXEC, Mode::empty())
}

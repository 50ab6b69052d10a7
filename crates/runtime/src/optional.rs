//! What only some drivers can do. [`Runtime`] has an accessor for each of these traits.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};

use crate::disks::{DiskAccess, OpenDisks, SendFn};
use crate::{
    BootOptions, DumpInfo, FinishOptions, Machine, PrecreatedMachine, RestoredKinds, RuntimeError,
    TemplateOptions,
};
#[cfg(doc)]
use crate::{Form, Runtime};

/// Starts machines before they have an identity.
#[async_trait]
pub trait Precreate: Send + Sync {
    /// Starts a machine as far as possible without its identity: its agent waits for its boot document, and
    /// [`Self::finish`] takes no longer than the agent itself. `boot_document` is ignored. [`Runtime::destroy`] ends and
    /// removes the machine, like any other. Without `finish`, it does not outlive this process.
    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<PrecreatedMachine, RuntimeError>;

    /// Gives a pre-created machine its name and its boot document, and returns when its agent listens. After a failure
    /// the machine is unusable, and [`Runtime::destroy`] removes it.
    async fn finish(
        &self,
        id: &SandboxId,
        begun: PrecreatedMachine,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError>;
}

/// Keeps the files of its machines on disks that the host does not parse: [`Form::Disk`].
#[async_trait]
pub trait OwnDisks: Send + Sync {
    /// Creates the disk from which machines of this driver start, from a tree of files, in the empty directory `into`.
    async fn make_disk(&self, tree: &Path, into: &Path) -> io::Result<()>;

    /// Identifies compatible templates: machines with these limits can be created from a template with the same text.
    /// `None`: this driver has no templates.
    fn template_kind(&self, limits: &Limits) -> Option<String>;

    /// Boots a machine up to the point where it would receive its identity, dumps it, and ends it. `id` belongs to no
    /// sandbox; [`Runtime::destroy`] removes what a crash leaves under it.
    async fn make_template(&self, id: &SandboxId, options: TemplateOptions)
    -> Result<DumpInfo, RuntimeError>;

    /// Returns when everything that the machine's processes have written so far is on its disk. That of a paused machine
    /// already is.
    async fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// Reads disks of this driver's machines in a separate machine, which has access to nothing else and is discarded.
    async fn open_disks(&self, options: OpenDisks) -> Result<Box<dyn DiskAccess>, RuntimeError>;

    /// Applies the changes that `give` writes to the files of a *paused* machine, as
    /// [`burrow_trees::carry::send_actions`] does. Its agent does this while nothing else runs in the machine.
    /// Afterwards the changes are on the disk, and the machine is paused as before. A failure may leave some of them
    /// applied.
    async fn change_files(&self, id: &SandboxId, give: SendFn) -> Result<(), RuntimeError>;
}

/// Dumps processes in a way that may not be restorable, and finds out by trying.
#[async_trait]
pub trait Trials: Send + Sync {
    /// The kinds of state in a dump that this driver has not restored, in words: only a trial shows whether they can be
    /// restored.
    async fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError>;

    /// The kinds that this driver has restored, of a limited size, without those of a restore that failed later. The caller
    /// stores them and passes them to [`Self::recall_kinds`] after it opened the driver again. `None`: not known here.
    fn restored_kinds(&self) -> Option<RestoredKinds>;

    /// Counts the kinds of an earlier driver as restored, if it had the same host properties. `false`: they are ignored.
    fn recall_kinds(&self, record: RestoredKinds) -> bool;
}

//! Imports a snapshot into this host, from a stream.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use burrow_catalog::{CatalogError, SnapshotRow};
use burrow_model::{
    Changes, DumpId, Image, ImageId, ImageOrigin, MemoryPoint, Name, OperationId, SandboxId, Snapshot,
    SnapshotId, SnapshotKind, SnapshotMemory, SpaceId, TenantId,
};
use burrow_portable::{Header, Item, Limits, PortableError, PublicKey, Reader, Section, VerifiedFile};
use tokio::runtime::Handle;

use super::header::{self, ImportedHeader};
use super::memory::MemoryImport;
use super::processes::{self, DiscardSink};
use super::tree::TreeWriter;
use super::{ImportOptions, ImportedSnapshot, blocking};
use crate::operations::journal::{Detail, Operation};
use crate::shared::Shared;
use crate::snapshots::dump;
use crate::snapshots::dump_description::DumpDescription;
use crate::snapshots::pins::Pin;
use crate::{Engine, EngineError, faults};

/// Bytes that are written between two checks of the free space.
const LOOK_BYTES: u64 = 64 << 20;

/// The decisions made from the header alone.
struct ImportPlan {
    snapshot: Snapshot,
    carried: ImportedHeader,
    base: Option<(SnapshotId, Pin)>,
    takes_processes: bool,
    trusted: Vec<PublicKey>,
    remembers: bool,
    /// Whether a record of the image must be created.
    new_image: bool,
    /// Whether the name was requested, and is not only the one in the file.
    named: bool,
}

/// The staged contents of a file.
struct StagedImport {
    proven: VerifiedFile,
    about: Option<DumpDescription>,
    point: Option<MemoryPoint>,
}

impl Engine {
    /// Reads a snapshot to its end and stores it for this tenant. If the file is invalid, nothing of it is left.
    pub async fn import_snapshot(
        &self,
        tenant: &TenantId,
        stream: Box<dyn Read + Send>,
        options: ImportOptions,
    ) -> Result<ImportedSnapshot, EngineError> {
        let permit = self.shared.moving.0.clone().acquire_owned().await;
        let permit = permit.map_err(|_| EngineError::ShuttingDown)?;
        dump::check_room(&self.shared, 0).await?;
        let (engine, tenant, handle) = (self.clone(), tenant.clone(), Handle::current());
        let alive = self.shared.actor_guard();
        blocking(move || {
            let imported = import(&engine, &handle, &tenant, stream, options);
            drop((permit, alive));
            imported
        })
        .await
    }

    /// Checks a file by its header, before anything else of it is read.
    async fn judge(
        &self,
        tenant: &TenantId,
        header: &Header,
        options: &ImportOptions,
    ) -> Result<ImportPlan, EngineError> {
        let shared = &self.shared;
        let needs = &header.needs;
        let runtime = shared.runtime(&needs.driver).map_err(|_| EngineError::ImportNeeds {
            reason: format!("the driver `{}`", crate::shown::shown(&needs.driver)),
        })?;
        if let Some(format) = needs.memory.filter(|format| *format > burrow_memory::FORMAT_VERSION) {
            let (found, known) = (format, burrow_memory::FORMAT_VERSION);
            return Err(PortableError::TooNew { found, known }.into());
        }
        let policy = &shared.policy.moving;
        let own = policy.key.as_ref().map(|key| key.public());
        let trusted: Vec<PublicKey> =
            policy.trusted.iter().copied().chain(own).chain(options.trust).collect();
        if let Some(processes) = needs.processes.as_ref().filter(|_| !options.files_only) {
            if let Some(reason) = runtime.misfit(&processes.about).await {
                return Err(EngineError::ImportNeeds { reason });
            }
            let signer = processes.signer.as_deref().and_then(|key| key.parse().ok());
            check_signer(signer, &trusted)?;
        }
        let carried = header::read(header)?;
        let base = match &needs.base {
            Some(base) => {
                let known = shared.seams.catalog.snapshot_by_identities(tenant, &base.identities).await?;
                let missing = || EngineError::BaseMissing { snapshot: crate::shown::shown(&base.snapshot) };
                let (base, pin) = self.pinned(tenant, &known.ok_or_else(missing)?.id).await?;
                Some((base, pin))
            }
            None => None,
        };
        let known_image = match &carried.image {
            Some(image) => shared.seams.catalog.image_record(tenant, image).await?.map(|row| row.image.id),
            None => None,
        };
        let new_image = known_image.is_none();
        let image = known_image.unwrap_or_else(ImageId::generate);
        let takes_processes = needs.processes.is_some() && !options.files_only;
        let base_of = base.as_ref().map(|(base, _)| base);
        let snapshot = self.new_snapshot(&carried, options, image, base_of, takes_processes);
        Ok(ImportPlan {
            snapshot,
            carried,
            base: base.map(|(base, pin)| (base.id, pin)),
            takes_processes,
            trusted,
            remembers: needs.memory.is_some(),
            new_image,
            named: options.name.is_some(),
        })
    }

    fn new_snapshot(
        &self,
        carried: &ImportedHeader,
        options: &ImportOptions,
        image: ImageId,
        base: Option<&Snapshot>,
        takes_processes: bool,
    ) -> Snapshot {
        let parent = base.map(|base| base.id.clone());
        Snapshot {
            id: SnapshotId::generate(),
            // Its original sandbox does not exist here; an incremental import belongs to the sandbox of its base.
            sandbox: base.map_or_else(SandboxId::generate, |base| base.sandbox.clone()),
            sandbox_name: carried.sandbox_name.clone(),
            name: options.name.clone().or_else(|| carried.name.clone()),
            description: carried.description.clone(),
            labels: carried.labels.clone(),
            kind: SnapshotKind::Manual,
            changes: Changes::none(parent.clone()),
            parent,
            image,
            spec: carried.spec.clone(),
            dump: takes_processes.then(DumpId::generate),
            ram_bytes: 0,
            disk_bytes: 0,
            pause_us: 0,
            created_ms: self.shared.now_ms(),
            expires_ms: None,
            memory: Some(SnapshotMemory { space: SpaceId::generate(), point: None, named: None }),
        }
    }
}

fn check_signer(signer: Option<PublicKey>, trusted: &[PublicKey]) -> Result<(), EngineError> {
    match signer {
        Some(key) if trusted.contains(&key) => Ok(()),
        Some(key) => Err(EngineError::UntrustedProcesses { signed: format!("signed by `{key}`") }),
        None => Err(EngineError::UntrustedProcesses { signed: "not signed".to_owned() }),
    }
}

fn import(
    engine: &Engine,
    handle: &Handle,
    tenant: &TenantId,
    stream: Box<dyn Read + Send>,
    options: ImportOptions,
) -> Result<ImportedSnapshot, EngineError> {
    let shared = &engine.shared;
    let limits = Limits { entries: shared.policy.moving.entries_max, bytes: shared.policy.moving.bytes_max };
    let (header, mut reader) = Reader::open(stream, limits)?;
    let mut plan = handle.block_on(engine.judge(tenant, &header, &options))?;
    let operation = handle.block_on(begin(shared, tenant, &mut plan))?;
    let done = faults::hit("import.begun")
        .and_then(|()| fill(shared, handle, &plan, &mut reader))
        .and_then(|filled| handle.block_on(settle(shared, tenant, &plan, filled, operation.clone())));
    match done {
        Ok((snapshot, proven)) => {
            faults::hit("import.settled")?;
            let origin = header.lineage.snapshot;
            let VerifiedFile { identity, entries, content_bytes, bytes, signature: _ } = proven;
            let detail = serde_json::json!({
                "snapshot": snapshot.id, "name": snapshot.name, "identity": identity.to_string(),
                "origin": crate::shown::shown(&origin), "processes": snapshot.dump.is_some(),
            });
            shared.event(tenant, "snapshot.imported", Some(&snapshot.sandbox), detail);
            Ok(ImportedSnapshot { snapshot, identity, origin, entries, content_bytes, bytes })
        }
        Err(error) => {
            handle.block_on(undo(shared, &plan.snapshot, operation));
            Err(error)
        }
    }
}

/// Stores the intent, before anything it names is created.
async fn begin(
    shared: &Shared,
    tenant: &TenantId,
    plan: &mut ImportPlan,
) -> Result<OperationId, EngineError> {
    let catalog = &shared.seams.catalog;
    let snapshot = &plan.snapshot;
    let detail =
        Detail { snapshot: Some(snapshot.id.clone()), dump: snapshot.dump.clone(), ..Detail::default() };
    let operation = Operation::Import.row(tenant, &snapshot.sandbox, &detail, shared.now_ms());
    let id = operation.id.clone();
    let row = |snapshot: Snapshot| SnapshotRow { tenant: tenant.clone(), snapshot, ready: false };
    match catalog.begin_snapshot(row(snapshot.clone()), operation.clone()).await {
        Err(CatalogError::SnapshotNameTaken { existing }) if plan.named => {
            let name = snapshot.name.clone().map_or_else(String::new, String::from);
            return Err(EngineError::SnapshotNameTaken { name, existing });
        }
        // The name in the file is used here already: the snapshot gets none.
        Err(CatalogError::SnapshotNameTaken { .. }) => {
            plan.snapshot.name = None::<Name>;
            catalog.begin_snapshot(row(plan.snapshot.clone()), operation).await?;
        }
        begun => begun?,
    }
    if plan.new_image {
        let image = Image {
            id: plan.snapshot.image.clone(),
            names: Vec::new(),
            config: plan.carried.config.clone(),
            origin: ImageOrigin { kind: "moved".to_owned(), of: None, history: Vec::new() },
            layer: None,
            size_bytes: 0,
            created_ms: shared.now_ms(),
        };
        let recorded = catalog.insert_image_record(tenant, image, shared.now_ms()).await;
        if let Err(error) = recorded {
            undo(shared, &plan.snapshot, id).await;
            return Err(error.into());
        }
    }
    Ok(id)
}

/// Reads the file to its end into the staged resources.
fn fill(
    shared: &Shared,
    handle: &Handle,
    plan: &ImportPlan,
    reader: &mut Reader<Box<dyn Read + Send>>,
) -> Result<StagedImport, EngineError> {
    let snapshot = &plan.snapshot;
    let disks = &shared.seams.disks;
    let base = plan.base.as_ref().map(|(id, _)| id);
    let root = handle.block_on(disks.stage((&snapshot.id).into(), base.map(Into::into)))?;
    let dump = match &snapshot.dump {
        Some(dump) => Some(handle.block_on(disks.stage_dump(dump))?),
        None => None,
    };
    faults::hit("import.staged")?;
    let opened = File::open(&root).map_err(|source| PortableError::Place { path: "/".to_owned(), source })?;
    let mut placing = TreeWriter::in_root(&opened)?;
    let mut room = SpaceCheck { shared, handle, left: 0 };
    let (mut about, mut arriving, mut section) = (None, None, None);
    while let Some(item) = reader.item()? {
        let entry = match item {
            Item::Section(began) => {
                section = Some(began);
                if began == Section::Memory {
                    arriving = Some(begin_memory(shared, handle, plan)?);
                }
                continue;
            }
            Item::Entry(entry) => entry,
        };
        match (section, &dump) {
            // Without its processes nothing needs the agent in the file, and an untrusted agent must not be run.
            (Some(Section::Files), None) if is_hosts(&entry) => reader.content(&mut DiscardSink)?,
            (Some(Section::Files), _) => placing.place(reader, entry, &mut |bytes| room.take(bytes))?,
            (Some(Section::Processes), Some(folder)) => {
                room.take(entry.content_bytes())?;
                about = take_processes(reader, &entry, folder, about, &snapshot.sandbox)?;
            }
            (Some(Section::Processes), None) => reader.content(&mut DiscardSink)?,
            (Some(Section::Memory), _) => {
                let arriving = arriving.as_mut().expect("the section has begun");
                MemoryImport::take(arriving, reader, &entry)?;
            }
            (None, _) => unreachable!("a reader reports the section first"),
        }
    }
    placing.finish()?;
    let runtime = shared.runtime(&snapshot.spec.driver)?;
    let prepared = handle.block_on(runtime.prepare_moved(&root, plan.takes_processes));
    prepared.map_err(|source| PortableError::Place { path: "/dev".to_owned(), source })?;
    let point = arriving.map(MemoryImport::finish).transpose()?;
    let proven = reader.proven().expect("it was read to its end").clone();
    if plan.takes_processes {
        // A file whose header names a signer must be signed by that key.
        let signature = proven.signature.as_ref();
        check_signer(signature.and_then(|signature| signature.verify(&proven.identity)), &plan.trusted)?;
        if about.is_none() {
            return Err(refused("the description of its processes is missing"));
        }
    }
    if plan.remembers != point.is_some() {
        return Err(refused("its memory does not match its header"));
    }
    faults::hit("import.filled")?;
    Ok(StagedImport { proven, about, point })
}

/// Whether this is one of the files that the host itself keeps in a sandbox.
fn is_hosts(entry: &burrow_portable::Entry) -> bool {
    let path = entry.path.as_bytes();
    path == b".burrow" || path.starts_with(b".burrow/")
}

fn begin_memory<'m>(
    shared: &'m Shared,
    handle: &'m Handle,
    plan: &ImportPlan,
) -> Result<MemoryImport<'m>, EngineError> {
    if !plan.remembers {
        return Err(refused("its memory does not match its header"));
    }
    let memory = plan.snapshot.memory.as_ref().expect("a new snapshot names its space");
    Ok(MemoryImport::into_space(handle, &shared.seams.memory, memory.space.clone()))
}

fn take_processes(
    reader: &mut Reader<Box<dyn Read + Send>>,
    entry: &burrow_portable::Entry,
    folder: &Path,
    known: Option<DumpDescription>,
    sandbox: &SandboxId,
) -> Result<Option<DumpDescription>, EngineError> {
    match processes::take_in(reader, entry, folder)? {
        Some(text) => {
            let about = DumpDescription::from_elsewhere(&text, sandbox);
            Ok(Some(about.ok_or_else(|| refused("the description of its processes cannot be read"))?))
        }
        None => Ok(known),
    }
}

/// Makes the staged resources durable, then visible.
async fn settle(
    shared: &Shared,
    tenant: &TenantId,
    plan: &ImportPlan,
    filled: StagedImport,
    operation: OperationId,
) -> Result<(Snapshot, VerifiedFile), EngineError> {
    let disks = &shared.seams.disks;
    let mut snapshot = plan.snapshot.clone();
    disks.seal((&snapshot.id).into()).await?;
    faults::hit("import.sealed")?;
    if let (Some(dump), Some(about)) = (&snapshot.dump, &filled.about) {
        snapshot.ram_bytes = disks.seal_dump(dump, &about.to_text(), true).await?;
    }
    faults::hit("import.kept")?;
    if let Some(memory) = &mut snapshot.memory {
        memory.point = filled.point;
    }
    snapshot.disk_bytes = disks.used((&snapshot.id).into()).await.unwrap_or(0);
    let (catalog, identity) = (&shared.seams.catalog, filled.proven.identity.to_string());
    catalog.note_identity(tenant, &snapshot.id, &identity, shared.now_ms()).await?;
    catalog.finish_snapshot(snapshot.clone(), Some(operation)).await?;
    Ok((snapshot, filled.proven))
}

/// Removes everything of a failed import. If this fails, it stays in the journal, for the next start.
async fn undo(shared: &Shared, snapshot: &Snapshot, operation: OperationId) {
    let undone = async {
        if let Some(dump) = &snapshot.dump {
            shared.seams.disks.remove_dump(dump).await?;
        }
        shared.seams.disks.remove((&snapshot.id).into()).await?;
        if let Some(memory) = &snapshot.memory {
            shared.seams.memory.remove(&memory.space).await?;
        }
        shared.seams.catalog.delete_snapshot(&snapshot.id, Some(operation)).await?;
        Ok::<_, EngineError>(shared.seams.catalog.forget_removed_images().await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(
            snapshot = %snapshot.id, error = &error as &dyn std::error::Error, "could not undo an import"
        );
    }
}

/// The space that is left, checked from time to time.
struct SpaceCheck<'s> {
    shared: &'s Shared,
    handle: &'s Handle,
    left: u64,
}

impl SpaceCheck<'_> {
    fn take(&mut self, bytes: u64) -> Result<(), EngineError> {
        if self.left < bytes {
            let ahead = bytes.max(LOOK_BYTES);
            self.handle.block_on(dump::check_room(self.shared, bytes))?;
            self.left = ahead;
        }
        self.left -= bytes;
        Ok(())
    }
}

fn refused(reason: &str) -> EngineError {
    PortableError::Refused { reason: reason.to_owned() }.into()
}

//! A snapshot into this host, from a stream.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use burrow_catalog::{CatalogError, SnapshotRow};
use burrow_model::{
    Changes, DumpId, Image, ImageId, ImageOrigin, MemoryPoint, Name, OperationId, SandboxId, Snapshot,
    SnapshotId, SnapshotKind, SnapshotMemory, SpaceId, TenantId,
};
use burrow_portable::{Header, Item, Limits, PortableError, Proven, PublicKey, Reader, Section};
use tokio::runtime::Handle;

use super::header::{self, Said};
use super::processes::{self, Nowhere};
use super::remembered::Arriving;
use super::tree::Placing;
use super::{ImportOptions, ImportedSnapshot, blocking};
use crate::dump::{self, About};
use crate::journal::{Detail, Operation};
use crate::pins::Pin;
use crate::shared::Shared;
use crate::{Engine, EngineError, faults};

/// Bytes that are written between two looks at how much room is left.
const LOOK_BYTES: u64 = 64 << 20;

/// What was decided by the header alone.
struct Plan {
    snapshot: Snapshot,
    said: Said,
    base: Option<(SnapshotId, Pin)>,
    takes_processes: bool,
    trusted: Vec<PublicKey>,
    remembers: bool,
    /// Where an image's record must be made.
    new_image: bool,
    /// Whether the name was asked for, and is not only the one it came with.
    named: bool,
}

/// All that a file held, staged.
struct Filled {
    proven: Proven,
    about: Option<About>,
    point: Option<MemoryPoint>,
}

impl Engine {
    /// Reads a snapshot to its end and makes it one of this tenant's. Nothing of it is left where anything is wrong with it.
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
        let alive = self.shared.sign_of_life();
        blocking(move || {
            let imported = import(&engine, &handle, &tenant, stream, options);
            drop((permit, alive));
            imported
        })
        .await
    }

    /// Judges a file by its header, before anything else of it is read.
    async fn judge(
        &self,
        tenant: &TenantId,
        header: &Header,
        options: &ImportOptions,
    ) -> Result<Plan, EngineError> {
        let shared = &self.shared;
        let needs = &header.needs;
        let runtime = shared.runtime(&needs.driver).map_err(|_| EngineError::ImportNeeds {
            reason: format!("the driver `{}`", crate::engine::shown(&needs.driver)),
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
        let said = header::read(header)?;
        let base = match &needs.base {
            Some(base) => {
                let known = shared.seams.catalog.snapshot_by_identities(tenant, &base.identities).await?;
                let missing = || EngineError::BaseMissing { snapshot: crate::engine::shown(&base.snapshot) };
                let (base, pin) = self.pinned(tenant, &known.ok_or_else(missing)?.id).await?;
                Some((base, pin))
            }
            None => None,
        };
        let known_image = match &said.image {
            Some(image) => shared.seams.catalog.image_record(tenant, image).await?.map(|row| row.image.id),
            None => None,
        };
        let new_image = known_image.is_none();
        let image = known_image.unwrap_or_else(ImageId::generate);
        let takes_processes = needs.processes.is_some() && !options.files_only;
        let base_of = base.as_ref().map(|(base, _)| base);
        let snapshot = self.new_snapshot(&said, options, image, base_of, takes_processes);
        Ok(Plan {
            snapshot,
            said,
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
        said: &Said,
        options: &ImportOptions,
        image: ImageId,
        base: Option<&Snapshot>,
        takes_processes: bool,
    ) -> Snapshot {
        let parent = base.map(|base| base.id.clone());
        Snapshot {
            id: SnapshotId::generate(),
            // Whose it was is not here; what follows upon another came from the same.
            sandbox: base.map_or_else(SandboxId::generate, |base| base.sandbox.clone()),
            sandbox_name: said.sandbox_name.clone(),
            name: options.name.clone().or_else(|| said.name.clone()),
            description: said.description.clone(),
            labels: said.labels.clone(),
            kind: SnapshotKind::Manual,
            changes: Changes::none(parent.clone()),
            parent,
            image,
            spec: said.spec.clone(),
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
            let Proven { identity, entries, content_bytes, bytes, signature: _ } = proven;
            let detail = serde_json::json!({
                "snapshot": snapshot.id, "name": snapshot.name, "identity": identity.to_string(),
                "origin": crate::engine::shown(&origin), "processes": snapshot.dump.is_some(),
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

/// Makes the intent durable, before anything it names.
async fn begin(shared: &Shared, tenant: &TenantId, plan: &mut Plan) -> Result<OperationId, EngineError> {
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
        // The name it came with is somebody else's here: it goes without.
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
            config: plan.said.config.clone(),
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

/// Reads the file to its end into what is staged.
fn fill(
    shared: &Shared,
    handle: &Handle,
    plan: &Plan,
    reader: &mut Reader<Box<dyn Read + Send>>,
) -> Result<Filled, EngineError> {
    let snapshot = &plan.snapshot;
    let volumes = &shared.seams.volumes;
    let base = plan.base.as_ref().map(|(id, _)| id);
    let root = handle.block_on(volumes.stage_snapshot(&snapshot.id, base))?;
    let dump = match &snapshot.dump {
        Some(dump) => Some(handle.block_on(volumes.stage_dump(dump))?),
        None => None,
    };
    faults::hit("import.staged")?;
    let opened = File::open(&root).map_err(|source| PortableError::Place { path: "/".to_owned(), source })?;
    let mut placing = Placing::in_root(&opened)?;
    let mut room = Room { shared, handle, left: 0 };
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
            // Without its processes nothing runs the agent that came along, and a stranger's is not to be run.
            (Some(Section::Files), None) if is_hosts(&entry) => reader.content(&mut Nowhere)?,
            (Some(Section::Files), _) => placing.place(reader, entry, &mut |bytes| room.take(bytes))?,
            (Some(Section::Processes), Some(folder)) => {
                room.take(entry.content_bytes())?;
                about = take_processes(reader, &entry, folder, about, &snapshot.sandbox)?;
            }
            (Some(Section::Processes), None) => reader.content(&mut Nowhere)?,
            (Some(Section::Memory), _) => {
                let arriving = arriving.as_mut().expect("the section has begun");
                Arriving::take(arriving, reader, &entry)?;
            }
            (None, _) => unreachable!("a reader tells the section first"),
        }
    }
    placing.finish()?;
    let runtime = shared.runtime(&snapshot.spec.driver)?;
    let prepared = handle.block_on(runtime.prepare_moved(&root, plan.takes_processes));
    prepared.map_err(|source| PortableError::Place { path: "/dev".to_owned(), source })?;
    let point = arriving.map(Arriving::finish).transpose()?;
    let proven = reader.proven().expect("it was read to its end").clone();
    if plan.takes_processes {
        // Whoever said in the header that they sign it has to have done so.
        let signature = proven.signature.as_ref();
        check_signer(signature.and_then(|signature| signature.verify(&proven.identity)), &plan.trusted)?;
        if about.is_none() {
            return Err(refused("its processes are not described"));
        }
    }
    if plan.remembers != point.is_some() {
        return Err(refused("its memory is not what its header says"));
    }
    faults::hit("import.filled")?;
    Ok(Filled { proven, about, point })
}

/// Whether it is of what the host itself keeps in a sandbox's files.
fn is_hosts(entry: &burrow_portable::Entry) -> bool {
    let path = entry.path.as_bytes();
    path == b".burrow" || path.starts_with(b".burrow/")
}

fn begin_memory<'m>(
    shared: &'m Shared,
    handle: &'m Handle,
    plan: &Plan,
) -> Result<Arriving<'m>, EngineError> {
    if !plan.remembers {
        return Err(refused("its memory is not what its header says"));
    }
    let memory = plan.snapshot.memory.as_ref().expect("a new snapshot names its space");
    Ok(Arriving::into_space(handle, &shared.seams.memory, memory.space.clone()))
}

fn take_processes(
    reader: &mut Reader<Box<dyn Read + Send>>,
    entry: &burrow_portable::Entry,
    folder: &Path,
    known: Option<About>,
    sandbox: &SandboxId,
) -> Result<Option<About>, EngineError> {
    match processes::take_in(reader, entry, folder)? {
        Some(text) => {
            let about = About::from_elsewhere(&text, sandbox);
            Ok(Some(about.ok_or_else(|| refused("what is said of its processes is unreadable"))?))
        }
        None => Ok(known),
    }
}

/// Makes what is staged last, then visible.
async fn settle(
    shared: &Shared,
    tenant: &TenantId,
    plan: &Plan,
    filled: Filled,
    operation: OperationId,
) -> Result<(Snapshot, Proven), EngineError> {
    let volumes = &shared.seams.volumes;
    let mut snapshot = plan.snapshot.clone();
    volumes.seal_snapshot(&snapshot.id).await?;
    faults::hit("import.sealed")?;
    if let (Some(dump), Some(about)) = (&snapshot.dump, &filled.about) {
        snapshot.ram_bytes = volumes.seal_dump(dump, &about.to_text(), true).await?;
    }
    faults::hit("import.kept")?;
    if let Some(memory) = &mut snapshot.memory {
        memory.point = filled.point;
    }
    snapshot.disk_bytes = volumes.snapshot_bytes(&snapshot.id).await.unwrap_or(0);
    let (catalog, identity) = (&shared.seams.catalog, filled.proven.identity.to_string());
    catalog.note_identity(tenant, &snapshot.id, &identity, shared.now_ms()).await?;
    catalog.finish_snapshot(snapshot.clone(), Some(operation)).await?;
    Ok((snapshot, filled.proven))
}

/// Removes all of an import that is not to be. What fails stays in the journal, for the next start.
async fn undo(shared: &Shared, snapshot: &Snapshot, operation: OperationId) {
    let undone = async {
        if let Some(dump) = &snapshot.dump {
            shared.seams.volumes.remove_dump(dump).await?;
        }
        shared.seams.volumes.remove_snapshot(&snapshot.id).await?;
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

/// How much more fits, looked at from time to time.
struct Room<'s> {
    shared: &'s Shared,
    handle: &'s Handle,
    left: u64,
}

impl Room<'_> {
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

//! What a user can do about an error: the only place, besides the command line, that names its commands.
//!
//! Other crates give the hints that name none.

use burrow_audit::StoreError;
use burrow_catalog::CatalogError;
use burrow_disks::DiskError;
use burrow_engine::{EngineError, Maximum, ObjectKind, RestoreFailure, VolumeRefusal};
use burrow_memory::MemoryError;
use burrow_model::Refusal;
use burrow_portable::PortableError;
use burrow_runtime::RuntimeError;

const WITHOUT_PROCESSES: &str = "the files are intact: use `--files-only` to omit the processes";

/// What the user can do about the error.
#[expect(clippy::too_many_lines, reason = "one arm for each error, each with one sentence")]
pub fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::NotFound { kind: ObjectKind::Sandbox, .. } => Some("`burrow ls` lists the sandboxes"),
        EngineError::ExecNotFound { .. } => {
            Some("the agent remembers the last 1,000 execs since the sandbox started")
        }
        EngineError::PortClosed { .. } => {
            Some("`burrow port ls` lists the ports on which the sandbox listens")
        }
        EngineError::Maximum(Maximum::PublicPorts { .. }) => {
            Some("make one private again first: `burrow port unpublish`")
        }
        EngineError::NotFound { kind: ObjectKind::Exec, .. } => {
            Some("`burrow ps SANDBOX` lists the execs of a sandbox")
        }
        EngineError::NotFound { kind: ObjectKind::Image, .. } => {
            Some("`burrow image ls` lists images; `burrow up` builds the default one")
        }
        EngineError::DriverUnknown { .. } | EngineError::DriverUnavailable { .. } => {
            Some("`burrow doctor` lists the drivers of this host")
        }
        EngineError::NameTaken { .. } => {
            Some("choose another name, or use that sandbox (`create` does with `--if-not-exists`)")
        }
        EngineError::Refused { refusal: Refusal::Stopped | Refusal::Failed, .. } => {
            Some("`burrow start SANDBOX` starts it")
        }
        EngineError::LimitAboveMax { .. } => Some("`limits.max` in the configuration sets the maximum"),
        EngineError::Limits(error) if error.field.ends_with("_per_second") => {
            Some("omit it for no limit; in an update, 0 removes the limit")
        }
        EngineError::NoDiskRate { .. } => Some("omit the rate, or create a microVM (`--isolation microvm`)"),
        EngineError::Maximum(Maximum::Sandboxes { .. }) => {
            Some("delete sandboxes, or raise `limits.sandboxes` in the configuration")
        }
        EngineError::PoolReserve { .. } => {
            Some("`burrow gc --need SIZE` names what would free enough; `pool.size` limits the pool")
        }
        EngineError::Busy { .. } | EngineError::ImagesBusy { .. } => Some("try again in a moment"),
        EngineError::Image(error) => error.hint(),
        EngineError::ImageUnfit { .. } => {
            Some("the image's `/dev`, `/proc`, `/sys` or `/etc` may be of the wrong type")
        }
        EngineError::ImageNeedsName { .. } => Some("choose another name with `--name`"),
        EngineError::PlatformUnknown { .. } => Some("write it like `linux/amd64`"),
        EngineError::ImagesInArchive { .. } => Some("omit the name: each image keeps its own"),
        EngineError::BuildStep { .. } => Some("see the output above; fix the step and build again"),
        EngineError::GuestUnreachable { .. } | EngineError::GuestTimeout { .. } => {
            Some("the sandbox may be out of RAM or processes; `burrow stop` and `burrow start` restart it")
        }
        EngineError::SetUnknown { .. } => {
            Some("`burrow egress sets` lists them; `egress.sets` in the configuration defines more")
        }
        EngineError::RuleNotFound { .. } => Some("`burrow egress show` lists its rules and host sets"),
        EngineError::ApprovalNotFound { .. } => Some("`burrow egress approvals` lists the waiting requests"),
        EngineError::RulesOverlap { .. } => {
            Some("narrow methods or paths until each request is covered by one rule")
        }
        EngineError::Maximum(Maximum::Rules { .. } | Maximum::RequestRules { .. }) => {
            Some("a wildcard rule or a host set can replace many rules")
        }
        EngineError::NetworkDiffers { .. } => {
            Some("`burrow update` changes its network policy; or omit the policy from the request")
        }
        EngineError::Runtime(error) => of_runtime(error),
        EngineError::NotFound { kind: ObjectKind::Snapshot, .. } => {
            Some("`burrow snapshot ls` lists the snapshots")
        }
        EngineError::SnapshotNameTaken { .. } => Some("choose another name, or remove that snapshot first"),
        EngineError::SnapshotInUse { .. } => Some("`burrow update SANDBOX --rotate-every never` stops that"),
        EngineError::SnapshotBusy { .. } => Some("try again in a moment"),
        EngineError::Recovering { .. } => {
            Some("try again in a moment; `burrow inspect` shows when it is recovered")
        }
        EngineError::SnapshotsLeft { .. } => Some(
            "`burrow snapshot ls --all` lists the remaining snapshots; `burrow snapshot rm` removes them",
        ),
        EngineError::OtherDriver { .. } => Some("create a new sandbox from the snapshot instead"),
        EngineError::NoHibernate { .. } => {
            Some("`burrow stop` keeps its files; `burrow doctor` reports what is missing")
        }
        EngineError::NoRoom { .. } => Some(
            "`burrow gc --need SIZE` names what would free enough; `--files-only` needs no space for processes",
        ),
        EngineError::TrialBusy { .. } | EngineError::TrialCut { .. } => {
            Some("try again in a moment; `burrow hibernate --untried` does without a trial restore")
        }
        EngineError::Restore(RestoreFailure::NotUndone { .. }) => {
            Some("that state is saved; `burrow wake` tries again to return to it")
        }
        EngineError::Restore(RestoreFailure::UndoneInFiles { .. }) => {
            Some("`--files-only` restores the files without the processes")
        }
        EngineError::Restore(RestoreFailure::Refused { .. } | RestoreFailure::Undone { .. }) => Some(
            "`--files-only` restores the files without the processes; `burrow stop` first ends the present processes",
        ),
        EngineError::Asleep { .. } => Some("`burrow attach` wakes it and continues where the output stopped"),
        EngineError::Replaced { .. } => Some("`burrow ps` lists its present execs"),
        EngineError::Wake { reason, .. } => of_engine(reason),
        EngineError::DumpMissing { .. } | EngineError::DumpUnknown { .. } => Some(WITHOUT_PROCESSES),
        EngineError::NotFound { kind: ObjectKind::SandboxOrSpace, .. } => {
            Some("`burrow ls` lists the sandboxes, `burrow space ls` the memory spaces")
        }
        EngineError::NotFound { kind: ObjectKind::Volume, .. } => {
            Some("`burrow volume ls` lists the volumes")
        }
        EngineError::VolumeSnapshotNotFound { .. } => {
            Some("`burrow volume snapshot ls` lists the snapshots of a volume")
        }
        EngineError::Volumes(VolumeRefusal::Unsupported { .. }) => {
            Some("sandboxes with `--isolation container` support volumes")
        }
        EngineError::Volumes(VolumeRefusal::Differ { .. }) => {
            Some("omit the volumes, or stop the sandbox and change them with `burrow update`")
        }
        EngineError::Volumes(VolumeRefusal::InPlace { .. }) => Some("stop it first: `burrow stop SANDBOX`"),
        EngineError::Volumes(
            VolumeRefusal::Missing { .. } | VolumeRefusal::Other { .. } | VolumeRefusal::NotExported { .. },
        ) => Some("use `--files-only` to omit the processes"),
        EngineError::NotFound { kind: ObjectKind::Space, .. } => {
            Some("`burrow space ls` lists the memory spaces")
        }
        EngineError::SpaceInUse { .. } => {
            Some("`burrow update SANDBOX --memory own` detaches it; or delete it with `--force`")
        }
        EngineError::NotFound { kind: ObjectKind::Secret, .. } => {
            Some("`burrow secret ls` lists the secrets")
        }
        EngineError::SecretInUse { .. } => Some(
            "remove it from their rules first; or delete it with `--force`: requests that they cover are then denied",
        ),
        EngineError::SecretBusy { .. } => Some("try again in a moment"),
        EngineError::Catalog(error) => of_catalog(error),
        EngineError::Network(error) => error.hint(),
        EngineError::Vault(error) => error.hint(),
        EngineError::Memory(error) => of_memory(error),
        EngineError::Disk(error) => of_disk(error),
        EngineError::NetworkPolicy { source } => source.hint(),
        EngineError::Egress(source) => source.hint(),
        EngineError::Moving(error) => of_portable(error),
        EngineError::ImportNeeds { .. } => Some(
            "`--files-only` imports files and memory without the processes; `burrow doctor` reports what is missing",
        ),
        EngineError::UntrustedProcesses { .. } => {
            Some("`--trust KEY` accepts them from a host you know; `--files-only` omits them")
        }
        EngineError::BaseMissing { .. } => Some("import that snapshot first, or export without `--since`"),
        EngineError::ExportTooDifferent { .. } => Some("export all of it, without `--since`"),
        EngineError::NeverMoved { .. } => Some("export all of it first: `burrow export SNAPSHOT FILE`"),
        EngineError::NotFound { kind: ObjectKind::Tree, .. } => {
            Some("`burrow ls`, `burrow snapshot ls --all` and `burrow image ls` list them")
        }
        EngineError::OtherForm { .. } => Some(
            "compare sandboxes of the same driver, or create an image with `burrow image commit`: it can be compared with both",
        ),
        EngineError::TooDifferent { .. } => {
            Some("compare it with a closer ancestor: `burrow tree` shows the ancestors")
        }
        EngineError::NoCommonSnapshot { .. } => Some(
            "a fork (`burrow fork`) or a sandbox created from a snapshot can be merged into the sandbox it came from",
        ),
        EngineError::MemoryContradicts { .. } => {
            Some("`--memory list`, `ours`, `theirs` or `both` resolves them")
        }
        EngineError::MergeWithItself { .. } => {
            Some("name the child first: `burrow merge CHILD --into PARENT`")
        }
        EngineError::NotFound { kind: ObjectKind::Race, .. } => Some("`burrow race ls` lists the races"),
        EngineError::Maximum(Maximum::Races { .. }) => {
            Some("wait for one of them, or end one: `burrow race rm`")
        }
        EngineError::RaceRunning { .. } => Some("`burrow race wait` waits for its end"),
        EngineError::NoWinner { .. } => Some("`burrow race show` shows the results of its attempts"),
        EngineError::RaceSize { .. }
        | EngineError::Mount(_)
        | EngineError::VolumeFile(_)
        | EngineError::Tree(_)
        | EngineError::ServiceNotFound { .. }
        | EngineError::PortReserved { .. }
        | EngineError::Refused { .. }
        | EngineError::Gone { .. }
        | EngineError::Limits(_)
        | EngineError::Guest { .. }
        | EngineError::Policy(_)
        | EngineError::ForkCount { .. }
        | EngineError::Maximum(Maximum::AttachedSpaces { .. })
        | EngineError::Secret(_)
        | EngineError::BuildInProgress { .. }
        | EngineError::ShuttingDown
        | EngineError::Transforms { .. }
        | EngineError::Injected { .. } => None,
    }
}

fn of_runtime(error: &RuntimeError) -> Option<&'static str> {
    match error {
        RuntimeError::Obstacles { .. } => {
            Some("end that process, or use `--files-only`, `burrow pause` or `burrow stop`")
        }
        RuntimeError::TrialFailed { .. } => {
            Some("it still runs: end that process, or use `burrow pause` or `burrow stop`")
        }
        RuntimeError::NoRoomForTrial { .. } => Some(
            "it still runs: free RAM on the host, or use `burrow hibernate --untried` to do without a trial restore",
        ),
        RuntimeError::Dump { .. } => Some(
            "`burrow doctor` reports whether this host can dump processes; or use `--files-only`, `burrow pause` or `burrow stop`",
        ),
        RuntimeError::Restore { .. } => Some(
            "the files are intact: use `--files-only` to omit the processes; `burrow doctor` reports whether this host can restore them",
        ),
        RuntimeError::RestoreCut { .. } | RuntimeError::Unfit { .. } => Some(WITHOUT_PROCESSES),
        RuntimeError::Step { .. }
        | RuntimeError::Boot { .. }
        | RuntimeError::BootTimeout { .. }
        | RuntimeError::NoMachine { .. }
        | RuntimeError::Launcher { .. }
        | RuntimeError::Host { .. }
        | RuntimeError::NotPrecreated { .. }
        | RuntimeError::DumpHangs { .. }
        | RuntimeError::Disks { .. }
        | RuntimeError::NoDiskRate { .. }
        | RuntimeError::Injected => None,
    }
}

pub fn of_catalog(error: &CatalogError) -> Option<&'static str> {
    if matches!(error, CatalogError::InUse { .. }) {
        Some("stop the other daemon first (`burrow down`)")
    } else if matches!(error, CatalogError::VolumeInUse { .. }) {
        Some("delete or stop those first; `burrow update --no-volumes` detaches volumes from a stopped one")
    } else if matches!(error, CatalogError::VolumeHasSnapshots { .. }) {
        Some("`--snapshots` removes them too")
    } else {
        error.hint()
    }
}

pub fn of_audit(error: &StoreError) -> Option<&'static str> {
    if let StoreError::Commit { source } = error {
        of_audit(source)
    } else if matches!(error, StoreError::Tampered { .. } | StoreError::Note(_)) {
        Some(
            "keep a copy of the `audit` folder as evidence and compare it with a checkpoint kept elsewhere (`burrow audit verify`); the daemon starts a new log once the folder is moved away",
        )
    } else {
        error.hint()
    }
}

pub fn of_memory(error: &MemoryError) -> Option<&'static str> {
    if matches!(error, MemoryError::NotFound { .. }) {
        Some("list the existing ones, or read another branch or moment (`--as-of`)")
    } else if matches!(error, MemoryError::ReadOnly) {
        Some("leave out `--as-of` to write to the present")
    } else if matches!(error, MemoryError::SandboxFull { .. }) {
        Some(
            "forget entries, remove artifacts and the snapshots that keep them, or raise the limit: `burrow update SANDBOX --disk SIZE`",
        )
    } else if matches!(error, MemoryError::Damaged { .. } | MemoryError::DamagedRow { .. }) {
        Some("run `burrow memory check`; `rebuild` recreates the indices, a backup restores the rest")
    } else {
        error.hint()
    }
}

pub fn of_disk(error: &DiskError) -> Option<&'static str> {
    if matches!(error, DiskError::Command { .. }) {
        Some("run `burrow doctor` to see which programs are missing")
    } else if matches!(error, DiskError::Damaged { .. }) {
        Some(
            "the processes cannot be restored: start the sandbox from its files (`burrow start --files-only`), or restore a snapshot",
        )
    } else {
        error.hint()
    }
}

fn of_portable(error: &PortableError) -> Option<&'static str> {
    if matches!(error, PortableError::NotAnExport) {
        Some("create one with `burrow export SNAPSHOT FILE`")
    } else if matches!(error, PortableError::Encrypted) {
        Some("give `--identity FILE` or `--passphrase-file FILE`")
    } else if matches!(error, PortableError::KeyForm) {
        Some("`burrow export` prints the key of the exporting host")
    } else {
        error.hint()
    }
}

/// The name that was probably meant: few letters differ.
pub fn similar(text: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let most = (text.chars().count() / 3).clamp(1, 3);
    let distances = names.into_iter().map(|name| (strsim::osa_distance(text, &name), name));
    distances.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use burrow_model::{LimitsError, SandboxId, SnapshotId, TenantId};

    use super::*;

    #[test]
    fn a_name_with_few_other_letters_is_suggested() {
        let names = || ["web", "worker-1", "worker-2", "db"].map(str::to_owned);
        for (text, expected) in [
            ("wbe", Some("web")),
            ("worker1", Some("worker-1")),
            ("work", None),
            ("nonsense", None),
            ("d", Some("db")),
        ] {
            assert_eq!(similar(text, names()).as_deref(), expected, "{text}");
        }
    }

    #[track_caller]
    fn check(error: &EngineError, contains: &str) {
        let hint = of_engine(error).unwrap_or_default();
        assert!(hint.contains(contains), "{error}: {hint}");
    }

    #[test]
    fn an_error_of_a_wake_has_the_hint_of_its_reason() {
        let id = SandboxId::generate();
        let reason = Box::new(EngineError::DumpMissing { id: id.clone() });
        check(&EngineError::Wake { id, reason }, "`--files-only`");
    }

    #[test]
    fn errors_of_sleep_say_how_to_go_on_without_a_trial() {
        let id = SandboxId::generate;
        check(&EngineError::TrialCut { id: id(), reason: "x".into() }, "--untried");
        check(
            &RuntimeError::NoRoomForTrial { id: id(), needed_bytes: 2, available_bytes: 1 }.into(),
            "--untried",
        );
        check(&RuntimeError::Obstacles { id: id(), obstacles: Vec::new() }.into(), "`burrow pause`");
        let (snapshot, undo, reason) = (SnapshotId::generate(), SnapshotId::generate(), "x".to_owned());
        check(
            &EngineError::Restore(RestoreFailure::NotUndone { id: id(), snapshot, undo, reason }),
            "burrow wake",
        );
    }

    #[test]
    fn errors_of_a_host_that_lacks_something_name_the_command_that_finds_it() {
        let (id, reason) = (SandboxId::generate, || "x".to_owned());
        check(&RuntimeError::Dump { id: id(), reason: reason() }.into(), "`burrow doctor`");
        check(&RuntimeError::Restore { id: id(), reason: reason() }.into(), "`burrow doctor`");
        check(&EngineError::ImportNeeds { reason: reason() }, "`burrow doctor`");
    }

    #[test]
    fn a_damaged_audit_log_names_the_command_that_verifies_it() {
        let tampered = StoreError::Tampered { tenant: TenantId::generate(), what: "x" };
        let commit = StoreError::Commit { source: tampered.into() };
        assert!(of_audit(&commit).unwrap().contains("`burrow audit verify`"));
        assert_eq!(of_audit(&StoreError::Full), StoreError::Full.hint());
    }

    #[test]
    fn a_stopped_sandbox_is_to_be_started() {
        let refusal = Refusal::Stopped;
        check(&EngineError::Refused { id: SandboxId::generate(), request: "use", refusal }, "burrow start");
    }

    #[test]
    fn a_rate_that_cannot_be_limited_names_another_driver() {
        check(&EngineError::NoDiskRate { driver: "sim", reason: "x".into() }, "--isolation microvm");
        let zero = LimitsError { field: "network_mib_per_second", given: 0, min: 1, max: 2 };
        check(&EngineError::Limits(zero), "omit it");
    }

    #[test]
    fn errors_of_other_crates_keep_their_hints() {
        check(&EngineError::Catalog(CatalogError::BadCursor), "without a cursor");
        check(&EngineError::Disk(DiskError::NoBuilder), "apt-get install");
        check(&EngineError::Memory(MemoryError::DiskFull), "free space");
        check(&EngineError::Moving(PortableError::Truncated), "export it again");
        let damaged = MemoryError::Damaged { file: "space.db".into(), why: "x".into() };
        check(&EngineError::Memory(damaged), "`burrow memory check`");
        check(&EngineError::Moving(PortableError::Encrypted), "`--identity FILE`");
        check(
            &EngineError::Catalog(CatalogError::VolumeHasSnapshots {
                name: "data".parse().unwrap(),
                count: 1,
            }),
            "`--snapshots`",
        );
    }
}

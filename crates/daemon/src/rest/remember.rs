//! What becomes of an exec that has ended: a memory of it, and, where it failed, what is remembered of such failures.
//!
//! ```text
//!   exit seen ─► first to see it? ─► facts ─► [failed: related, 50 ms at most] ─► answer
//!                                        └──► in the background: changed files ─► record
//! ```
//!
//! Nothing of it holds up output, and only the answer of a failure waits, briefly. A memory that cannot be written is
//! counted and logged, never the caller's trouble. What was undone by `rollback_on_failure` is recorded afterwards, on
//! the branch that goes on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_api::memory::RelatedMemory;
use burrow_api::{Exec, ExecOutcome, OutputStream};
use burrow_catalog::SandboxRow;
use burrow_engine::{EngineError, Guest};
use burrow_guest::client::parse;
use burrow_guest::protocol::{self, Attach, AttachNotice, ExecInfo, Frame, ListFiles, ReadMode, Request};
use burrow_memory::remember::{self, Earlier, ExecFacts, SessionOf};
use burrow_memory::{Condition, Filter, MemoryError, Op, PageRequest, View};
use burrow_model::{ExecId, MemoryRef, Remember, SandboxId, State, TenantId};
use tokio::sync::{Semaphore, oneshot};

use super::App;
use super::error::ApiError;
use super::rollback::Guarded;
use crate::convert;

/// Bytes kept of the end of each stream: what an error says is in there.
const TAIL_BYTES: usize = 16 << 10;

/// How long the answer of a failed exec waits for what is related to it.
const RELATED_PATIENCE: Duration = Duration::from_millis(50);

/// Execs being remembered at once. Beyond that they come faster than a disk can write, and some are let go.
const AT_ONCE_MAX: usize = 256;

/// Execs of which it is known that they were remembered: several may watch one to its end.
const SEEN_MAX: usize = 10_000;

/// Execs nobody waits for whose end is waited for here. Of more than these the end is seen when somebody asks.
const FOLLOWED_MAX: usize = 1_024;

/// Execs whose secrets are kept in mind.
const GIVEN_MAX: usize = 4_096;

/// Commands that went well which are kept in mind, of all sandboxes: a few megabytes. And of one, to be asked for.
const WENT_WELL_MAX: usize = 10_000;
const EARLIER_MAX: usize = 50;

/// One wait for the end of an exec; asked again until it has ended.
const END_PATIENCE: Duration = Duration::from_secs(300);

/// How much earlier they are told who watch an exec.
const WATCHERS_FIRST: Duration = Duration::from_secs(2);

/// Between two looks at a sandbox that sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Looks at a running sandbox whose guest says nothing of the exec before it is given up.
const UNKNOWN_MAX: u32 = 15;

/// Where changed files are looked for: deep enough for a project, few enough to be quick.
const FILES_DEPTH: u32 = 4;
const FILES_LISTED_MAX: u32 = 5_000;
const FILES_CHANGED_MAX: usize = 100;

/// For all that the guest is asked for behind the caller's back.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);

/// The ends of both streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tails {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Tails {
    /// Keeps the end. Copies little: twice the bound is let in before it is cut.
    pub(crate) fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        let kept = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        kept.extend_from_slice(bytes);
        if kept.len() > 2 * TAIL_BYTES {
            kept.drain(..kept.len() - TAIL_BYTES);
        }
    }

    fn texts(&self) -> (String, String) {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
        };
        (text(&self.stdout), text(&self.stderr))
    }
}

/// Which execs were remembered, and how many are about to be.
#[derive(Debug)]
pub(crate) struct Remembering {
    seen: Mutex<Seen>,
    slots: Arc<Semaphore>,
    followed: Arc<Semaphore>,
    /// What execs that run were given and is secret. Oldest first.
    given: Mutex<VecDeque<(String, Vec<String>)>>,
    /// What went well lately, of sandboxes that remember failures only. Oldest first.
    went_well: Mutex<VecDeque<(SandboxId, Earlier)>>,
    calm: Mutex<Calm>,
}

/// Sandboxes whose own memory holds no failure that a success might end: most, most of the time.
#[derive(Debug, Default)]
struct Calm {
    /// On which branch: one that goes back, or is moved to another, is asked again.
    branches: HashMap<SandboxId, MemoryRef>,
    /// Counts failures, before and after each is recorded: who looked in between looked too early.
    failures: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// With what was found to be related to them, for who asks later.
    execs: HashMap<String, Vec<RelatedMemory>>,
    order: VecDeque<String>,
}

impl Remembering {
    pub(crate) fn new() -> Self {
        Self {
            seen: Mutex::default(),
            slots: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            followed: Arc::new(Semaphore::new(FOLLOWED_MAX)),
            given: Mutex::default(),
            went_well: Mutex::default(),
            calm: Mutex::default(),
        }
    }

    fn calm(&self) -> MutexGuard<'_, Calm> {
        self.calm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a success of this sandbox is known to end no failure.
    fn is_calm(&self, row: &SandboxRow) -> bool {
        let own = row.spec.memory.space.is_none();
        own && self.calm().branches.get(&row.id).is_some_and(|branch| *branch == row.memory())
    }

    /// There was no open failure, as somebody found who began when `failures` was this. A space that others write to, too,
    /// is asked each time.
    fn set_calm(&self, row: &SandboxRow, failures: u64) {
        let mut calm = self.calm();
        if calm.failures == failures && row.spec.memory.space.is_none() {
            if calm.branches.len() >= SEEN_MAX {
                calm.branches.clear();
            }
            calm.branches.insert(row.id.clone(), row.memory());
        }
    }

    /// A failure is about to be recorded, or was.
    fn failing(&self, sandbox: &SandboxId) {
        let mut calm = self.calm();
        calm.failures += 1;
        calm.branches.remove(sandbox);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps secrets that an exec is given in mind until it has ended, so that none of them is remembered.
    pub(crate) fn given(&self, exec: &ExecId, secrets: Vec<String>) {
        if secrets.is_empty() {
            return;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push_back((exec.to_string(), secrets));
        if given.len() > GIVEN_MAX {
            given.pop_front();
        }
    }

    /// What an exec that has ended was given; it is not kept any longer.
    fn take_secrets(&self, exec: &Exec) -> Vec<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let at = given.iter().position(|(of, _)| *of == exec.id);
        at.and_then(|at| given.remove(at)).map(|(_, secrets)| secrets).unwrap_or_default()
    }

    /// Keeps what went well in mind: it may be what mends a failure.
    fn note(&self, sandbox: &SandboxId, facts: &ExecFacts) {
        let Some(earlier) = Earlier::of(&facts.command, facts.at_ms) else { return };
        let mut went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        went_well.push_back((sandbox.clone(), earlier));
        if went_well.len() > WENT_WELL_MAX {
            went_well.pop_front();
        }
    }

    fn went_well(&self, sandbox: &SandboxId) -> Vec<Earlier> {
        let went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = went_well.iter().rev().filter(|(of, _)| of == sandbox);
        of_it.take(EARLIER_MAX).map(|(_, earlier)| earlier.clone()).collect()
    }

    /// What is related to it, where there is nothing left to remember of it.
    fn known(&self, exec: &Exec) -> Option<Vec<RelatedMemory>> {
        self.seen().execs.get(&exec.id).cloned()
    }

    /// Keeps what was found for who asks later.
    fn found(&self, exec: &Exec, related: &[RelatedMemory]) {
        if let Some(known) = self.seen().execs.get_mut(&exec.id) {
            *known = related.to_vec();
        }
    }

    /// Whether nobody told of this exec's end before.
    fn first(&self, exec: &Exec) -> bool {
        let mut seen = self.seen();
        if seen.execs.contains_key(&exec.id) {
            return false;
        }
        seen.execs.insert(exec.id.clone(), Vec::new());
        seen.order.push_back(exec.id.clone());
        if seen.order.len() > SEEN_MAX
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.execs.remove(&oldest);
        }
        true
    }
}

/// An exec that has ended, with what is remembered of failures like it.
pub(crate) async fn remembered(app: &Arc<App>, guest: &Guest, mut exec: Exec, tails: &Tails) -> Exec {
    let mode = guest.sandbox().spec.memory.remember;
    let Some(outcome) = exec.outcome.clone() else { return exec };
    if mode == Remember::Off {
        app.remembering.take_secrets(&exec);
        return exec;
    }
    if !app.remembering.first(&exec) {
        exec.related = app.remembering.known(&exec).unwrap_or_default();
        return exec;
    }
    let Ok(slot) = app.remembering.slots.clone().try_acquire_owned() else {
        app.metrics.memory.remembered(false);
        return exec;
    };
    let mut facts = facts(guest.sandbox(), &exec, &outcome, tails, app.engine.now_ms());
    facts.secrets.extend(app.remembering.take_secrets(&exec));
    let failed = outcome.exit_code != Some(0);
    if mode == Remember::Errors && !failed && app.remembering.is_calm(guest.sandbox()) {
        app.remembering.note(&guest.sandbox().id, &facts);
        return exec;
    }
    let (send, related) = oneshot::channel();
    let (task_app, guest, ended) = (app.clone(), guest.clone(), exec.clone());
    app.tasks.spawn(async move {
        let _slot = slot;
        let kept = keep(&task_app, &guest, (mode, &ended), facts, failed.then_some(send)).await;
        let kept = match kept {
            // It went away meanwhile, and so did its memory: an ephemeral one does, with its only exec.
            Err(EngineError::NotFound { .. } | EngineError::Gone { .. } | EngineError::ShuttingDown) => return,
            kept => kept,
        };
        task_app.metrics.memory.remembered(kept.is_ok());
        if let Err(error) = kept {
            tracing::warn!(sandbox = %guest.sandbox().id, error = &error as &dyn std::error::Error, "could not remember an exec");
        }
    });
    if failed && let Ok(Ok(related)) = tokio::time::timeout(RELATED_PATIENCE, related).await {
        exec.related = related;
    }
    exec
}

/// When it ended is when we heard of it: a sandbox's clock is the sandbox's.
fn facts(row: &SandboxRow, exec: &Exec, outcome: &ExecOutcome, tails: &Tails, now_ms: u64) -> ExecFacts {
    let (stdout_tail, stderr_tail) = tails.texts();
    ExecFacts {
        command: exec.argv.clone(),
        exit_code: outcome.exit_code,
        signal: outcome.signal.clone(),
        duration_ms: outcome.wall_us / 1000,
        stdout_tail,
        stderr_tail,
        files_changed: Vec::new(),
        user: row.spec.user.clone(),
        workdir: row.spec.workdir.clone(),
        at_ms: now_ms,
        earlier: Vec::new(),
        secrets: remember::secret_values(&row.spec.env),
    }
}

/// Looks for what is related, then records. The sandbox may have gone back to a snapshot: its row says on which branch
/// it remembers now.
async fn keep(
    app: &App,
    guest: &Guest,
    (mode, exec): (Remember, &Exec),
    mut facts: ExecFacts,
    tell: Option<oneshot::Sender<Vec<RelatedMemory>>>,
) -> Result<(), EngineError> {
    let row = app.engine.get(&guest.sandbox().tenant, &guest.sandbox().id).await?;
    let since_ms = row.started_ms;
    place(app, &row, &exec.id, &mut facts).await?;
    let scope = app.engine.memory_of_sandbox(row).await?;
    let view = &scope.primary.view;
    if let Some(tell) = tell {
        let related = remember::related(view, &facts, None).await?;
        let related: Vec<RelatedMemory> = related.into_iter().map(convert::related).collect();
        app.remembering.found(exec, &related);
        let _ = tell.send(related);
    }
    let failed = facts.exit_code != Some(0);
    let remembering = &app.remembering;
    let sandbox = &guest.sandbox().id;
    if mode == Remember::Errors && !failed {
        facts.earlier = remembering.went_well(sandbox);
        remembering.note(sandbox, &facts);
        let failures = remembering.calm().failures;
        if !has_open_failures(view).await? {
            scope.sandbox.iter().for_each(|row| remembering.set_calm(row, failures));
            return Ok(());
        }
    }
    facts.files_changed = files_changed(guest, &facts, exec.started_ms).await;
    let of = SessionOf { name: scope.label, since_ms };
    let session = remember::current_session(view, &of, facts.at_ms).await?;
    if failed {
        remembering.failing(sandbox);
    }
    let recorded = remember::record(view, &facts, mode, &session).await;
    if failed {
        remembering.failing(sandbox);
    }
    recorded?;
    Ok(())
}

/// Whether a success may be the end of a failure. Most are not, and cost no more than this question.
async fn has_open_failures(view: &View) -> Result<bool, MemoryError> {
    let open = Condition { path: "open".to_owned(), op: Op::Eq, value: serde_json::Value::Bool(true) };
    let filter = Filter { kinds: vec!["error".to_owned()], metadata: vec![open], ..Filter::all() };
    Ok(!view.list(&filter, PageRequest::first(1)).await?.rows.is_empty())
}

/// Where it ran and as whom, as far as whoever started it said.
async fn place(app: &App, row: &SandboxRow, exec: &str, facts: &mut ExecFacts) -> Result<(), EngineError> {
    let Ok(id) = exec.parse::<ExecId>() else { return Ok(()) };
    let Some(stored) = app.engine.catalog().exec(&row.tenant, &id).await? else { return Ok(()) };
    let said = |field: &str| stored.command.get(field).and_then(serde_json::Value::as_str).map(str::to_owned);
    facts.workdir = said("workdir").or_else(|| said("cwd")).or(facts.workdir.take());
    facts.user = said("user").or(facts.user.take());
    Ok(())
}

/// What in the working directory is younger than the exec. Nobody waits for this, and nothing of it is vital.
async fn files_changed(guest: &Guest, facts: &ExecFacts, started_ms: u64) -> Vec<String> {
    let folder = match facts.workdir.as_deref() {
        Some("/") => return Vec::new(),
        Some(folder) => folder.to_owned(),
        // As the guest does. One that is not there has nothing in it.
        None => home_of(facts.user.as_deref()),
    };
    // Of what a guest lists only what it was asked for counts; and not caches and the like, which programs keep.
    let wanted = |path: &str| {
        let within = path.strip_prefix(folder.trim_end_matches('/'));
        within.is_some_and(|rest| rest.starts_with('/') && !rest.contains("/."))
    };
    let since_ms = i64::try_from(started_ms).unwrap_or(i64::MAX);
    let list = ListFiles { path: folder.clone(), depth: FILES_DEPTH, entries_max: FILES_LISTED_MAX };
    let listed = tokio::time::timeout(GUEST_PATIENCE, listed(guest, list)).await;
    let mut changed: Vec<String> = listed
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| entry.kind == protocol::FileKind::File && entry.modified_ms >= since_ms)
        .filter(|entry| wanted(&entry.path))
        .map(|entry| entry.path)
        .collect();
    changed.sort();
    changed.truncate(FILES_CHANGED_MAX);
    changed
}

/// Where a process without a working directory starts.
fn home_of(user: Option<&str>) -> String {
    match user.unwrap_or("root").split(':').next().unwrap_or_default() {
        "" | "root" | "0" => "/root".to_owned(),
        name => format!("/home/{name}"),
    }
}

async fn listed(guest: &Guest, list: ListFiles) -> Vec<protocol::FileEntry> {
    let mut found = Vec::new();
    let Ok(mut connection) = guest.open(&Request::ListStream(list)).await else { return found };
    if guest.reply::<()>(&mut connection).await.is_err() {
        return found;
    }
    let (mut reader, _writer) = connection.split();
    while let Ok(Some(Frame::Control(json))) = reader.next().await {
        match parse::<Vec<protocol::FileEntry>>(&json) {
            Ok(entries) => found.extend(entries),
            Err(_) => break,
        }
    }
    found
}

/// Remembers an exec that nobody waits for, when it ends. Its sandbox may sleep meanwhile, and is not woken for this.
/// `promise` undoes what failed: that comes first.
pub(crate) fn remember_at_end(app: &Arc<App>, guest: &Guest, exec: &ExecId, promise: Option<Arc<Guarded>>) {
    if guest.sandbox().spec.memory.remember == Remember::Off {
        return;
    }
    let Ok(slot) = app.remembering.followed.clone().try_acquire_owned() else { return };
    let (work_app, guest, exec) = (app.clone(), guest.looked_at(), exec.clone());
    app.tasks.spawn(async move {
        let _slot = slot;
        let app = &work_app;
        let work = async {
            let (guest, info) = end_of(app, guest, &exec).await?;
            let ended = convert::exec_started(&guest.sandbox().id, info);
            let tails = tails_of(&guest, &ended).await.unwrap_or_default();
            if let Some(promise) = promise {
                promise.settled().await;
            }
            // Whoever watches it is told what is related to its failure.
            tokio::time::sleep(WATCHERS_FIRST).await;
            Some((guest, ended, tails))
        };
        let Some(Some((guest, ended, tails))) = app.draining.run_until_cancelled(work).await else { return };
        let of = guest.sandbox();
        let wanted = app.engine.get(&of.tenant, &of.id).await;
        if wanted.is_ok_and(|row| row.spec.memory.remember != Remember::Off) {
            remembered(app, &guest, ended, &tails).await;
        }
    });
}

/// The exec once it has ended; `None` where nobody can tell any more.
async fn end_of(app: &App, mut guest: Guest, exec: &ExecId) -> Option<(Guest, ExecInfo)> {
    let (tenant, sandbox) = (guest.sandbox().tenant.clone(), guest.sandbox().id.clone());
    let timeout_ms = u64::try_from(END_PATIENCE.as_millis()).unwrap_or(u64::MAX);
    let wait = Request::ExecWait { exec: exec.to_string(), timeout_ms };
    let mut unknown = 0;
    loop {
        match guest.call_within::<ExecInfo>(END_PATIENCE + GUEST_PATIENCE, &wait).await {
            Ok(info) if info.state == protocol::ExecState::Running => {
                unknown = 0;
                continue;
            }
            Ok(info) => return Some((guest, info)),
            Err(_) => {}
        }
        // Its machine went to sleep, or away: the row says which.
        match app.engine.get(&tenant, &sandbox).await.ok()?.state {
            State::Running => {
                unknown += 1;
                guest = app.engine.guest(&tenant, &sandbox).await.ok()?.looked_at();
            }
            State::Paused | State::Hibernating | State::Hibernated | State::Waking | State::Restoring => {
                unknown = 0;
            }
            State::Creating
            | State::Starting
            | State::Stopping
            | State::Stopped
            | State::Deleting
            | State::Failed => return None,
        }
        if unknown > UNKNOWN_MAX {
            return None;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The same for an exec whose output nobody here has read: its end is fetched first.
pub(super) async fn remembered_late(
    app: &Arc<App>,
    tenant: &TenantId,
    sandbox: &SandboxId,
    mut exec: Exec,
) -> Exec {
    if exec.outcome.is_none() {
        return exec;
    }
    if let Some(related) = app.remembering.known(&exec) {
        exec.related = related;
        return exec;
    }
    let fetched = async {
        let row = app.engine.get(tenant, sandbox).await?;
        // A sandbox that sleeps is not woken for this.
        if row.state != State::Running || row.spec.memory.remember == Remember::Off {
            return Ok(None);
        }
        let guest = app.engine.guest(tenant, sandbox).await?;
        let tails = tails_of(&guest, &exec).await?;
        Ok::<_, ApiError>(Some((guest, tails)))
    };
    match tokio::time::timeout(GUEST_PATIENCE, fetched).await {
        Ok(Ok(Some((guest, tails)))) => remembered(app, &guest, exec, &tails).await,
        Ok(Ok(None) | Err(_)) | Err(_) => exec,
    }
}

async fn tails_of(guest: &Guest, exec: &Exec) -> Result<Tails, ApiError> {
    let offset = exec.output_end.saturating_sub(2 * TAIL_BYTES as u64).max(exec.output_start);
    let request =
        Request::Attach(Attach { exec: exec.id.clone(), offset, mode: ReadMode::Lossy, follow: false });
    let mut connection = guest.open(&request).await?;
    let _info: ExecInfo = guest.reply(&mut connection).await?;
    let (mut reader, _writer) = connection.split();
    let mut tails = Tails::default();
    while let Some(frame) = reader.next().await.map_err(|error| guest.error(error))? {
        if let Some((stream, _, bytes)) = convert::stream_of(&frame) {
            tails.push(stream, bytes);
            continue;
        }
        let Frame::Control(json) = &frame else { break };
        match parse::<AttachNotice>(json).map_err(|error| guest.error(error))? {
            AttachNotice::Gap { .. } => {}
            AttachNotice::Exit(_) | AttachNotice::Drained { .. } => break,
        }
    }
    Ok(tails)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_each_stream_is_kept_whatever_the_size_of_its_pieces() {
        let mut tails = Tails::default();
        for number in 0..10_000 {
            tails.push(OutputStream::Stdout, format!("line {number}\n").as_bytes());
        }
        tails.push(OutputStream::Stderr, &vec![b'x'; 5 * TAIL_BYTES]);
        let (stdout, stderr) = tails.texts();
        assert!(stdout.ends_with("line 9999\n") && stdout.len() == TAIL_BYTES);
        assert_eq!(stderr.len(), TAIL_BYTES);
    }
}

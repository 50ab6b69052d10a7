//! The audit log: events per second that are durable when they are acknowledged, and the time to verify a million.
//!
//! Measures the crate itself, on the disk where daemons keep their state: the spool as the egress process writes it, the
//! log as the daemon writes it, and the verifier of `burrow audit verify --export`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use burrow_audit::note::Checkpoint;
use burrow_audit::spool::{Segment, Writer};
use burrow_audit::verify::Verifier;
use burrow_audit::{Action, Durability, Event, Outcome, Store, export};
use burrow_model::{SandboxId, TenantId};

use super::{Scale, at_once};
use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::report::{Figure, Target};

/// Requests that are decided at the same time, each of which waits for its event.
const AT_ONCE: u64 = 256;
/// Events per append while the log is filled.
const BATCH: u64 = 1000;

const DURABLE: Target = Target::AtLeast { limit: 5_000.0 };
const VERIFY: Target = Target::Below { limit: 10.0 };

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let folder = tempfile::Builder::new()
        .prefix("bench-audit-")
        .tempdir_in(&prepared.state)
        .map_err(BenchError::io("make a folder in", prepared.state.display()))?;
    let tenant = TenantId::generate();
    let spooled = spooled(folder.path(), &tenant, scale.audit_events).await?;
    let store = Store::open(&folder.path().join("audit")).map_err(wrong)?;
    let stored = stored(&store, &tenant, scale.audit_events).await?;
    let verified = verified(&store, &tenant, folder.path(), scale.audit_verified).await?;
    let note = "events per second that the spool has synced, 256 waiting at once";
    let spool = Figure::new("audit.spool", spooled, "1/s", note).target(DURABLE);
    let note = "events per second that the log has committed and synced, 256 waiting at once";
    let store = Figure::new("audit.store", stored, "1/s", note).target(DURABLE);
    let note = "seconds to verify an export of a million events, its file in the page cache";
    Ok(vec![spool, store, Figure::new("audit.verify", verified, "s", note).target(VERIFY)])
}

fn event(tenant: &TenantId, sandbox: &SandboxId, number: u64) -> Event {
    Event {
        actor: Some("sandbox".into()),
        sandbox: Some(sandbox.clone()),
        rule: Some("api.example".into()),
        host: Some("api.example".into()),
        port: Some(443),
        method: Some("POST".into()),
        path: Some("/v1/chat/completions".into()),
        secret: Some("openai-api-key".into()),
        bytes_out: Some(number),
        ..Event::new(1_700_000_000_000 + number, tenant.clone(), Action::EgressInject, Outcome::Allowed)
    }
}

fn wrong(error: impl std::error::Error) -> BenchError {
    BenchError::WrongAnswer { what: crate::error::chain(&error) }
}

#[expect(clippy::cast_precision_loss, reason = "counts of events are small")]
fn per_second(count: u64, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

async fn spooled(folder: &Path, tenant: &TenantId, events: u64) -> Result<f64, BenchError> {
    let segment =
        Segment::create(folder, 1).map_err(BenchError::io("make a segment in", folder.display()))?;
    let writer = Writer::start(segment.file).map_err(BenchError::io("write to", segment.path.display()))?;
    let sandbox = SandboxId::generate();
    let began = Instant::now();
    let clients = (0..AT_ONCE).map(|_| {
        let (writer, tenant, sandbox) = (writer.clone(), tenant.clone(), sandbox.clone());
        async move {
            for number in 0..events / AT_ONCE {
                writer.record(&event(&tenant, &sandbox, number)).await.map_err(wrong)?;
            }
            Ok(())
        }
    });
    at_once(clients.collect()).await?;
    Ok(per_second(events / AT_ONCE * AT_ONCE, began))
}

async fn stored(store: &Store, tenant: &TenantId, events: u64) -> Result<f64, BenchError> {
    let sandbox = SandboxId::generate();
    let began = Instant::now();
    let clients = (0..AT_ONCE).map(|_| {
        let (store, tenant, sandbox) = (store.clone(), tenant.clone(), sandbox.clone());
        async move {
            for number in 0..events / AT_ONCE {
                let event = vec![event(&tenant, &sandbox, number)];
                store.append(event, number, Durability::Power).await.map_err(wrong)?;
            }
            Ok(())
        }
    });
    at_once(clients.collect()).await?;
    Ok(per_second(events / AT_ONCE * AT_ONCE, began))
}

/// Fills the log, writes its export, and returns the seconds of its verification, scaled to a million events.
async fn verified(store: &Store, tenant: &TenantId, folder: &Path, events: u64) -> Result<f64, BenchError> {
    let sandbox = SandboxId::generate();
    while store.size(tenant).await.map_err(wrong)? < events {
        let batch = (0..BATCH).map(|number| event(tenant, &sandbox, number)).collect();
        store.append(batch, 0, Durability::Process).await.map_err(wrong)?;
    }
    let path = folder.join("export.jsonl");
    let failed = |step: &'static str| BenchError::io(step, path.display());
    let note = store.checkpoint(tenant).await.map_err(wrong)?;
    let size = Checkpoint::read(&note).map_err(wrong)?.size;
    let mut file = BufWriter::new(File::create(&path).map_err(failed("write"))?);
    let mut piece = Vec::new();
    for from in (0..size).step_by(10_000) {
        piece.clear();
        for outline in store.outlines(tenant, from, size.min(from + 10_000)).await.map_err(wrong)? {
            export::write_outline(&outline, &mut piece);
        }
        file.write_all(&piece).map_err(failed("write"))?;
    }
    piece.clear();
    export::write_checkpoint(&note, &mut piece);
    file.write_all(&piece).and_then(|()| file.flush()).map_err(failed("write"))?;
    let began = Instant::now();
    let mut verifier = Verifier::new(Vec::new());
    let mut lines = BufReader::with_capacity(1 << 20, File::open(&path).map_err(failed("read"))?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).map_err(failed("read"))? > 0 {
        verifier.line(&line).map_err(wrong)?;
        line.clear();
    }
    let verified = verifier.finish(Some(&store.public_key())).map_err(wrong)?;
    let took = began.elapsed().as_secs_f64();
    if verified.events != size {
        return Err(BenchError::WrongAnswer { what: format!("{} of {size} events", verified.events) });
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of events are small")]
    Ok(took * 1e6 / size as f64)
}

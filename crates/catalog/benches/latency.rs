//! Latency of the catalog on this machine: `cargo bench -p burrow-catalog`.
//!
//! Prints `name value unit` lines and asserts nothing: figures depend on the disk.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use burrow_catalog::{
    Catalog, ExecRow, ExecState, NewEvent, NewKey, OperationRow, PageRequest, SandboxFilter, SandboxRow,
};
use burrow_model::{
    ExecId, ImageId, Lifetime, Limits, OperationId, Rates, SandboxId, SandboxSpec, Scope, State, TenantId,
};
use serde_json::json;

const WRITES: usize = 400;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let directory = tempfile::tempdir_in(std::env::var_os("BURROW_BENCH_DIR").unwrap_or("/tmp".into()))?;
    let catalog = Catalog::open(&directory.path().join("catalog.db"))?;
    runtime.block_on(async {
        create("create, 1 writer", &catalog, 1).await?;
        create("create, 8 writers", &catalog, 8).await?;
        execs_and_events(&catalog).await?;
        lists(&catalog).await
    })
}

async fn create(name: &str, catalog: &Catalog, writers: usize) -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..writers {
        let catalog = catalog.clone();
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            for number in 0..WRITES {
                let row = sandbox(&catalog.default_tenant(), number as u64);
                let operation = operation(&row);
                let begun = Instant::now();
                catalog.insert_sandbox_with_operation(row, operation, None).await?;
                times.push(begun.elapsed());
            }
            Ok::<_, burrow_catalog::CatalogError>(times)
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let rate = times.len() as f64 / begun.elapsed().as_secs_f64();
    report(name, times)?;
    writeln!(std::io::stdout(), "{name}: {rate:.0} per second")?;
    Ok(())
}

async fn execs_and_events(catalog: &Catalog) -> Result<(), Box<dyn std::error::Error>> {
    let tenant = catalog.default_tenant();
    let row = sandbox(&tenant, 0);
    catalog.insert_sandbox_with_operation(row.clone(), operation(&row), None).await?;
    let (mut inserts, mut events) = (Vec::new(), Vec::new());
    for number in 0..WRITES {
        let exec = exec(&row, number as u64);
        let event = NewEvent {
            tenant: tenant.clone(),
            at_ms: 0,
            kind: "exec.started".to_owned(),
            sandbox: Some(row.id.clone()),
            exec: Some(exec.id.clone()),
            detail: json!({}),
        };
        let begun = Instant::now();
        catalog.insert_exec(exec).await?;
        inserts.push(begun.elapsed());
        let begun = Instant::now();
        catalog.append_event(event).await?;
        events.push(begun.elapsed());
    }
    report("exec insert", inserts)?;
    report("event append", events)
}

async fn lists(catalog: &Catalog) -> Result<(), Box<dyn std::error::Error>> {
    let tenant = catalog.default_tenant();
    let (mut thousand, mut hundred, mut one, mut keys) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let new = NewKey {
        tenant: tenant.clone(),
        name: "bench".to_owned(),
        scope: Scope::Admin,
        sandbox: None,
        forks: false,
        parent: None,
        created_ms: 0,
        expires_ms: None,
    };
    let (_, secret) = catalog.create_key(new).await?;
    for _ in 0..100 {
        for (limit, times) in [(1000, &mut thousand), (100, &mut hundred), (1, &mut one)] {
            let begun = Instant::now();
            let page = PageRequest { cursor: None, limit };
            let page = catalog.list_sandboxes(&tenant, SandboxFilter::default(), page).await?;
            times.push(begun.elapsed());
            assert_eq!(page.rows.len(), limit as usize);
        }
        let begun = Instant::now();
        assert!(catalog.authenticate(secret.expose(), 1).is_some());
        keys.push(begun.elapsed());
    }
    report("list of 1000", thousand)?;
    report("list of 100", hundred)?;
    report("list of 1", one)?;
    report("authenticate", keys)
}

fn report(name: &str, mut times: Vec<Duration>) -> Result<(), Box<dyn std::error::Error>> {
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    writeln!(std::io::stdout(), "{name}: p50 {:.3} ms, p99 {:.3} ms", at(0.5), at(0.99))?;
    Ok(())
}

fn sandbox(tenant: &TenantId, created_ms: u64) -> SandboxRow {
    let limits = Limits { ram_mib: 512, cpu_millis: 1000, pids: 256, disk_mib: 1024 };
    SandboxRow {
        id: SandboxId::generate(),
        tenant: tenant.clone(),
        name: None,
        spec: SandboxSpec {
            image: "base".parse().expect("a name"),
            driver: "container".to_owned(),
            limits,
            rates: Rates::unlimited(),
            env: BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            workdir: None,
            user: None,
            lifetime: Lifetime::Persistent { expires_ms: None },
            services: BTreeMap::new(),
            network: burrow_model::NetworkPolicy::closed(),
            sleep: burrow_model::SleepPolicy::never(),
            snapshots: None,
            rotate: None,
            memory: burrow_model::MemorySpec::quiet(),
            lease: None,
            volumes: Vec::new(),
        },
        state: State::Creating,
        stop_reason: None,
        image: ImageId::generate(),
        token: "token".to_owned(),
        machine: None,
        created_ms,
        updated_ms: created_ms,
        started_ms: None,
        stopped_ms: None,
        failure: None,
        generation: 0,
        dump: None,
        origin: None,
        active_ms: None,
        slept_ms: None,
        rotated_ms: None,
        snapshotted_ms: None,
        branch: None,
    }
}

fn operation(row: &SandboxRow) -> OperationRow {
    OperationRow {
        id: OperationId::generate(),
        tenant: row.tenant.clone(),
        sandbox: row.id.clone(),
        kind: "create".to_owned(),
        steps: json!(["volume", "network", "machine"]),
        started_ms: row.created_ms,
        detail: json!({}),
    }
}

fn exec(row: &SandboxRow, started_ms: u64) -> ExecRow {
    ExecRow {
        id: ExecId::generate(),
        tenant: row.tenant.clone(),
        sandbox: row.id.clone(),
        argv: vec!["true".to_owned()],
        command: json!({}),
        started_ms,
        ended_ms: None,
        outcome: None,
        state: ExecState::Running,
        generation: 1,
    }
}

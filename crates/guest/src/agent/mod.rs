//! The in-sandbox agent: PID 1 of every sandbox, and the only way the host reaches into it.
//!
//! ```text
//!   fd 0: Boot ──► boot ──► listener ──► server ──► one task per connection
//!                                           │ ├─ exec/      processes, their output logs, attached readers
//!   SIGCHLD ──► reaper ──► exec table ◄─────┘ ├─ files/     read, write, list, tar, watch
//!                              ▲              ├─ machine/   statistics, /proc/meminfo
//!                              │              ├─ ports/     what listens, pipes into it
//!                              └─ services ◄──┴─ shutdown
//! ```
//!
//! One thread runs everything but disk work, which goes to a small pool. State is therefore `Rc` and `RefCell`;
//! no borrow is held across an `.await`. The agent trusts neither side: processes inside are hostile by assumption,
//! and a host that sends rubbish or never reads costs a bounded buffer.
//!
//! In a microVM the same program is the kernel's first: [`vm`] does before and beside what the host does for containers.
//!
//! Absent: a logger (nobody would read it), any knowledge of the host but [`crate::protocol`].

mod boot;
mod clock;
mod connections;
mod exec;
mod failure;
mod files;
mod identity;
mod machine;
mod ports;
mod reaper;
mod server;
mod services;
mod shutdown;
mod signals;
mod trust;
mod truststore;
mod unsent;
mod users;
mod vm;
mod watched;
mod wire;

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Rlimit;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;

use crate::protocol::{Boot, BootReport};

/// Disk work runs here. Streams hold one of these threads while they wait for the network for a millisecond at most.
const BLOCKING_THREADS_MAX: usize = 8;

/// Nothing on these threads recurses; the default of 2 MiB would only be address space, but 200 sandboxes add up.
const BLOCKING_STACK_BYTES: usize = 256 * 1024;

/// Idle threads go soon, so that a sandbox at rest holds one.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(2);

/// What every task of the agent shares.
struct Agent {
    boot: boot::Booted,
    execs: exec::Table,
    services: services::Services,
    meminfo: machine::Meminfo,
    relays: ports::Relays,
    connections: connections::Connections,
    /// Where execs run in a microVM; a container has one around it.
    group: Option<vm::Group>,
    shutting_down: Cell<bool>,
    is_down: Cell<bool>,
    down: Notify,
}

/// Boots from standard input and serves until the sandbox is shut down.
pub fn run() -> ExitCode {
    start(None)
}

/// Boots as the first process of a microVM, and ends the machine when the sandbox is shut down.
pub fn run_vm() -> ExitCode {
    let machine = vm::prepare();
    start(Some(machine));
    vm::reboot()
}

/// Reads disks as the first process of a microVM, and ends it.
pub fn run_vm_reader() -> ! {
    vm::read_disks()
}

/// Ends the microVM whose first process this is.
pub fn end_vm() -> ! {
    vm::reboot()
}

fn start(machine: Option<vm::Machine>) -> ExitCode {
    let open_files = boot::tune_process();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(BLOCKING_STACK_BYTES)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            boot::refuse_at_once("start the runtime", &error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        match boot::Host::meet(machine).await {
            Ok((boot, group, host)) => serve(open_files, boot, group, host).await,
            Err(()) => ExitCode::FAILURE,
        }
    });
    // Disk work that hangs must not keep a sandbox alive that everybody believes ended.
    runtime.shutdown_background();
    code
}

async fn serve(open_files: Rlimit, boot: Boot, group: Option<vm::Group>, mut host: boot::Host) -> ExitCode {
    // Children may only exist once somebody reaps them.
    let reaper = match reaper::Reaper::new() {
        Ok(reaper) => reaper,
        Err(error) => return host.refuse("watch for ended children", &error.to_string()).await,
    };
    let listener = match boot::listen(boot.listen) {
        Ok(listener) => listener,
        Err(error) => return host.refuse("listen", &error.to_string()).await,
    };
    let agent = Rc::new(Agent::new(boot::Booted::new(&boot, open_files), boot.ram_bytes, group));
    tokio::task::spawn_local(reaper.run(Rc::clone(&agent)));
    if boot.renew
        && let Err(error) = identity::renew(&agent, None).await
    {
        return host.refuse("take an identity of its own", &error.message).await;
    }
    // Before anything runs that could look for it. A disk too full for it is no reason not to have the sandbox.
    if boot.trust.is_some() || trust::is_set() {
        let _ = trust::set(boot.trust).await;
    }
    if let Err(error) = host.report(&BootReport::Ready).await {
        return host.refuse("report", &error.to_string()).await;
    }
    if let boot::Host::Driver(asked) = host {
        tokio::task::spawn_local(asked.serve(Rc::clone(&agent)));
    }
    // A host that asks for services that make no sense finds them missing from the list.
    let _ = services::set(&agent, boot.services).await;
    server::run(agent, listener).await;
    ExitCode::SUCCESS
}

impl Agent {
    fn new(boot: boot::Booted, ram_bytes: u64, group: Option<vm::Group>) -> Self {
        Self {
            boot,
            execs: exec::Table::default(),
            services: services::Services::default(),
            meminfo: machine::Meminfo::new(ram_bytes),
            relays: ports::Relays::default(),
            connections: connections::Connections::default(),
            group,
            shutting_down: Cell::new(false),
            is_down: Cell::new(false),
            down: Notify::new(),
        }
    }
}

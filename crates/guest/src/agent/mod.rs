//! The in-sandbox agent: PID 1 of every sandbox, and the only interface through which the host acts inside it.
//!
//! ```text
//!   fd 0: Boot ──► boot ──► listener ──► server ──► one task per connection
//!                                           │ ├─ exec/      processes, their output logs, attached readers
//!   SIGCHLD ──► reaper ──► exec table ◄─────┘ ├─ files/     read, write, list, tar, watch
//!                              ▲              ├─ machine/   statistics, /proc/meminfo
//!                              │              ├─ ports/     listening ports, byte pipes to them
//!                              └─ services ◄──┴─ shutdown
//! ```
//!
//! One thread runs everything except disk work, which a small pool does. State is therefore in `Rc` and `RefCell`,
//! and no borrow is held across an `.await`. The agent trusts neither side: it assumes that processes inside are
//! hostile, and a host that sends invalid bytes or never reads costs a bounded buffer.
//!
//! In a microVM the same program is the kernel's first process: [`vm`] does what the host does for containers.
//!
//! Not here: a logger (nothing could read its output), and any knowledge of the host except [`crate::protocol`].

mod boot;
mod boot_settings;
mod clock;
mod connections;
mod exec;
mod failure;
mod files;
mod identity;
mod machine;
mod ports;
mod random;
mod reaper;
mod server;
mod service_set;
mod services;
mod shutdown;
mod signals;
mod state;
mod trust;
mod truststore;
mod unacknowledged;
mod users;
mod vm;
mod watched_fd;
mod wire;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Rlimit;
use tokio::runtime::{Builder, LocalOptions};

use self::boot_settings::BootSettings;
use self::state::Agent;
use crate::protocol::{Boot, BootReport};

/// Threads for disk work. A stream holds one of them for at most a millisecond while it waits for the network.
const BLOCKING_THREADS_MAX: usize = 8;

/// Nothing on these threads recurses. The default of 2 MiB is only address space, but it adds up over 200 sandboxes.
const BLOCKING_STACK_BYTES: usize = 256 * 1024;

/// Idle threads end soon, so that an idle sandbox has only one.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(2);

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

/// Ends the microVM in which this process is the first one.
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
        match boot::Host::receive_boot(machine).await {
            Ok((boot, group, host)) => serve(open_files, boot, group, host).await,
            Err(()) => ExitCode::FAILURE,
        }
    });
    // Disk work that hangs must not keep a sandbox alive that the host considers ended.
    runtime.shutdown_background();
    code
}

async fn serve(open_files: Rlimit, boot: Boot, group: Option<vm::Group>, mut host: boot::Host) -> ExitCode {
    // No child may exist before the reaper does.
    let reaper = match reaper::Reaper::new() {
        Ok(reaper) => reaper,
        Err(error) => return host.refuse("wait for child processes", &error.to_string()).await,
    };
    let listener = match boot::listen(boot.listen) {
        Ok(listener) => listener,
        Err(error) => return host.refuse("listen", &error.to_string()).await,
    };
    let agent = Rc::new(Agent::new(BootSettings::new(&boot, open_files), boot.ram_bytes, group));
    // Runs as long as the agent.
    drop(tokio::task::spawn_local(reaper.run(Rc::clone(&agent))));
    if boot.renew
        && let Err(error) = identity::renew(&agent, None).await
    {
        return host.refuse("assign a new identity", &error.message).await;
    }
    // Before any program runs that may use it. A disk without space for the certificate must not fail the boot.
    if boot.trust.is_some() || trust::is_set() {
        let _ = trust::set(boot.trust).await;
    }
    if let Err(error) = host.report(&BootReport::Ready).await {
        return host.refuse("report", &error.to_string()).await;
    }
    if let boot::Host::Driver(driver) = host {
        // Runs as long as the agent.
        drop(tokio::task::spawn_local(driver.serve(Rc::clone(&agent))));
    }
    // Invalid services are not an error here; they are missing from the list of services.
    let _ = services::set(&agent, boot.services).await;
    server::run(agent, listener).await;
    ExitCode::SUCCESS
}

//! P-R14: descriptors that are sent over Unix sockets and never received.
//!
//! The kernel counts them per user of the host. If sandboxes shared a uid there, one sandbox could prevent all others
//! from sending any, and their processes from being dumped.

use std::process::Command;

use serde_json::json;

use crate::controls::run;
use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, ensure};

pub(crate) const ROWS: &[Row] = &[Row {
    id: "P-R14",
    what: "descriptors in flight",
    sandbox: &[],
    attack: many_in_flight,
    control: of_one_user,
}];

/// Sends this many descriptors to itself, with a limit on open files, and keeps them in flight for some seconds.
const FLIGHT: &str = "import resource,socket,sys,time\n\
    count,limit,seconds=map(int,sys.argv[1:])\n\
    resource.setrlimit(resource.RLIMIT_NOFILE,(limit,limit))\n\
    one,other=socket.socketpair(); sent=0\n\
    try:\n\
    \x20 while sent<count:\n\
    \x20   some=min(250,count-sent); socket.send_fds(one,[b'x'],[0]*some); sent+=some\n\
    except OSError as error: print('error='+str(error.errno))\n\
    print('sent='+str(sent),flush=True)\n\
    time.sleep(seconds)\n";

/// More than [`NEEDS_ONE`] may have open.
const HOLDS_MANY: [&str; 3] = ["1000", "4096", "60"];
const NEEDS_ONE: [&str; 3] = ["1", "100", "0"];

const ETOOMANYREFS: u64 = 109;

fn argv(arguments: [&str; 3]) -> serde_json::Value {
    let argv = [["python3", "-c", FLIGHT], arguments].concat();
    json!({ "argv": argv })
}

fn many_in_flight(sandbox: &Sandbox<'_>) -> Finding {
    let exec = sandbox.start(&argv(HOLDS_MANY));
    eventually("a thousand descriptors in flight", || {
        let said = sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
        said.lines().any(|line| line == "sent=1000").then_some(())
    });
    let own = sandbox.run(argv(NEEDS_ONE));
    ensure(own.number("error") == ETOOMANYREFS, || format!("the sandbox itself still sends: {own:?}"))?;
    let other = sandbox.ground.sandbox(&[]).run(argv(NEEDS_ONE));
    ensure(other.number("sent") == 1, || format!("a neighbour sends none any more: {other:?}"))?;
    Ok("1,000 in flight are this sandbox's own; a neighbour sends its own".to_owned())
}

fn of_one_user(_: &Ground) -> Finding {
    // The host's system Python: one that is installed for root cannot be run by another user.
    let script = "user='setpriv --reuid 99123 --clear-groups /usr/bin/python3 -c'; out=$(mktemp); \
                  $user \"$1\" 1000 4096 60 < /dev/null > \"$out\" & first=$!; \
                  until grep -q sent=1000 \"$out\" || ! kill -0 $first; do sleep 0.05; done; \
                  $user \"$1\" 1 100 0 < /dev/null; kill $first; rm -f \"$out\"";
    let starved = run(Command::new("bash").args(["-c", script, "bash", FLIGHT]));
    ensure(starved.number("error") == ETOOMANYREFS, || format!("{starved:?}"))?;
    Ok("two processes of one user of the host share the count: the second sends none".to_owned())
}

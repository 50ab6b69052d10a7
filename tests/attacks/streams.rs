//! P-R8 to P-R11: endless output, readers that do not read, terminals, and bytes that control a terminal.

use std::process::Command;

use serde_json::json;

use crate::controls::run;
use crate::ground::{Ground, Sandbox};
use crate::harness::{burrow, eventually};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-R8",
        what: "output without end, /dev/kmsg",
        sandbox: &[],
        attack: flood,
        control: unbounded,
    },
    Row {
        id: "P-R9",
        what: "a reader that never reads",
        sandbox: &[],
        attack: stuck_reader,
        control: good_reader,
    },
    Row {
        id: "P-R10",
        what: "endless terminals, resizes",
        sandbox: &["--pids", "2048"],
        attack: terminals,
        control: uncapped,
    },
    Row {
        id: "P-R11",
        what: "bytes that act on a terminal",
        sandbox: &[],
        attack: escapes,
        control: raw_bytes,
    },
];

/// RAM that the daemon may gain during a flood. A frame is 1 MiB; allocators keep some.
const DAEMON_GROWTH_KIB_MAX: u64 = 96 * 1024;

/// RAM that an agent may use: a ring of 1 MiB and its base size.
const AGENT_BYTES_MAX: u64 = 64 << 20;

// --- P-R8

const FLOOD_BYTES: u64 = 2 << 30;

fn flood(sandbox: &Sandbox<'_>) -> Finding {
    let note = flood_of(sandbox, FLOOD_BYTES)?;
    let consoles = "for d in kmsg console ttyS0 tty0 vcs; do test -c /dev/$d && echo $d && echo probe > /dev/$d; done; true";
    let consoles = sandbox.sh(consoles);
    ensure(consoles.out.is_empty(), || format!("the host's log and consoles are there: {consoles:?}"))?;
    Ok(note)
}

/// This many bytes of output that are never read.
pub(crate) fn flood_of(sandbox: &Sandbox<'_>, bytes: u64) -> Finding {
    let before = sandbox.ground.daemon_rss_kib();
    let command = format!("yes | head -c {bytes}");
    let exec = sandbox.start(&json!({ "command": command, "timeout_ms": 120_000 }));
    let found = sandbox.wait(&exec);
    let number = |name: &str| found[name].as_u64().unwrap();
    ensure(number("output_end") == bytes, || format!("{found}"))?;
    let held = number("output_end") - number("output_start");
    ensure(held <= 2 << 20 && number("output_dropped") > 0, || format!("{held} bytes are held: {found}"))?;
    let agent = sandbox.stats()["agent_ram_bytes"].as_u64().unwrap();
    ensure(agent <= AGENT_BYTES_MAX, || format!("the agent holds {agent} bytes"))?;
    let grown = sandbox.ground.daemon_rss_kib().saturating_sub(before);
    ensure(grown <= DAEMON_GROWTH_KIB_MAX, || format!("the daemon grew by {grown} KiB"))?;
    Ok(format!(
        "{} KiB kept of {} MiB, the rest counted as dropped; agent {} MiB; daemon +{grown} KiB",
        held >> 10,
        bytes >> 20,
        agent >> 20
    ))
}

fn unbounded(_: &Ground) -> Finding {
    let run = run(Command::new("sh").args(["-c", "yes | head -c 67108864"]));
    ensure(run.out.len() == 64 << 20, || format!("only {} bytes", run.out.len()))?;
    Ok("a collector without a ring holds all of 64 MiB".to_owned())
}

// --- P-R9

const LINE_BYTES: u64 = 256 << 20;

fn long_line(bytes: u64) -> String {
    format!("head -c {bytes} /dev/zero | tr '\\0' x")
}

fn stuck_reader(sandbox: &Sandbox<'_>) -> Finding {
    held_up(sandbox, LINE_BYTES)
}

/// With one line of this many bytes.
pub(crate) fn held_up(sandbox: &Sandbox<'_>, bytes: u64) -> Finding {
    let before = sandbox.ground.daemon_rss_kib();
    let begin = || sandbox.start(&json!({ "command": long_line(bytes), "hold": true, "timeout_ms": 90_000 }));
    let route = |exec: &str, rest: &str| format!("/v1/sandboxes/{}/execs/{exec}/{rest}", sandbox.id);
    // A lossless reader blocks the process once every buffer on the path is full.
    let held = begin();
    let mut lossless = sandbox.ground.wire();
    let status = lossless.upgrade(&route(&held, "attach?offset=0")).unwrap();
    ensure(status == 101, || format!("{status}"))?;
    let stuck = eventually("the process to be held up", || {
        let end = sandbox.exec(&held)["output_end"].as_u64().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        (end > 0 && sandbox.exec(&held)["output_end"] == end).then_some(end)
    });
    ensure(stuck < bytes, || format!("{stuck} bytes went somewhere though nobody read them"))?;
    // A reader that only watches does not.
    let passed = begin();
    let mut lossy = sandbox.ground.wire();
    let status =
        lossy.begin("GET", route(&passed, "output?follow=true&format=raw&offset=0").as_bytes()).unwrap();
    ensure(status == 200, || format!("{status}"))?;
    let ended = sandbox.wait(&passed);
    ensure(ended["outcome"]["exit_code"] == 0 && ended["output_end"] == bytes, || format!("{ended}"))?;
    let grown = sandbox.ground.daemon_rss_kib().saturating_sub(before);
    ensure(grown <= DAEMON_GROWTH_KIB_MAX, || format!("the daemon grew by {grown} KiB"))?;
    let agent = sandbox.stats()["agent_ram_bytes"].as_u64().unwrap();
    ensure(agent <= AGENT_BYTES_MAX, || format!("the agent holds {agent} bytes"))?;
    drop((lossless, lossy));
    let ended = sandbox.wait(&held);
    ensure(ended["outcome"]["exit_code"] == 0, || format!("it does not go on without its reader: {ended}"))?;
    Ok(format!(
        "attached: held up after {} MiB of {}, goes on when the reader is gone; looking on: not held up; \
         daemon +{grown} KiB, agent {} MiB",
        stuck >> 20,
        bytes >> 20,
        agent >> 20
    ))
}

fn good_reader(ground: &Ground) -> Finding {
    read_whole(ground, LINE_BYTES)
}

pub(crate) fn read_whole(ground: &Ground, bytes: u64) -> Finding {
    let sandbox = ground.sandbox(&[]);
    let output = ground.daemon.cli(&["exec", &sandbox.id, "--", "sh", "-c", &long_line(bytes)]);
    ensure(output.stdout.len() as u64 == bytes, || format!("{} bytes came", output.stdout.len()))?;
    Ok(format!("a reader that reads gets all {} MiB of the line", bytes >> 20))
}

// --- P-R10

/// Terminals per agent; one more is refused.
const AGENT_TERMINALS_MAX: usize = 256;

/// Opens as many as possible.
pub(crate) const OPEN_TERMINALS: &str = "import os\n\
    import resource\n\
    hard=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
    resource.setrlimit(resource.RLIMIT_NOFILE,(hard,hard))\n\
    n=0\n\
    try:\n\
    \x20 while n<1300: os.open('/dev/ptmx',os.O_RDWR|os.O_NOCTTY); n+=1\n\
    except OSError as error: print('error='+str(error.errno))\n\
    print('terminals='+str(n))\n";

/// Number of resizes of one terminal.
const RESIZES: u32 = 2000;

fn terminals(sandbox: &Sandbox<'_>) -> Finding {
    let opened = agent_terminals(sandbox, RESIZES)?;
    let inside = sandbox.python(OPEN_TERMINALS);
    let total = inside.number("terminals");
    ensure(total <= 1024 && inside.number("error") > 0, || format!("{inside:?}"))?;
    Ok(format!(
        "the agent gives {opened}, then 429; programs inside get {total} more; {RESIZES} resizes to 65535x65535 served"
    ))
}

/// Opens as many as the agent allows, and resizes one of them repeatedly. Returns how many it opened.
pub(crate) fn agent_terminals(sandbox: &Sandbox<'_>, resizes: u32) -> Result<usize, RowFailure> {
    let mut wire = sandbox.ground.wire();
    let target = format!("/v1/sandboxes/{}/execs", sandbox.id);
    let body = json!({ "argv": ["sleep", "120"], "terminal": { "columns": 80, "rows": 24 } }).to_string();
    let mut refusal = None;
    let mut last = String::new();
    let mut opened = 0;
    while opened < AGENT_TERMINALS_MAX + 50 && refusal.is_none() {
        let answer = wire.ask("POST", target.as_bytes(), "application/json", body.as_bytes()).unwrap();
        match answer.status {
            201 => {
                opened += 1;
                last = answer.json()["id"].as_str().unwrap().to_owned();
            }
            status => refusal = Some(status),
        }
    }
    ensure(refusal == Some(429) && opened <= AGENT_TERMINALS_MAX, || {
        format!("{opened} opened, then {refusal:?}")
    })?;
    let resize = json!({ "columns": 65535, "rows": 65535 }).to_string();
    for _ in 0..resizes {
        let target = format!("{target}/{last}/resize");
        let answer = wire.ask("POST", target.as_bytes(), "application/json", resize.as_bytes()).unwrap();
        ensure(answer.status < 500, || format!("{} {}", answer.status, answer.text()))?;
    }
    Ok(opened)
}

fn uncapped(ground: &Ground) -> Finding {
    std::fs::write(ground.control_path("/terminals.py"), OPEN_TERMINALS).unwrap();
    // `/dev/ptmx` in the files is a link to `pts/ptmx`, here of an instance without a limit.
    let run = ground.unguarded("python3 /terminals.py");
    ensure(run.number("terminals") > 1024, || format!("{run:?}"))?;
    Ok(format!("without a bound on the instance the probe opens {}", run.number("terminals")))
}

// --- P-R11

/// A title, a colour, a cleared screen; and the same with the 8-bit CSI.
const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[31mred\u{1b}[2J\u{9b}5m";

fn harmless(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

/// The output of the CLI on a terminal.
fn on_terminal(sandbox: &Sandbox<'_>, arguments: &[&str]) -> Vec<u8> {
    let line: Vec<String> = std::iter::once(burrow().display().to_string())
        .chain(arguments.iter().map(|argument| (*argument).to_owned()))
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    let daemon = &sandbox.ground.daemon;
    let mut command = Command::new("script");
    command.args(["-qec", &line.join(" "), "/dev/null"]).stdin(std::process::Stdio::null());
    command
        .env("BURROW_URL", daemon.url())
        .env("BURROW_API_KEY", daemon.key())
        .env("NO_COLOR", "1")
        .env("TERM", "dumb");
    let output = command.output().unwrap();
    sandbox.heard(&output.stdout);
    output.stdout
}

fn escapes(sandbox: &Sandbox<'_>) -> Finding {
    let daemon = &sandbox.ground.daemon;
    let named = sandbox.ground.post("/v1/sandboxes", &json!({ "name": EVIL }));
    let labelled = sandbox.ground.post("/v1/sandboxes", &json!({ "labels": { "a": EVIL } }));
    ensure(named.status == 400 && labelled.status == 400, || {
        format!("{} {}", named.status, labelled.status)
    })?;
    ensure(harmless(&named.body) && harmless(&labelled.body), || "the refusal repeats the bytes".to_owned())?;
    let files = "mkdir /evil && : > \"/evil/$1\" && ln -s \"$1\" /evil/link";
    let made = sandbox.run(json!({ "argv": ["sh", "-c", files, "sh", EVIL] }));
    ensure(made.ok(), || format!("{made:?}"))?;
    let exec = sandbox.start(
        &json!({ "argv": ["sh", "-c", "printf '\\033]0;owned\\007\\033[31mred\\n'; sleep 60", EVIL] }),
    );
    let id = sandbox.id.as_str();
    let unknown = format!("no-such-{EVIL}");
    for arguments in [
        &["ps", id][..],
        &["ps", id, "--json"],
        &["ls"],
        &["inspect", id],
        &["files", "ls", id, "/evil"],
        &["files", "ls", id, "/evil", "--json"],
        &["files", "stat", id, "/evil"],
        &["files", "cat", id, &format!("/evil/{unknown}")],
        &["exec", id, "--", &unknown],
        &["inspect", &unknown],
        &["events", "--since", "0"],
    ] {
        let output = daemon.cli(arguments);
        let seen = [output.stdout, output.stderr].concat();
        ensure(harmless(&seen), || {
            format!("burrow {arguments:?} prints {:?}", String::from_utf8_lossy(&seen))
        })?;
        ensure(!seen.is_empty(), || format!("burrow {arguments:?} prints nothing at all"))?;
    }
    let logs = eventually("the log to have something", || {
        let seen = on_terminal(sandbox, &["logs", &exec]);
        seen.windows(3).any(|window| window == b"red").then_some(seen)
    });
    ensure(harmless(&logs), || {
        format!("burrow logs on a terminal prints {:?}", String::from_utf8_lossy(&logs))
    })?;
    escapes_of_programs(sandbox)?;
    Ok("refused in names and labels; shown as escapes by ps, files, events, errors, logs, skills, memory and code".to_owned())
}

/// Prints a title for the terminal, on both streams.
const TITLE: &str = "printf '\\033]0;owned\\007out\\n'; printf '\\033]0;owned\\007err\\n' >&2";

/// Commands that run a program and show its output.
fn escapes_of_programs(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let (ground, id) = (sandbox.ground, sandbox.id.as_str());
    let skill =
        json!({ "name": "title", "description": "d", "steps": [{ "kind": "command", "run": TITLE }] });
    let saved = ground.post(&format!("/v1/memory/{id}/skills"), &skill);
    ensure(saved.status < 300, || format!("no skill: {}", saved.text()))?;
    let entry = json!({ "text": format!("a note {EVIL}"), "kind": "fact" });
    let stored = ground.post(&format!("/v1/memory/{id}/entries"), &entry);
    ensure(stored.status < 300, || format!("no entry: {}", stored.text()))?;
    for (arguments, word) in
        [(&["skill", "run", id, "title"][..], "out"), (&["memory", "context", id, "note"], "a note")]
    {
        let shown = on_terminal(sandbox, arguments);
        let text = String::from_utf8_lossy(&shown).into_owned();
        ensure(harmless(&shown) && text.contains(word), || {
            format!("burrow {arguments:?} on a terminal prints {text:?}")
        })?;
    }
    // A program that prints arbitrary bytes in place of the code interpreter.
    sandbox.start(&json!({ "argv": ["python3", "-c", INTERPRETER, EVIL] }));
    let listens = "until (: > /dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.1; done";
    sandbox.run(json!({ "argv": ["bash", "-c", listens], "timeout_ms": 60_000 }));
    let shown = on_terminal(sandbox, &["code", id, "-e", "1"]);
    let text = String::from_utf8_lossy(&shown).into_owned();
    ensure(harmless(&shown) && text.matches("said").count() >= 4, || {
        format!("burrow code on a terminal prints {text:?}")
    })
}

/// Answers every request for code with its first argument, in all fields that `burrow code` prints.
const INTERPRETER: &str = r#"
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Interpreter(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        text = 'said ' + sys.argv[1]
        lines = [{'type': kind, 'text': text + '\n'} for kind in ('stdout', 'stderr')]
        lines.append({'type': 'result', 'is_main_result': True, 'text': text})
        lines.append({'type': 'error', 'name': text, 'value': text, 'traceback': text})
        lines.append({'type': 'end_of_execution', 'status': 'error', 'execution_count': 1, 'duration_ms': 1})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(''.join(json.dumps(line) + '\n' for line in lines).encode())
HTTPServer(('0.0.0.0', 49999), Interpreter).serve_forever()
"#;

fn raw_bytes(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    let output = ground.daemon.cli(&["exec", &sandbox.id, "--", "printf", "\\033]0;owned\\007"]);
    ensure(output.stdout == b"\x1b]0;owned\x07", || {
        format!("{:?}", String::from_utf8_lossy(&output.stdout))
    })?;
    Ok("a raw exec passes the very bytes through".to_owned())
}

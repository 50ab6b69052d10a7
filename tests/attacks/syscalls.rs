//! P-K4 to P-K6, P-K16 and P-K17: which system calls pass the filter, by all three entry points of the kernel, and with
//! which arguments.

use std::collections::BTreeMap;

use burrow_runtime::container::seccomp::{
    ArgumentCase, FilterAnswer, JUDGED, NEWEST_KNOWN, Verdict, argument_cases, verdict,
};

use crate::ground::{Ground, Run, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-K4",
        what: "keys, BPF, io_uring, modules, kexec",
        sandbox: &[],
        attack: named_native,
        control: named_unguarded,
    },
    Row {
        id: "P-K5",
        what: "the same by int 0x80 and x32",
        sandbox: &[],
        attack: named_foreign,
        control: foreign_unguarded,
    },
    Row {
        id: "P-K6",
        what: "every system call by number",
        sandbox: &[],
        attack: all,
        control: all_unguarded,
    },
    Row {
        id: "P-K16",
        what: "lower the core limit, so that a crash runs the host's handler",
        sandbox: &[],
        attack: core_limit,
        control: core_limit_unguarded,
    },
    Row {
        id: "P-K17",
        what: "arguments: socket pairs, protocols, limits, ioctls",
        sandbox: &[],
        attack: arguments,
        control: arguments_unguarded,
    },
];

pub(crate) const PROBE: &str = include_str!("probes/syscalls.c");

/// Far beyond the newest system call.
pub(crate) const LAST: u32 = 600;

const EPERM: &str = "1";
const ENOSYS: &str = "38";

/// Calls of the list that every program may make; they show that the probe works.
const PERMITTED: [&str; 2] = ["getpid", "ptrace"];

/// By name: the result by each entry point.
pub(crate) struct CallResults {
    pub(crate) native: String,
    pub(crate) x32: String,
    pub(crate) int80: String,
}

pub(crate) fn named(run: &Run) -> Result<BTreeMap<String, CallResults>, RowFailure> {
    let mut calls = BTreeMap::new();
    let mut lines = run.out.lines();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix("name ").and_then(|rest| rest.split(' ').next());
        let name = name.ok_or_else(|| format!("the probe said `{line}`: {run:?}"))?;
        let mut answer =
            || lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned();
        calls.insert(name.to_owned(), CallResults { native: answer(), x32: answer(), int80: answer() });
    }
    ensure(calls.len() > 15, || format!("{run:?}"))?;
    Ok(calls)
}

pub(crate) fn only_here() -> Result<(), RowFailure> {
    if cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    Err(RowFailure::Skipped("the probe knows the numbers of x86_64 only".to_owned()))
}

fn named_inside(sandbox: &Sandbox<'_>) -> Result<BTreeMap<String, CallResults>, RowFailure> {
    only_here()?;
    sandbox.compile("syscalls", PROBE);
    named(&sandbox.sh("/syscalls named"))
}

fn named_outside(ground: &Ground) -> Result<BTreeMap<String, CallResults>, RowFailure> {
    only_here()?;
    ground.compile_unguarded("syscalls", PROBE);
    named(&ground.unguarded("/syscalls named"))
}

pub(crate) fn is_refused(answer: &str) -> bool {
    [EPERM, ENOSYS].contains(&answer)
}

fn named_native(sandbox: &Sandbox<'_>) -> Finding {
    let calls = named_inside(sandbox)?;
    let through: Vec<_> = calls
        .iter()
        .filter(|(name, call)| !PERMITTED.contains(&name.as_str()) && !is_refused(&call.native))
        .map(|(name, call)| format!("{name}: {}", call.native))
        .collect();
    ensure(through.is_empty(), || format!("{through:?}"))?;
    ensure(calls["getpid"].native == "ok", || "even getpid fails: the probe is broken".to_owned())?;
    Ok(format!("all {} refused", calls.len() - PERMITTED.len()))
}

fn named_unguarded(ground: &Ground) -> Finding {
    let calls = named_outside(ground)?;
    let (absent, live): (Vec<_>, Vec<_>) = calls.iter().partition(|(_, call)| is_refused(&call.native));
    let absent: Vec<_> = absent.iter().map(|(name, _)| name.as_str()).collect();
    ensure(live.len() > calls.len() / 2, || format!("this kernel refuses {absent:?} to root itself"))?;
    Ok(format!("{} reach the kernel; it has no {}", live.len(), absent.join(", ")))
}

fn named_foreign(sandbox: &Sandbox<'_>) -> Finding {
    let calls = named_inside(sandbox)?;
    let through: Vec<_> = calls
        .iter()
        .filter(|(_, call)| call.x32 != EPERM || call.int80 != EPERM)
        .map(|(name, call)| format!("{name}: x32 {}, int 0x80 {}", call.x32, call.int80))
        .collect();
    // Including getpid: a foreign number means another call than the filter assumes.
    ensure(through.is_empty(), || format!("{through:?}"))?;
    Ok(format!("EPERM to all {}, getpid included", calls.len()))
}

fn foreign_unguarded(ground: &Ground) -> Finding {
    let calls = named_outside(ground)?;
    let count = |way: fn(&CallResults) -> &String| {
        calls.values().filter(|call| !is_refused(way(call)) && way(call) != "died").count()
    };
    let (x32, int80) = (count(|call| &call.x32), count(|call| &call.int80));
    if int80 + x32 == 0 {
        return Err(RowFailure::Skipped("this kernel has neither ABI".to_owned()));
    }
    ensure(calls["getpid"].int80 == "ok" || x32 > 0, || "getpid fails by both".to_owned())?;
    let of_x32 = if x32 == 0 { "; it has no x32 (ENOSYS instead of EPERM)" } else { "" };
    Ok(format!("{int80} reach the kernel by int 0x80, {x32} by x32{of_x32}"))
}

pub(crate) fn numbered(run: &Run) -> BTreeMap<u32, String> {
    let lines = run.lines_of("native").filter_map(|line| line.split_once(' '));
    lines.map(|(number, answer)| (number.parse().unwrap(), answer.to_owned())).collect()
}

/// `uretprobe` and `uprobe`: newer kernels allow them past every filter. For a process that is not being probed, they
/// only end it or return ENXIO.
const UNFILTERABLE: [u32; 2] = [335, 336];

fn all(sandbox: &Sandbox<'_>) -> Finding {
    only_here()?;
    sandbox.compile("syscalls", PROBE);
    let run = sandbox.sh(&format!("/syscalls all 0 {LAST}"));
    let answers = numbered(&run);
    ensure(answers.len() == LAST as usize + 1, || format!("{} answers: {run:?}", answers.len()))?;
    let mut drift = Vec::new();
    let (mut allowed, mut refused) = (0, 0);
    for (number, answer) in &answers {
        let as_the_table_says = match verdict(*number) {
            // ENOSYS from the kernel itself means that this kernel does not have the call.
            Verdict::Allowed => answer != EPERM,
            Verdict::Refused if UNFILTERABLE.contains(number) => {
                [EPERM, "died", "6"].contains(&answer.as_str())
            }
            Verdict::Refused => answer == EPERM,
            Verdict::Unknown => answer == ENOSYS,
            // With meaningless arguments, both results are possible.
            Verdict::Judged => true,
        };
        allowed += u32::from(verdict(*number) == Verdict::Allowed);
        refused += u32::from(verdict(*number) == Verdict::Refused);
        if !as_the_table_says {
            drift.push(format!("{number} is {:?} and answered {answer}", verdict(*number)));
        }
    }
    ensure(drift.is_empty(), || format!("{drift:?}"))?;
    Ok(format!(
        "{allowed} allowed, {refused} refused, {} judged, the rest unknown: as the table says",
        JUDGED.len()
    ))
}

fn all_unguarded(ground: &Ground) -> Finding {
    only_here()?;
    ground.compile_unguarded("syscalls", PROBE);
    let run = ground.unguarded(&format!("/syscalls all 0 {NEWEST_KNOWN} careful"));
    let answers = numbered(&run);
    let refused: Vec<u32> =
        (0..=NEWEST_KNOWN).filter(|number| verdict(*number) == Verdict::Refused).collect();
    let reach =
        refused.iter().filter(|number| answers.get(number).is_some_and(|answer| !is_refused(answer))).count();
    let denied: Vec<_> =
        refused.iter().filter(|number| answers.get(number).is_some_and(|answer| answer == EPERM)).collect();
    ensure(reach > 50 && denied.len() < 5, || {
        format!("{reach} reach the kernel, root is denied {denied:?}: {run:?}")
    })?;
    Ok(format!("of the refused {}, {reach} reach the kernel; the rest it does not have", refused.len()))
}

// --- P-K16

const CORE_PROBE: &str = include_str!("probes/core_limit.c");

/// The ways in which the probe tries to change the limit.
const CORE_WAYS: usize = 6;

fn core_limit(sandbox: &Sandbox<'_>) -> Finding {
    only_here()?;
    sandbox.compile("core_limit", CORE_PROBE);
    let run = sandbox.sh("/core_limit");
    let changed = crate::kernel::worked(&run);
    ensure(changed.is_empty(), || format!("{changed:?} changed the limit: {run:?}"))?;
    let tried = run.out.lines().filter(|line| line.ends_with(" refused")).count();
    ensure(tried == CORE_WAYS, || format!("the probe tried {tried} ways: {run:?}"))?;
    // The kernel skips a piped `core_pattern` for a soft limit of exactly 1, and for no other value.
    let limits = sandbox.sh("grep -h 'Max core file size' /proc/[0-9]*/limits | sort -u");
    let words: Vec<&str> = limits.out.split_whitespace().collect();
    ensure(words == ["Max", "core", "file", "size", "1", "1", "bytes"], || format!("{limits:?}"))?;
    // Programs that exit when they cannot turn core dumps off continue.
    let shell = sandbox.sh("ulimit -c 0 && echo on");
    ensure(shell.out.trim() == "on", || format!("{shell:?}"))?;
    Ok(format!("{tried} ways leave it at 1 byte; `ulimit -c 0` reports success"))
}

fn core_limit_unguarded(ground: &Ground) -> Finding {
    only_here()?;
    ground.compile_unguarded("core_limit", CORE_PROBE);
    let run = ground.unguarded("prlimit --core=1:1 /core_limit");
    let changed = crate::kernel::worked(&run);
    ensure(changed.len() >= 4, || format!("{run:?}"))?;
    Ok(format!("as the host's root: {}", changed.join(", ")))
}

// --- P-K17

/// The cases, and the input of the probe for each: the system call number and the arguments.
fn tried_cases() -> (Vec<ArgumentCase>, String) {
    let cases: Vec<ArgumentCase> =
        argument_cases().into_iter().filter(|case| case.result.is_some()).collect();
    let words = cases.iter().map(|case| {
        let [a, b, c, d] = case.arguments;
        format!("{} {a} {b} {c} {d}", case.number)
    });
    let command = format!("/syscalls arguments {}", words.collect::<Vec<_>>().join(" "));
    (cases, command)
}

/// One answer for each case, in their order.
fn answers_to(cases: &[ArgumentCase], run: &Run) -> Result<Vec<String>, RowFailure> {
    let answers: Vec<String> =
        run.lines_of("native").filter_map(|line| line.split_once(' ')).map(|(_, a)| a.to_owned()).collect();
    ensure(answers.len() == cases.len(), || {
        format!("{} answers to {} cases: {run:?}", answers.len(), cases.len())
    })?;
    Ok(answers)
}

fn arguments(sandbox: &Sandbox<'_>) -> Finding {
    only_here()?;
    sandbox.compile("syscalls", PROBE);
    let (cases, command) = tried_cases();
    let answers = answers_to(&cases, &sandbox.sh(&command))?;
    let expected = |case: &ArgumentCase| match case.result {
        Some(0) | None => "ok".to_owned(),
        Some(errno) => errno.to_string(),
    };
    let drift: Vec<String> = cases
        .iter()
        .zip(&answers)
        .filter(|(case, answer)| **answer != expected(case))
        .map(|(case, answer)| format!("`{}` answered {answer}", case.line))
        .collect();
    ensure(drift.is_empty(), || format!("{drift:?}"))?;
    let pairs = sandbox.python(
        "import socket\nfor kind in (1,2,5): socket.socketpair(socket.AF_UNIX,kind)\nprint('made')\n",
    );
    ensure(pairs.out.trim() == "made", || format!("{pairs:?}"))?;
    Ok(format!("{} cases answer as the table says", cases.len()))
}

fn arguments_unguarded(ground: &Ground) -> Finding {
    only_here()?;
    ground.compile_unguarded("syscalls", PROBE);
    let (cases, command) = tried_cases();
    let answers = answers_to(&cases, &ground.unguarded(&command))?;
    let reach: Vec<&str> = cases
        .iter()
        .zip(&answers)
        .filter(|(case, answer)| match case.filter {
            FilterAnswer::Allow => false,
            FilterAnswer::Errno(0) => *answer != "ok",
            FilterAnswer::Errno(errno) => **answer != errno.to_string(),
        })
        .map(|(case, _)| case.call)
        .collect();
    let calls: std::collections::BTreeSet<&str> = reach.iter().copied().collect();
    ensure(["socket", "setrlimit", "prlimit64"].iter().all(|call| calls.contains(call)), || {
        format!("only {calls:?} reach the kernel: {answers:?}")
    })?;
    Ok(format!("{} of what is refused reaches the kernel, of {calls:?}", reach.len()))
}

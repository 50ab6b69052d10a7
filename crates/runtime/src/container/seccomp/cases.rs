//! The filter's results for the calls that it checks by their arguments, as a table of test cases.
//!
//! One table for two tests: the unit test of the BPF program, and the attack suite, which makes the same calls in a
//! real sandbox.

use super::JUDGED;

const CASES: &str = include_str!("arguments.txt");

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentCase {
    pub line: &'static str,
    pub call: &'static str,
    pub number: u32,
    pub arguments: [u64; 4],
    pub filter: FilterAnswer,
    /// The result in a sandbox: an error number, or 0 for success. `None`: the call is not tried.
    pub result: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAnswer {
    /// The kernel runs the call.
    Allow,
    /// The call is not run. 0 reports success.
    Errno(u32),
}

/// The cases of the calls that this architecture has.
///
/// # Panics
///
/// On a malformed line: the table is part of the program.
pub fn argument_cases() -> Vec<ArgumentCase> {
    let lines = CASES.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(parse).collect()
}

fn parse(line: &'static str) -> Option<ArgumentCase> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().unwrap_or_else(|| panic!("`{line}` is too short"));
    let call = next();
    let arguments = [next(), next(), next(), next()].map(argument);
    let filter = match next() {
        "allow" => FilterAnswer::Allow,
        "ignore" => FilterAnswer::Errno(0),
        name => FilterAnswer::Errno(errno(name)),
    };
    let result = match (filter, words.next()) {
        (FilterAnswer::Errno(number), None) => Some(number),
        (FilterAnswer::Allow, None) => None,
        (FilterAnswer::Allow, Some("ok")) => Some(0),
        (FilterAnswer::Allow, Some(name)) => Some(errno(name)),
        (FilterAnswer::Errno(_), Some(_)) => panic!("`{line}` has a result that no kernel decides"),
    };
    let number =
        JUDGED.iter().find(|judged| judged.name == call).unwrap_or_else(|| panic!("`{call}` is not judged"));
    Some(ArgumentCase { line, call, number: number.number()?, arguments, filter, result })
}

fn argument(word: &str) -> u64 {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("`{word}` is no argument: {error}"))
}

fn errno(name: &str) -> u32 {
    let number = match name {
        "EPERM" => libc::EPERM,
        "EBADF" => libc::EBADF,
        "EFAULT" => libc::EFAULT,
        "EPROTONOSUPPORT" => libc::EPROTONOSUPPORT,
        "ESOCKTNOSUPPORT" => libc::ESOCKTNOSUPPORT,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
        other => panic!("unknown error `{other}`"),
    };
    number.unsigned_abs()
}

//! Finds the cause of a failure in CRIU's output.
//!
//! CRIU's first error is nearly always the cause, and the others are consequences, so it is what users see. It is part
//! of CRIU's response. If CRIU died before it could respond, only the log is left.

/// The part of a log that is read, from its end; a log of errors and warnings has a few lines.
pub(super) const LOG_BYTES_MAX: u64 = 256 * 1024;

/// Errors after which CRIU continues, since this host may grant fewer privileges than it requests.
const HARMLESS: [&str; 1] = ["RLIMIT_NOFILE"];

/// The cause, from a complete log; `None` if it contains no error.
pub(super) fn first_error(log: &str) -> Option<String> {
    first_line(log).map(tidy)
}

/// The line with the cause, as CRIU wrote it.
pub(super) fn first_line(log: &str) -> Option<&str> {
    log.lines()
        .find(|line| line.contains("Error (") && !HARMLESS.iter().any(|harmless| line.contains(harmless)))
}

/// A line without its time, pid and position in CRIU's source: `(00.01)  7: Error (criu/x.c:9): why` becomes `why`.
pub(super) fn tidy(line: &str) -> String {
    let line = line.trim();
    let after_place = line.split_once("Error (").and_then(|(_, rest)| rest.split_once("): "));
    after_place.map_or(line, |(_, why)| why).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_cause_without_its_prefix() {
        let log = "(00.000100) Warn  (criu/kerndat.c:9): nothing\n\
                   (00.000200) Error (criu/util.c:5): Can't set RLIMIT_NOFILE: Operation not permitted\n\
                   (00.010100)   17: Error (criu/files-ext.c:98): Can't dump file 5 of that type [21b0] (chr 10:200 )\n\
                   (00.010200) Error (criu/cr-dump.c:1798): Dump files (pid: 17) failed with -1\n";
        let expected = "Can't dump file 5 of that type [21b0] (chr 10:200 )";
        assert_eq!(first_error(log).as_deref(), Some(expected));
        assert_eq!(first_error("(00.1) Warn  (a.c:1): x\n"), None);
        assert_eq!(tidy("plain words"), "plain words");
    }
}

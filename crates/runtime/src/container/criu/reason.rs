//! Finds, in what CRIU wrote, why it failed.
//!
//! CRIU's first error is nearly always the cause and the rest its echo, so that is what a user is told; it comes with the
//! answer. A CRIU that died could not answer: then the log is all there is.

/// The tail of a log that is looked at; a log of errors and warnings is a few lines.
pub(super) const LOG_BYTES_MAX: u64 = 256 * 1024;

/// Errors that CRIU writes and goes on from, as this host's rights may be fewer than it would like.
const HARMLESS: [&str; 1] = ["RLIMIT_NOFILE"];

/// The cause, from a whole log; `None` when it has no error.
pub(super) fn first_error(log: &str) -> Option<String> {
    log.lines()
        .filter(|line| line.contains("Error (") && !HARMLESS.iter().any(|harmless| line.contains(harmless)))
        .map(tidy)
        .next()
}

/// A line without its time, pid and place in CRIU's source: `(00.01)  7: Error (criu/x.c:9): why` becomes `why`.
pub(super) fn tidy(line: &str) -> String {
    let line = line.trim();
    let after_place = line.split_once("Error (").and_then(|(_, rest)| rest.split_once("): "));
    after_place.map_or(line, |(_, why)| why).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_cause_and_its_decoration_goes() {
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

//! `burrow audit verify`: recomputes the tree in this process, from the daemon's log or from an export.

use std::io::{self, BufRead, BufReader, Read as _};

use burrow_audit::export::LINE_BYTES_MAX;
use burrow_audit::note::{Checkpoint, NOTE_BYTES_MAX, PublicKey};
use burrow_audit::verify::{Verifier, VerifyError, VerifyReport};
use burrow_client::ByteStream;

use crate::commands::prelude::*;
use crate::transfer::bridge::{pour, to_blocking};
use crate::transfer::input::{self, read_text};

const TAMPERED_HINT: &str = "the log was changed; preserve it and your checkpoints as evidence";

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Export to check instead of the daemon's log; `-` for standard input
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Checkpoint that was stored elsewhere; may be repeated
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Public key, or a file that contains it; without `--export`, the key of the daemon by default
    // Not `--key`, which is the API key of every command.
    #[arg(long, value_name = "KEY|FILE")]
    public_key: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: VerifyArgs) -> Result<(), Stop> {
    let what = "could not verify the audit log";
    let given = args.public_key.as_deref().map(public_key).transpose()?;
    let (key, verified) = match &args.export {
        Some(file) => {
            let stored = stored_checkpoints(&args.checkpoint, given.as_ref())?;
            let checked = from_file(file, Verifier::new(stored), given.as_ref()).or_fail(what)?;
            (given, checked)
        }
        None => {
            let client = ctx.client()?;
            let key = match given {
                Some(key) => key,
                None => public_key(&client.audit_checkpoint().await.or_fail(what)?.public_key)?,
            };
            let stored = stored_checkpoints(&args.checkpoint, Some(&key))?;
            let stream = client.export_audit().await.or_fail(what)?;
            (Some(key.clone()), from_daemon(stream, Verifier::new(stored), key).await?)
        }
    };
    match verified {
        Ok(verified) => print_result(&verified, key.as_ref(), args.format),
        Err(error) => {
            Err(Failure::new("the audit log does not verify").because(&error).hint(TAMPERED_HINT).into())
        }
    }
}

fn print_result(verified: &VerifyReport, key: Option<&PublicKey>, format: Format) -> Result<(), Stop> {
    let events = quantity::count(verified.events, "event", "events");
    let (mut lines, mut notes) = (vec![format!("verified: {events}, root {}", verified.root)], Vec::new());
    if verified.removed > 0 {
        let what = "of them were removed, as the log records; only their hashes are stored";
        lines.push(format!("{} {what}", verified.removed));
    }
    match key {
        Some(key) => lines.push(format!("signed by {key}")),
        None => notes.push("note: no --public-key was given, so the signature was not checked"),
    }
    match verified.kept as u64 {
        0 => notes.push(
            "note: without a --checkpoint that was stored elsewhere, a log that was truncated, or rewritten with \
             its own key, is not detected",
        ),
        kept => {
            let stored = quantity::count(kept, "stored checkpoint", "stored checkpoints");
            lines.push(format!("it extends {stored}"));
        }
    }
    let json = serde_json::json!({
        "verified": true,
        "tenant": verified.tenant,
        "events": verified.events,
        "removed": verified.removed,
        "root": verified.root.hex(),
        "checkpoints": verified.kept,
        "public_key": key.map(ToString::to_string),
        "note": verified.note,
    });
    format.report(&json, lines, notes)
}

/// Checkpoints from files, signed by the key if there is one.
fn stored_checkpoints(files: &[PathBuf], key: Option<&PublicKey>) -> Result<Vec<Checkpoint>, Stop> {
    files
        .iter()
        .map(|file| {
            let what = || format!("could not use the checkpoint `{}`", file.display());
            let note = read_text(file, NOTE_BYTES_MAX as u64 + 1).or_fail(what)?;
            // A copy made by hand may lack the last line break.
            let note = format!("{}\n", note.trim_end());
            let read = match key {
                Some(key) => key.verify(&note),
                None => Checkpoint::read(&note),
            };
            read.map_err(|error| Failure::new(what()).because(&error).into())
        })
        .collect()
}

/// The key itself, or a file that contains it.
fn public_key(text: &str) -> Result<PublicKey, Stop> {
    let what = "could not use the public key";
    let text = match text.parse::<PublicKey>() {
        Ok(key) => return Ok(key),
        Err(_) if Path::new(text).exists() => read_text(Path::new(text), 1024).or_fail(what)?,
        Err(_) => text.to_owned(),
    };
    text.parse()
        .map_err(|error| Failure::new(what).because(&error).hint("`burrow audit key` prints it").into())
}

fn from_file(
    file: &Path,
    verifier: Verifier,
    key: Option<&PublicKey>,
) -> io::Result<Result<VerifyReport, VerifyError>> {
    from_reader(BufReader::with_capacity(1 << 20, input::open(file)?), verifier, key)
}

fn from_reader(
    mut reader: impl BufRead,
    mut verifier: Verifier,
    key: Option<&PublicKey>,
) -> io::Result<Result<VerifyReport, VerifyError>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than the limit, so that a longer line is detected.
        let limit = LINE_BYTES_MAX as u64 + 2;
        if (&mut reader).take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(verifier.finish(key));
        }
        if let Err(error) = verifier.line(&line) {
            return Ok(Err(error));
        }
    }
}

/// Verifies the log of the daemon line by line, as it arrives.
async fn from_daemon(
    stream: ByteStream,
    verifier: Verifier,
    key: PublicKey,
) -> Result<Result<VerifyReport, VerifyError>, Stop> {
    let what = "could not read the audit log";
    let (sender, reader) = to_blocking();
    let checking =
        tokio::task::spawn_blocking(move || from_reader(BufReader::new(reader), verifier, Some(&key)));
    let received = pour(stream, sender, &Progress::bytes("audit log", None)).await;
    let checked = checking.await.expect("checking does not panic");
    received.or_fail(what)?;
    checked.or_fail(what)
}

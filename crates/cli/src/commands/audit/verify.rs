//! `burrow audit verify`: computes the tree anew, here, from the daemon's log or from an export, with nobody's help.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use burrow_audit::export::LINE_BYTES_MAX;
use burrow_audit::note::{Checkpoint, NOTE_BYTES_MAX, PublicKey};
use burrow_audit::verify::{Verified, Verifier, VerifyError};
use burrow_client::ByteStream;
use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::print::{self, Format, quantity};

const TAMPERED_HINT: &str =
    "the log is not what it was; keep it as it is, and the checkpoints you have, as evidence";

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// An export to check instead of the daemon's log; `-` for standard input
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// A checkpoint that was kept elsewhere; may be given several times
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// The public key, or a file that holds it; the daemon's own without `--export`
    // Not `--key`, which is the API key of every command.
    #[arg(long, value_name = "KEY|FILE")]
    public_key: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: VerifyArgs) -> Result<(), Stop> {
    let what = || "could not verify the audit log".to_owned();
    let given = args.public_key.as_deref().map(public_key).transpose()?;
    let (key, verified) = match &args.export {
        Some(file) => {
            let kept = kept(&args.checkpoint, given.as_ref())?;
            let checked = from_file(file, Verifier::new(kept), given.as_ref()).or_fail(what)?;
            (given, checked)
        }
        None => {
            let client = ctx.client()?;
            let key = match given {
                Some(key) => key,
                None => public_key(&client.audit_checkpoint().await.or_fail(what)?.public_key)?,
            };
            let kept = kept(&args.checkpoint, Some(&key))?;
            let stream = client.export_audit().await.or_fail(what)?;
            (Some(key.clone()), from_daemon(stream, Verifier::new(kept), &key).await?)
        }
    };
    match verified {
        Ok(verified) => tell(&verified, key.as_ref(), args.format),
        Err(error) => {
            Err(Failure::new("the audit log does not verify").because(&error).hint(TAMPERED_HINT).into())
        }
    }
}

fn tell(verified: &Verified, key: Option<&PublicKey>, format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(&serde_json::json!({
            "verified": true,
            "tenant": verified.tenant,
            "events": verified.events,
            "removed": verified.removed,
            "root": verified.root.hex(),
            "checkpoints": verified.kept,
            "public_key": key.map(ToString::to_string),
            "note": verified.note,
        }));
    }
    let events = usize::try_from(verified.events).unwrap_or(usize::MAX);
    print::line(&format!(
        "verified: {}, root {}",
        quantity::count(events, "event", "events"),
        verified.root
    ))?;
    if verified.removed > 0 {
        print::line(&format!("of {} only the hash is kept, as the log says", verified.removed))?;
    }
    match key {
        Some(key) => print::line(&format!("signed by {key}"))?,
        None => print::note("note: no --public-key was given, so the signature was not checked"),
    }
    match verified.kept {
        0 => print::note(
            "note: without a --checkpoint kept elsewhere nobody can tell a log that was cut off or written anew \
             by whoever has its key",
        ),
        kept => print::line(&format!(
            "it goes on from {}",
            quantity::count(kept, "kept checkpoint", "kept checkpoints")
        ))?,
    }
    Ok(())
}

/// Checkpoints from files, signed by the key if there is one.
fn kept(files: &[PathBuf], key: Option<&PublicKey>) -> Result<Vec<Checkpoint>, Stop> {
    files
        .iter()
        .map(|file| {
            let what = || format!("could not use the checkpoint `{}`", file.display());
            let mut note = String::new();
            let limit = NOTE_BYTES_MAX as u64 + 1;
            File::open(file).or_fail(what)?.take(limit).read_to_string(&mut note).or_fail(what)?;
            // Whoever copied it by hand may have lost its last line break.
            let note = format!("{}\n", note.trim_end());
            let read = match key {
                Some(key) => key.verify(&note),
                None => Checkpoint::read(&note),
            };
            read.map_err(|error| Failure::new(what()).because(&error).into())
        })
        .collect()
}

/// The key itself, or a file that holds it.
fn public_key(text: &str) -> Result<PublicKey, Stop> {
    let what = || "could not use the public key".to_owned();
    let text = match text.parse::<PublicKey>() {
        Ok(key) => return Ok(key),
        Err(_) if Path::new(text).exists() => {
            let mut found = String::new();
            File::open(text).or_fail(what)?.take(1024).read_to_string(&mut found).or_fail(what)?;
            found
        }
        Err(_) => text.to_owned(),
    };
    text.parse()
        .map_err(|error| Failure::new(what()).because(&error).hint("`burrow audit key` prints it").into())
}

fn from_file(
    file: &Path,
    verifier: Verifier,
    key: Option<&PublicKey>,
) -> io::Result<Result<Verified, VerifyError>> {
    let reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 20, File::open(file)?))
    };
    from_reader(reader, verifier, key)
}

fn from_reader(
    mut reader: impl BufRead,
    mut verifier: Verifier,
    key: Option<&PublicKey>,
) -> io::Result<Result<Verified, VerifyError>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        // One more than a line may have, so that a longer one is seen to be none.
        let limit = LINE_BYTES_MAX as u64 + 2;
        if (&mut reader).take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(verifier.finish(key));
        }
        if let Err(error) = verifier.line(&line) {
            return Ok(Err(error));
        }
    }
}

/// As it comes, line by line.
async fn from_daemon(
    mut stream: ByteStream,
    mut verifier: Verifier,
    key: &PublicKey,
) -> Result<Result<Verified, VerifyError>, Stop> {
    let what = || "could not read the audit log".to_owned();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(chunk) = stream.chunk().await.or_fail(what)? {
        rest.extend_from_slice(&chunk);
        let mut from = 0;
        while let Some(length) = rest[from..].iter().position(|byte| *byte == b'\n') {
            if let Err(error) = verifier.line(&rest[from..=from + length]) {
                return Ok(Err(error));
            }
            from += length + 1;
        }
        rest.drain(..from);
        if rest.len() > LINE_BYTES_MAX {
            // No line is that long; the verifier says so.
            break;
        }
    }
    if !rest.is_empty()
        && let Err(error) = verifier.line(&rest)
    {
        return Ok(Err(error));
    }
    Ok(verifier.finish(Some(key)))
}

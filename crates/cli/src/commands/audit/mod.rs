//! `burrow audit`: who did what, and the proof that nobody changed the tale.

mod moving;
mod prove;
mod show;
mod verify;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::{self, Format};

/// The audit log: who did what, provably
///
/// Every call that changes something, every exec, every decision about what left a sandbox. The log is a Merkle tree
/// (RFC 6962) with signed checkpoints: keep one elsewhere, and `verify` finds whatever was removed, reordered or changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow audit ls --action egress.inject --secret openai-api-key
  burrow audit tail -f --sandbox web
  burrow audit checkpoint > /mnt/elsewhere/burrow.checkpoint
  burrow audit verify --checkpoint /mnt/elsewhere/burrow.checkpoint
  burrow audit export -o audit.jsonl
  burrow audit verify --export audit.jsonl --checkpoint burrow.checkpoint --public-key burrow.pub")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List events, newest first
    Ls(show::LsArgs),
    /// Show the newest events, and on request what happens next
    Tail(show::TailArgs),
    /// Check that nothing was removed, reordered or changed
    ///
    /// Reads the whole log, from the daemon or from an export, computes its tree anew and compares it with its signed
    /// checkpoint, and with those you kept elsewhere.
    Verify(verify::VerifyArgs),
    /// Write the whole log as JSON Lines, its checkpoint last
    Export(moving::ExportArgs),
    /// Prove that an event is in the log, or that the log only grew
    Prove(prove::ProveArgs),
    /// Print the signed size and root of the log: keep it elsewhere
    Checkpoint {
        #[command(flatten)]
        format: Format,
    },
    /// Print the public key that signs checkpoints
    Key {
        #[command(flatten)]
        format: Format,
    },
}

pub(crate) async fn run(ctx: &Context, args: AuditArgs) -> Result<(), Stop> {
    match args.action {
        Action::Ls(args) => show::ls(ctx, args).await,
        Action::Tail(args) => show::tail(ctx, args).await,
        Action::Verify(args) => verify::run(ctx, args).await,
        Action::Export(args) => moving::export(ctx, args).await,
        Action::Prove(args) => prove::run(ctx, args).await,
        Action::Checkpoint { format } => {
            let what = || "could not get the audit log's checkpoint".to_owned();
            let checkpoint = ctx.client()?.audit_checkpoint().await.or_fail(what)?;
            if format.json { print::json::pretty(&checkpoint) } else { print::data(&checkpoint.note) }
        }
        Action::Key { format } => {
            let what = || "could not get the audit log's public key".to_owned();
            let key = ctx.client()?.audit_checkpoint().await.or_fail(what)?.public_key;
            if format.json {
                return print::json::pretty(&serde_json::json!({ "public_key": key }));
            }
            print::line(&key)
        }
    }
}

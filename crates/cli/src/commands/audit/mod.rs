//! `burrow audit`: reads, exports and verifies the audit log.

use crate::commands::prelude::*;

mod export;
mod prove;
mod show;
mod verify;

/// Read, export and verify the audit log
///
/// The log records every call that changes something, every exec and every egress decision. It is a Merkle tree
/// (RFC 6962) with signed checkpoints: store a checkpoint on another machine, and `verify` detects every event that
/// was removed, reordered or changed.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow audit ls --action egress.inject --secret openai-api-key
  burrow audit tail -f --sandbox web
  burrow audit checkpoint > /mnt/elsewhere/burrow.checkpoint
  burrow audit verify --checkpoint /mnt/elsewhere/burrow.checkpoint
  burrow audit export -o audit.jsonl
  burrow audit verify --export audit.jsonl --checkpoint burrow.checkpoint --public-key burrow.pub")]
pub(crate) enum AuditCommand {
    /// List events, newest first
    Ls(show::LsArgs),
    /// Show the newest events; -f follows new ones
    Tail(show::TailArgs),
    /// Check that no event was removed, reordered or changed
    ///
    /// Reads the whole log from the daemon or from an export, recomputes its tree and compares it with its signed
    /// checkpoint and with the checkpoints that you stored elsewhere.
    Verify(verify::VerifyArgs),
    /// Write the whole log as JSON Lines, followed by its checkpoint
    Export(export::ExportArgs),
    /// Prove that an event is in the log, or that the log only grew
    Prove(prove::ProveArgs),
    /// Print the signed size and root of the log; store it on another machine
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

pub(crate) async fn run(ctx: &Context, command: AuditCommand) -> Result<(), Stop> {
    match command {
        AuditCommand::Ls(args) => show::ls(ctx, args).await,
        AuditCommand::Tail(args) => show::tail(ctx, args).await,
        AuditCommand::Verify(args) => verify::run(ctx, args).await,
        AuditCommand::Export(args) => export::export(ctx, args).await,
        AuditCommand::Prove(args) => prove::run(ctx, args).await,
        AuditCommand::Checkpoint { format } => {
            let what = "could not get the audit log's checkpoint";
            let checkpoint = ctx.client()?.audit_checkpoint().await.or_fail(what)?;
            format.show(&checkpoint, |checkpoint| print::data(&checkpoint.note))
        }
        AuditCommand::Key { format } => {
            let what = "could not get the audit log's public key";
            let key = ctx.client()?.audit_checkpoint().await.or_fail(what)?.public_key;
            format.show(&serde_json::json!({ "public_key": key }), |_| print::line(&key))
        }
    }
}

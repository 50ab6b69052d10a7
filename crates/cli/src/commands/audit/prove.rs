//! `burrow audit prove`: checks a proof that an event is in the log, or that the log only grew.

use burrow_audit::note::PublicKey;
use burrow_audit::tree::{Hash, proves_consistency, proves_inclusion};

use crate::commands::prelude::*;

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Index of the event
    #[arg(required_unless_present = "grown_from")]
    index: Option<u64>,
    /// Prove instead that the log extends the log of this many events
    #[arg(long, value_name = "SIZE", conflicts_with = "index")]
    grown_from: Option<u64>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: ProveArgs) -> Result<(), Stop> {
    let what = "could not get the proof";
    let client = ctx.client()?;
    let checkpoint = client.audit_checkpoint().await.or_fail(what)?;
    let signed = checkpoint.public_key.parse::<PublicKey>().and_then(|key| key.verify(&checkpoint.note));
    let signed = signed.map_err(|error| Failure::new("the checkpoint cannot be trusted").because(&error))?;
    let holds = |good: bool| match good {
        true => Ok(()),
        false => Err(Stop::from(Failure::new("the proof does not match the checkpoint of the log"))),
    };
    if let Some(from) = args.grown_from {
        let proof = client.audit_consistency(from, Some(signed.size)).await.or_fail(what)?;
        let (old, path) = (hash(&proof.from_root)?, hashes(&proof.path)?);
        holds(proves_consistency(from, &old, signed.size, &signed.root, &path))?;
        let size = signed.size;
        return args.format.show(&proof, |_| {
            print::line(format!(
                "proven: the log of {size} events extends the log of {from} events, whose root is {old}"
            ))
        });
    }
    let index = args.index.unwrap_or_default();
    let proof = client.audit_inclusion(index, Some(signed.size)).await.or_fail(what)?;
    let (leaf, path) = (hash(&proof.leaf)?, hashes(&proof.path)?);
    holds(proves_inclusion(&leaf, index, signed.size, &path, &signed.root))?;
    args.format.show(&proof, |_| {
        print::line(format!(
            "proven: event {index} is in the log of {} events; its leaf is {leaf}",
            signed.size
        ))
    })
}

fn hash(hex: &str) -> Result<Hash, Stop> {
    Hash::from_hex(hex).ok_or_else(|| Failure::new("the proof contains an invalid hash").into())
}

fn hashes(hex: &[String]) -> Result<Vec<Hash>, Stop> {
    hex.iter().map(|hex| hash(hex)).collect()
}

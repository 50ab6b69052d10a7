//! `burrow image ls` and `inspect`.

use burrow_api::{Image, ImageDetail};
use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::{self, Format, quantity, table};

/// Show an image: configuration, layers, history, and the sandboxes that use it
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Name or id
    image: String,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn list(ctx: &Context, format: Format) -> Result<(), Stop> {
    let images = ctx.client()?.images().await.or_fail(|| "could not list images".to_owned())?;
    if format.json {
        return print::json::pretty(&images);
    }
    let now_ms = quantity::now_ms();
    let rows: Vec<_> = images.iter().map(|image| row(image, now_ms)).collect();
    table::print(&["ID", "NAME", "SIZE", "ORIGIN", "AGE"], &rows)
}

fn row(image: &Image, now_ms: u64) -> Vec<String> {
    vec![
        image.id.clone(),
        image.names.join(" "),
        quantity::bytes(image.size_bytes),
        image.origin.clone(),
        quantity::age(image.created_ms, now_ms),
    ]
}

pub(super) async fn inspect(ctx: &Context, args: InspectArgs) -> Result<(), Stop> {
    let what = || format!("could not inspect image `{}`", args.image);
    let detail = ctx.client()?.image(&args.image).await.or_fail(what)?;
    if args.format.json {
        return print::json::pretty(&detail);
    }
    let rows: Vec<Vec<String>> =
        facts(&detail).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::print(&["", ""], &rows)?;
    if !detail.history.is_empty() {
        let steps: Vec<_> = detail
            .history
            .iter()
            .map(|step| vec![quantity::bytes(step.size_bytes), step.what.clone()])
            .collect();
        table::print(&["SIZE", "STEP"], &steps)?;
    }
    Ok(())
}

fn facts(detail: &ImageDetail) -> Vec<(&'static str, String)> {
    let (image, config) = (&detail.image, &detail.image.config);
    let mut facts = vec![
        ("id", image.id.clone()),
        ("names", image.names.join(" ")),
        ("created", quantity::timestamp(image.created_ms)),
        ("origin", [image.origin.as_str(), image.origin_of.as_deref().unwrap_or_default()].join(" ")),
        ("size", quantity::bytes(image.size_bytes)),
        ("unique", quantity::bytes(detail.unique_bytes)),
        ("layers", detail.layers.len().to_string()),
        ("env", table::pairs(&config.env)),
        ("user", config.user.clone().unwrap_or_default()),
        ("workdir", config.workdir.clone().unwrap_or_default()),
        ("entrypoint", config.entrypoint.join(" ")),
        ("cmd", config.cmd.join(" ")),
        ("labels", table::pairs(&config.labels)),
        ("ports", config.exposed_ports.iter().cloned().collect::<Vec<_>>().join(" ")),
        ("used by", detail.used_by.join(" ")),
    ];
    facts.retain(|(_, value)| !value.trim().is_empty());
    facts
}

//! `burrow image ls` and `inspect`.

use burrow_api::{Image, ImageDetail, ImageStep};

use crate::commands::prelude::*;

/// Show an image: configuration, layers, history, and the sandboxes that use it
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Name or id
    image: String,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn list(ctx: &Context, format: Format) -> Result<(), Stop> {
    let images = ctx.client()?.images().await.or_fail("could not list images")?;
    format.table(&["ID", "NAME", "SIZE", "ORIGIN", "AGE"], &images, row)
}

fn row(image: &Image) -> Vec<String> {
    vec![
        image.id.clone(),
        image.names.join(" "),
        quantity::bytes(image.size_bytes),
        image.origin.clone(),
        quantity::age_now(image.created_ms),
    ]
}

pub(super) async fn inspect(ctx: &Context, args: InspectArgs) -> Result<(), Stop> {
    let what = || format!("could not inspect image `{}`", args.image);
    let detail = ctx.client()?.image(&args.image).await.or_fail(what)?;
    args.format.show(&detail, |detail| {
        table::facts(facts(detail))?;
        if detail.history.is_empty() {
            return Ok(());
        }
        let step = |step: &ImageStep| vec![quantity::bytes(step.size_bytes), step.what.clone()];
        table::print(&["SIZE", "STEP"], &detail.history, step)
    })
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

//! Finds what a template's name refers to: an image or a snapshot.

use burrow_engine::{EngineError, ObjectKind};
use burrow_model::Snapshot;
use http::StatusCode;

use super::error::Refusal;
use super::{branches, mcp};
use burrow_http::app::App;
use burrow_http::auth::Caller;
use burrow_http::convert;

/// E2B's name of the default template.
const BASE: &str = "base";

/// E2B's name of the template that runs code, and the images that it can mean here: the first one that was built.
const INTERPRETER: &str = "code-interpreter-v1";
const INTERPRETER_IMAGES: [&str; 2] = ["polyglot-interpreter", "python-interpreter"];

/// E2B's default tag.
pub(super) const DEFAULT_TAG: &str = ":default";

/// The object that a template name refers to.
#[derive(Debug)]
pub(super) enum TemplateTarget {
    /// The name of an image.
    Image(String),
    Snapshot(Box<Snapshot>),
}

/// Finds an image by name or id, or a snapshot by id or name; `base` is the operator's default.
pub(super) async fn find(app: &App, caller: &Caller, text: &str) -> Result<TemplateTarget, Refusal> {
    let plain = text.strip_suffix(DEFAULT_TAG).unwrap_or(text);
    for name in [text, plain] {
        if convert::image_reference("templateID", name).is_err() {
            continue;
        }
        match app.engine.find_image(caller.tenant(), name).await {
            Ok(_) => return Ok(TemplateTarget::Image(name.to_owned())),
            Err(EngineError::NotFound { kind: ObjectKind::Image, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if matches!(plain, BASE | mcp::TEMPLATE) {
        return Ok(TemplateTarget::Image(app.config.defaults.image.clone()));
    }
    if plain == INTERPRETER {
        return find_interpreter(app, caller).await;
    }
    let stored = branches::stored_name(plain).map(|(name, _)| name.to_string());
    match caller.snapshot(app, stored.as_deref().unwrap_or(plain)).await {
        Ok(snapshot) => Ok(TemplateTarget::Snapshot(Box::new(snapshot))),
        Err(_) => Err(unknown(text)),
    }
}

async fn find_interpreter(app: &App, caller: &Caller) -> Result<TemplateTarget, Refusal> {
    for name in INTERPRETER_IMAGES {
        match app.engine.find_image(caller.tenant(), name).await {
            Ok(_) => return Ok(TemplateTarget::Image(name.to_owned())),
            Err(EngineError::NotFound { kind: ObjectKind::Image, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let [polyglot, python] = INTERPRETER_IMAGES;
    let message = format!(
        "template `{INTERPRETER}` requires the image `{polyglot}` or `{python}`, and neither exists: build the smaller one with \
         `burrow image build --ready {python}`"
    );
    Err(Refusal::new(StatusCode::NOT_FOUND, message))
}

/// The images that sandboxes of a template may have. A sandbox stores the first name of its image, which may differ
/// from the name that it was created with.
pub(super) async fn images(app: &App, caller: &Caller, template: &str) -> Result<Vec<String>, Refusal> {
    let names = match template.strip_suffix(DEFAULT_TAG).unwrap_or(template) {
        BASE | mcp::TEMPLATE => vec![app.config.defaults.image.as_str()],
        INTERPRETER => INTERPRETER_IMAGES.to_vec(),
        plain => vec![plain],
    };
    let mut images = Vec::with_capacity(2 * names.len());
    for name in names {
        images.push(name.to_owned());
        match app.engine.find_image(caller.tenant(), name).await {
            Ok(image) => images.push(image.reference().to_string()),
            Err(EngineError::NotFound { kind: ObjectKind::Image, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(images)
}

fn unknown(text: &str) -> Refusal {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(128).collect();
    let message = format!(
        "template `{shown}` not found: a template is an image (`burrow image ls`; get more with `burrow image pull`), \
         a snapshot, or `{BASE}`"
    );
    Refusal::new(StatusCode::NOT_FOUND, message)
}

//! The refusals each route can answer with, for the OpenAPI document.

use std::collections::BTreeMap;

use burrow_api::ErrorBody;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

fn refusals(table: &[(u16, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let body = || ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    let response =
        |text: &str| ResponseBuilder::new().description(text).content("application/json", body()).build();
    table.iter().map(|(status, text)| (status.to_string(), RefOr::T(response(text)))).collect()
}

macro_rules! refusals {
    ($(#[$doc:meta])* $name:ident: $($status:literal $text:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                refusals(&[$(($status, $text)),+])
            }
        }
    };
}

refusals! {
    /// What any request with a key may meet.
    Common:
        400 "The path, a query parameter or a header makes no sense",
        401 "No API key, or one that is unknown, expired or revoked",
        403 "The key's scope does not reach this far",
        429 "Too many requests at once, or a bound of this host or sandbox",
        500 "A fault of the daemon; its log says more",
        507 "Disk, quota or pool full",
}
refusals! {
    /// What a request with a JSON body may meet.
    WithBody:
        413 "The body is larger than its bound",
        415 "The body is not `application/json`",
        422 "The request is well formed and cannot be carried out",
}
refusals! {
    /// What naming a thing may meet.
    Named:
        404 "No such thing, or not yours",
}
refusals! {
    /// What a request about a secret may meet.
    Secretive:
        404 "No such secret, or not yours",
        409 "Rules of sandboxes name it, there are too many, or it is being changed by others",
        422 "What is stored of it does not open",
}
refusals! {
    /// What a request about a volume may meet.
    Shelving:
        404 "No such volume, snapshot of it or file in it, or not yours",
        409 "A sandbox has it, it has snapshots, a name is taken, or something else is being done to it",
        413 "A body, a path or a listing is beyond its bound",
        422 "The request is well formed and cannot be carried out: a path of the wrong kind, …",
}
refusals! {
    /// What a change of a sandbox may meet.
    Changing:
        404 "No such sandbox, or not yours",
        409 "The sandbox is not in a state for this, a name is taken, or processes cannot be kept or brought back",
        422 "The request is well formed and cannot be carried out, or what is stored is damaged",
        504 "The guest agent does not answer",
}
refusals! {
    /// What asking the guest for something may meet.
    ByGuest:
        404 "No such sandbox, exec or file, or not yours",
        409 "The sandbox is not running or does not wake, the exec has ended, or something is in the way",
        413 "A path, a body or a listing is beyond its bound",
        422 "The sandbox cannot carry it out: an unknown user, a path of the wrong kind, …",
        504 "The guest agent does not answer",
}
refusals! {
    /// What connecting to a port may meet.
    ByPort:
        502 "Nothing listens on that port",
}
refusals! {
    /// What an `Idempotency-Key` may meet.
    Idempotent:
        409 "A name is taken, or a request with the same `Idempotency-Key` is under way",
        422 "The same `Idempotency-Key` came with another body, or the request cannot be carried out",
}
refusals! {
    /// What a request to memory may meet.
    Remembering:
        404 "No such sandbox, space, snapshot or thing remembered, or not yours",
        409 "It is not what was expected any more, or a name is taken",
        413 "A text, a value or a batch is beyond its bound; the answer names it",
        422 "The request is well formed and cannot be carried out, or what is stored is damaged",
        502 "Where vectors or artifacts are kept does not answer",
}

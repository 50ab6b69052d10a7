//! The error responses of each route, for the OpenAPI document.

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
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                refusals(&[$(($status, $text)),+])
            }
        }
    };
}

refusals! {
    /// Errors of any request with a key.
    Common:
        400 "The path, a query parameter or a header is invalid",
        401 "The API key is missing, unknown, expired or revoked",
        403 "The key's scope does not allow this",
        429 "Too many concurrent requests, or a limit of this host or sandbox was reached",
        500 "An internal error of the daemon; see its log",
        507 "The disk, a quota or the pool is full",
}
refusals! {
    /// Errors of a request with a JSON body.
    WithBody:
        413 "The body is larger than the limit",
        415 "The body is not `application/json`",
        422 "The request is well-formed but cannot be carried out",
}
refusals! {
    /// Errors of a request that names an object.
    ObjectRefusals:
        404 "The object does not exist, or belongs to another tenant",
}
refusals! {
    /// Errors of a request about a secret.
    SecretRefusals:
        404 "The secret does not exist, or belongs to another tenant",
        409 "Rules of sandboxes use it, there are too many secrets, or it is being changed concurrently",
        422 "The stored secret cannot be decrypted",
}
refusals! {
    /// Errors of a request about a volume.
    VolumeRefusals:
        404 "The volume, snapshot or file does not exist, or belongs to another tenant",
        409 "The volume is in use, has snapshots, or is being changed, or a name is taken",
        413 "A body, a path or a listing exceeds its limit",
        422 "The request is well-formed but cannot be carried out, for example because of a path of the wrong kind",
}
refusals! {
    /// Errors of a change of a sandbox.
    SandboxRefusals:
        404 "The sandbox does not exist, or belongs to another tenant",
        409 "The sandbox is in the wrong state, a name is taken, or processes cannot be saved or restored",
        422 "The request is well-formed but cannot be carried out, or stored data is damaged",
        504 "The guest agent does not respond",
}
refusals! {
    /// Errors of a request to the guest agent.
    GuestRefusals:
        404 "The sandbox, exec or file does not exist, or belongs to another tenant",
        409 "The sandbox is not running or cannot be woken, the exec has ended, or a conflicting file exists",
        413 "A path, a body or a listing exceeds its limit",
        422 "The sandbox cannot carry out the request, for example because of an unknown user or a path of the wrong kind",
        504 "The guest agent does not respond",
}
refusals! {
    /// Errors of a connection to a port.
    PortRefusals:
        502 "No process listens on that port",
}
refusals! {
    /// Errors of a request with an `Idempotency-Key`.
    IdempotencyRefusals:
        409 "A name is taken, or a request with the same `Idempotency-Key` is in progress",
        422 "The same `Idempotency-Key` was used with another body, or the request cannot be carried out",
}
refusals! {
    /// Errors of a request to memory.
    MemoryRefusals:
        404 "The sandbox, space, snapshot or object does not exist, or belongs to another tenant",
        409 "The object was changed in the meantime, or a name is taken",
        413 "A text, a value or a batch exceeds its limit, which the response names",
        422 "The request is well-formed but cannot be carried out, or stored data is damaged",
        502 "The service for embeddings or artifacts does not respond",
}

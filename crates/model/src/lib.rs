//! The nouns of Burrow: ids, specifications, states and the rules between them.
//!
//! Pure: no IO, no clock, no async, no wire format. Every other crate may use this one; it uses none of ours.

mod id;
mod image;
mod key;
mod lifecycle;
mod limits;
mod name;
mod spec;

pub use id::{ExecId, IdError, ImageId, KeyId, OperationId, SandboxId, TenantId};
pub use image::{Image, ImageConfig};
pub use key::{Scope, ScopeSet};
pub use lifecycle::{Admission, Refusal, Request, State, StopReason, admit};
pub use limits::{Limits, LimitsError, MIB, parse_bytes};
pub use name::{Label, LabelError, Name, NameError};
pub use spec::{EnvError, Lifetime, RestartPolicy, SandboxSpec, ServiceSpec, check_env_name};

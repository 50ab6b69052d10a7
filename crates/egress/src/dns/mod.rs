//! The resolver of a sandbox. It answers allowed names with synthetic addresses and forwards nothing.
//!
//! ```text
//! question ──► message (parse) ──► resolver (policy, budget) ──► names (an address per name) ──► answer
//! ```
//!
//! A synthetic address has no meaning outside the sandbox: it tells the proxy which name a later connection is for.
//! So the resolver reveals to a sandbox only whether a name is allowed, and a question sends nothing to the outside.

pub mod message;
pub mod names;
pub mod resolver;
pub(crate) mod server;

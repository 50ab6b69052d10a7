//! The resolver of a sandbox: answers allowed names with synthetic addresses, and forwards nothing.
//!
//! ```text
//! question ──► message (parse) ──► resolver (policy, budget) ──► names (an address per name) ──► answer
//! ```
//!
//! A name's address means nothing outside: it is how a later connection says which name it is for. So a sandbox learns
//! nothing from the resolver but whether a name is allowed, and nothing leaves by asking.

pub mod message;
pub mod names;
pub mod resolver;
pub(crate) mod server;

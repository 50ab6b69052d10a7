//! Seals secrets for the catalog, opens them for the egress process, and mints what sandboxes trust in their place.
//!
//! ```text
//!   value ──AES-256-GCM, a data key──► sealed value, bound to tenant · kind · name · version ──► catalog
//!                     │
//!                  wrapped by a [`Sealer`]: the key file, or a command that asks a KMS ──► stands beside the value
//! ```
//!
//! A data key is wrapped once and seals many values, so that a KMS is asked once per start and not once per request.
//! What is sealed says which key wraps its data key: a new key seals, older ones open.
//!
//! Invariants: a sealed value opens only under the label it was sealed under, so rows cannot be swapped. Plain values are
//! [`burrow_model::SecretBytes`], and no error holds one.
//!
//! What is absent: the catalog, and who may ask for what.

mod authority;
mod command;
pub mod conformance;
mod error;
mod key_file;
mod placeholder;
mod seal;
mod sealer;

pub use authority::{MintedAuthority, certificate_pem, check_client_certificate, mint_authority};
pub use command::CommandSealer;
pub use error::VaultError;
pub use key_file::{KEY_FILE_KEYS_MAX, KeyFile};
pub use placeholder::placeholder;
pub use seal::{Kind, Label, Sealed, Vault};
pub use sealer::{DataKey, Sealer};

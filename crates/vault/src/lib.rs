//! Encrypts secrets for the catalog, decrypts them for the egress process, and creates authorities and placeholders.
//!
//! ```text
//!   value ──AES-256-GCM, a data key──► sealed value, bound to tenant · kind · name · version ──► catalog
//!                     │
//!                  wrapped by a [`Sealer`]: the key file, or a command that asks a KMS ──► stored beside the value
//! ```
//!
//! A data key is wrapped once and seals many values, so a KMS is called once per start and not once per request. A
//! sealed value names the key that wraps its data key: a new key seals, older keys can still unseal.
//!
//! Invariants: a sealed value can be decrypted only under the label under which it was sealed, so rows cannot be
//! swapped. Plaintext values are [`burrow_model::SecretBytes`], and no error contains one.
//!
//! This crate contains no catalog and no access control.

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
pub use seal::{Kind, Label, SealedSecret, Vault};
pub use sealer::{DataKey, Sealer};

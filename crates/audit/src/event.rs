//! An audit event: flat, limited in size, printable, without any secret.

use std::fmt;
use std::str::FromStr;

use burrow_model::{SandboxId, TenantId};
use serde::{Deserialize, Serialize};

/// Longest text of an event, in bytes. Longer texts are cut: a host name has at most 255 bytes, and this much of a
/// path identifies the request.
pub const TEXT_BYTES_MAX: usize = 512;

/// Largest event as JSON, in bytes: every text at its maximum with every character escaped, and the numbers.
pub const EVENT_BYTES_MAX: usize = 16 * 1024;

/// The last character of a text that was cut.
const CUT: char = '…';

/// A text of an event: at most [`TEXT_BYTES_MAX`] bytes, without characters that a terminal or a log would interpret.
///
/// Texts are created only by [`Text::new`], including those read from a file, so a hostile host name is harmless
/// wherever the event is displayed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

impl Text {
    pub fn new(text: &str) -> Self {
        if text.len() <= TEXT_BYTES_MAX && !text.chars().any(is_unsafe_to_display) {
            return Self(text.to_owned());
        }
        let mut shown = String::new();
        for character in text.chars() {
            let mut piece = String::new();
            match is_unsafe_to_display(character) {
                true => piece.extend(character.escape_unicode()),
                false => piece.push(character),
            }
            if shown.len() + piece.len() > TEXT_BYTES_MAX - CUT.len_utf8() {
                shown.push(CUT);
                return Self(shown);
            }
            shown.push_str(&piece);
        }
        Self(shown)
    }

    /// The path of a URL, without query and fragment, which may contain tokens.
    pub fn path(target: &str) -> Self {
        Self::new(target.split(['?', '#']).next().unwrap_or_default())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Control characters, and characters that change the writing direction or break lines invisibly.
fn is_unsafe_to_display(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An unknown name of an action or an outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{word}` in the audit log")]
pub struct UnknownWord {
    word: Text,
    what: &'static str,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { word: Text::new(word), what: $what }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What was done, or attempted. Names never change their meaning and are never removed, because old logs contain
    /// them.
    Action, "action" {
        /// A flow or a request from a sandbox was allowed.
        EgressAllow = "egress.allow",
        /// A flow or a request from a sandbox was refused.
        EgressDeny = "egress.deny",
        /// A secret was inserted into a request.
        EgressInject = "egress.inject",
        /// A secret in a host's response was removed.
        EgressScrub = "egress.scrub",
        /// A budget was exhausted.
        EgressBudget = "egress.budget",
        /// A request waited for approval: `reason` contains the outcome.
        EgressApproval = "egress.approval",
        /// A misplaced placeholder, or another sign of an attack.
        EgressAlarm = "egress.alarm",
        /// Any other call that changes something, given by `method` and `path`.
        ApiCall = "api.call",
        /// A call that only reads; recorded only if `audit.reads` is set.
        ApiRead = "api.read",
        ExecStart = "exec.start",
        ExecEnd = "exec.end",
        /// A client attached to a running exec: it reads the output and may write to its standard input.
        ExecAttach = "exec.attach",
        /// A client wrote to the standard input of a running exec.
        ExecInput = "exec.input",
        /// A connection to a port of a sandbox, with a key or token: over a WebSocket, or HTTP through the gateway.
        PortConnect = "port.connect",
        /// A signed link to a port or a file was used.
        LinkUse = "link.use",
        /// A backup of the daemon's data was read.
        BackupRead = "backup.read",
        ImageExport = "image.export",
        /// A client logged in over SSH: `reason` contains the login name and the address.
        SshLogin = "ssh.login",
        KeyCreate = "key.create",
        KeyDelete = "key.delete",
        /// The tokens of a sandbox that E2B clients have received were revoked.
        TokenRevoke = "token.revoke",
        SecretSet = "secret.set",
        SecretRotate = "secret.rotate",
        SecretDelete = "secret.delete",
        PolicyChange = "policy.change",
        SnapshotCreate = "snapshot.create",
        SnapshotRestore = "snapshot.restore",
        SnapshotDelete = "snapshot.delete",
        SandboxCreate = "sandbox.create",
        SandboxFork = "sandbox.fork",
        SandboxDelete = "sandbox.delete",
        SandboxMerge = "sandbox.merge",
        DaemonStart = "daemon.start",
        /// Bodies of old events were removed; their hashes remain.
        AuditRetention = "audit.retention",
        /// A part of the spool could not be read: its events are not in the log.
        AuditGap = "audit.gap",
    }
}

words! {
    /// The outcome of the action.
    Outcome, "outcome" {
        /// It was allowed; its result is in another event, or not recorded.
        Allowed = "allowed",
        /// It was refused and had no effect.
        Denied = "denied",
        Done = "done",
        /// It was attempted and did not succeed.
        Failed = "failed",
    }
}

impl Action {
    /// Whether only the egress process records this action.
    pub fn is_of_egress(self) -> bool {
        self.as_str().starts_with("egress.")
    }
}

/// One event of the log. Its JSON encoding ([`Event::to_bytes`]) is a leaf of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time in milliseconds since the epoch, by the clock of the recording process. The order of events is that
    /// of the tree, not of this time.
    pub at_ms: u64,
    pub tenant: TenantId,
    pub action: Action,
    pub outcome: Outcome,
    /// Who did it: a key's id and name, `sandbox`, or `daemon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Text>,
    /// Without the query; see [`Text::path`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The NAME of a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Text>,
    /// From the host to the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// From the sandbox to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// The id or name of another object that the event is about: a key, a snapshot, an exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Text>,
}

impl Event {
    /// An event with the mandatory fields; the others are set by the caller.
    pub fn new(at_ms: u64, tenant: TenantId, action: Action, outcome: Outcome) -> Self {
        Self {
            at_ms,
            tenant,
            action,
            outcome,
            actor: None,
            sandbox: None,
            rule: None,
            host: None,
            port: None,
            method: None,
            path: None,
            status: None,
            secret: None,
            bytes_in: None,
            bytes_out: None,
            duration_ms: None,
            reason: None,
            target: None,
            request_id: None,
        }
    }

    /// The encoding of the leaf: fields in the order above, without white space, so an event always has the same
    /// bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are strings and no field fails to serialise")
    }

    /// Parses the output of [`Event::to_bytes`], or an event with fields that a later version added.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> Event {
        let tenant = "tenaaaaaaaaaaaaaaaaaaaa".parse().unwrap();
        Event::new(7, tenant, Action::EgressInject, Outcome::Allowed)
    }

    #[test]
    fn an_event_is_flat_and_omits_missing_fields() {
        let event = Event { host: Some("api.example".into()), port: Some(443), ..event() };
        assert_eq!(
            String::from_utf8(event.to_bytes()).unwrap(),
            r#"{"at_ms":7,"tenant":"tenaaaaaaaaaaaaaaaaaaaa","action":"egress.inject","outcome":"allowed","host":"api.example","port":443}"#
        );
    }

    #[test]
    fn every_name_is_parsed_back() {
        for action in Action::ALL {
            assert_eq!(action.as_str().parse::<Action>().unwrap(), *action);
            assert_eq!(serde_json::to_string(action).unwrap(), format!("\"{action}\""));
        }
        let refused = "egress.\u{1b}".parse::<Action>().unwrap_err().to_string();
        assert!(refused.contains("unknown action") && !refused.contains('\u{1b}'), "{refused}");
    }

    #[test]
    fn a_path_has_no_query() {
        assert_eq!(Text::path("/v1/x?token=abc#y").as_str(), "/v1/x");
        assert_eq!(Text::path("/v1/x#token").as_str(), "/v1/x");
    }

    #[test]
    fn the_largest_event_is_within_the_limit() {
        let worst = Some(Text::new(&"\"".repeat(2 * TEXT_BYTES_MAX)));
        let event = Event {
            actor: worst.clone(),
            sandbox: Some(SandboxId::generate()),
            rule: worst.clone(),
            host: worst.clone(),
            port: Some(u16::MAX),
            method: worst.clone(),
            path: worst.clone(),
            status: Some(u16::MAX),
            secret: worst.clone(),
            bytes_in: Some(u64::MAX),
            bytes_out: Some(u64::MAX),
            duration_ms: Some(u64::MAX),
            reason: worst.clone(),
            target: worst.clone(),
            request_id: worst,
            ..event()
        };
        assert!(event.to_bytes().len() <= EVENT_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_text_becomes_limited_and_printable_and_is_stable(text in "\\PC{0,20}|.{0,900}|[\\x00-\\x1f]{0,200}") {
            let once = Text::new(&text);
            prop_assert!(once.as_str().len() <= TEXT_BYTES_MAX);
            prop_assert!(!once.as_str().chars().any(is_unsafe_to_display));
            prop_assert_eq!(&Text::new(once.as_str()), &once);
            let event = Event { reason: Some(once), ..event() };
            prop_assert_eq!(Event::from_bytes(&event.to_bytes()).unwrap(), event);
        }
    }
}

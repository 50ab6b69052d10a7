//! One thing that happened: flat, bounded, printable, without any secret.

use std::fmt;
use std::str::FromStr;

use burrow_model::{SandboxId, TenantId};
use serde::{Deserialize, Serialize};

/// Bytes of one text of an event. Longer ones are cut: a host name has at most 255 bytes, and of a path this much tells
/// what was asked for.
pub const TEXT_BYTES_MAX: usize = 512;

/// Bytes of an event as JSON: every text at its longest, every character of it escaped, and the numbers.
pub const EVENT_BYTES_MAX: usize = 16 * 1024;

/// What stands at the end of a text that was cut.
const CUT: char = '…';

/// A text as an event carries it: at most [`TEXT_BYTES_MAX`] bytes, and nothing in it that a terminal or a log would obey.
///
/// The only way to one is [`Text::new`], also for those read from a file, so a hostile host name is harmless wherever the
/// event is shown.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

impl Text {
    pub fn new(text: &str) -> Self {
        if text.len() <= TEXT_BYTES_MAX && !text.chars().any(is_treacherous) {
            return Self(text.to_owned());
        }
        let mut shown = String::new();
        for character in text.chars() {
            let mut piece = String::new();
            match is_treacherous(character) {
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

    /// The path of a URL, without query and fragment: people put tokens there.
    pub fn path(target: &str) -> Self {
        Self::new(target.split(['?', '#']).next().unwrap_or_default())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Control characters, and those that turn the direction of writing or break lines unseen.
fn is_treacherous(character: char) -> bool {
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

/// A word that is none of those an event knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no {what} of the audit log")]
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
    /// What was done, or tried. Words are never given another meaning and never removed: old logs hold them.
    Action, "action" {
        /// A flow or a request out of a sandbox was let through.
        EgressAllow = "egress.allow",
        /// … was refused.
        EgressDeny = "egress.deny",
        /// A secret was put into a request.
        EgressInject = "egress.inject",
        /// A secret that a host sent back was taken out of its answer.
        EgressScrub = "egress.scrub",
        /// A budget was used up.
        EgressBudget = "egress.budget",
        /// A request waited for somebody's yes: `reason` says what became of it.
        EgressApproval = "egress.approval",
        /// A placeholder where it does not belong, or another sign of an attack.
        EgressAlarm = "egress.alarm",
        /// Any other call that changes something: `method` and `path` say which.
        ApiCall = "api.call",
        /// A call that only reads; recorded only if `audit.reads` is set.
        ApiRead = "api.read",
        ExecStart = "exec.start",
        ExecEnd = "exec.end",
        /// A client attached to a running exec: it reads the output and may write to its standard input.
        ExecAttach = "exec.attach",
        /// A client wrote to the standard input of a running exec.
        ExecInput = "exec.input",
        /// A connection into a port of a sandbox, by key or token: over a WebSocket, or HTTP through the gateway.
        PortConnect = "port.connect",
        /// A signed link to a port or a file was used.
        LinkUse = "link.use",
        /// A copy of everything the daemon keeps left the host.
        BackupRead = "backup.read",
        ImageExport = "image.export",
        /// Somebody logged in over SSH: `reason` says as what and from where.
        SshLogin = "ssh.login",
        KeyCreate = "key.create",
        KeyDelete = "key.delete",
        /// Tokens of a sandbox that E2B's clients were given count no more.
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
        /// Bodies of old events were removed; their hashes stay.
        AuditRetention = "audit.retention",
        /// A part of the spool could not be read: what it held is not in the log.
        AuditGap = "audit.gap",
    }
}

words! {
    /// How it came out.
    Outcome, "outcome" {
        /// It was let through; what came of it is told by another event, or not at all.
        Allowed = "allowed",
        /// It was refused: nothing happened.
        Denied = "denied",
        Done = "done",
        /// It was tried and did not succeed.
        Failed = "failed",
    }
}

impl Action {
    /// Whether only the egress process tells of it.
    pub fn is_of_egress(self) -> bool {
        self.as_str().starts_with("egress.")
    }
}

/// One line of the log. Its bytes as JSON ([`Event::to_bytes`]) are the leaf of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds since the epoch, by the clock of who tells. The order of events is that of the tree, not this.
    pub at_ms: u64,
    pub tenant: TenantId,
    pub action: Action,
    pub outcome: Outcome,
    /// Who did it: a key's id and name, `sandbox`, `daemon`.
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
    /// Without its query; see [`Text::path`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
    /// Of the answer.
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
    /// The id or name of whatever else it is about: a key, a snapshot, an exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Text>,
}

impl Event {
    /// What every event has; the rest is set as it is known.
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

    /// The leaf. Fields in the order above, no white space: the same event is always the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self)
            .expect("an event has no map with keys that are no texts, and nothing in it fails to be written")
    }

    /// Reads what [`Event::to_bytes`] wrote, and an event with fields that a later version added.
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
    fn an_event_is_flat_and_says_only_what_it_knows() {
        let event = Event { host: Some("api.example".into()), port: Some(443), ..event() };
        assert_eq!(
            String::from_utf8(event.to_bytes()).unwrap(),
            r#"{"at_ms":7,"tenant":"tenaaaaaaaaaaaaaaaaaaaa","action":"egress.inject","outcome":"allowed","host":"api.example","port":443}"#
        );
    }

    #[test]
    fn every_word_reads_back() {
        for action in Action::ALL {
            assert_eq!(action.as_str().parse::<Action>().unwrap(), *action);
            assert_eq!(serde_json::to_string(action).unwrap(), format!("\"{action}\""));
        }
        let refused = "egress.\u{1b}".parse::<Action>().unwrap_err().to_string();
        assert!(
            refused.contains("is no action of the audit log") && !refused.contains('\u{1b}'),
            "{refused}"
        );
    }

    #[test]
    fn a_path_loses_its_query() {
        assert_eq!(Text::path("/v1/x?token=abc#y").as_str(), "/v1/x");
        assert_eq!(Text::path("/v1/x#token").as_str(), "/v1/x");
    }

    #[test]
    fn the_largest_event_fits_its_bound() {
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
        fn any_text_is_bounded_printable_and_stays_as_it_is(text in "\\PC{0,20}|.{0,900}|[\\x00-\\x1f]{0,200}") {
            let once = Text::new(&text);
            prop_assert!(once.as_str().len() <= TEXT_BYTES_MAX);
            prop_assert!(!once.as_str().chars().any(is_treacherous));
            prop_assert_eq!(&Text::new(once.as_str()), &once);
            let event = Event { reason: Some(once), ..event() };
            prop_assert_eq!(Event::from_bytes(&event.to_bytes()).unwrap(), event);
        }
    }
}

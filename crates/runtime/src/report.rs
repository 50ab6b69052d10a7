//! The report of a machine: that it has started, or why not.
//!
//! One JSON document over the boot socket, from the agent when it listens, or from the launcher's last stage if it
//! failed before. The agent's definition is in the guest protocol, on which this crate does not depend.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Report {
    Ready,
    Failed { step: String, message: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_as_the_guest_writes_them() {
        let read = |text: &str| serde_json::from_str::<Report>(text).unwrap();
        assert_eq!(read(r#"{"kind":"ready"}"#), Report::Ready);
        let failed = Report::Failed { step: "bind".to_owned(), message: "no address".to_owned() };
        assert_eq!(read(r#"{"kind":"failed","step":"bind","message":"no address"}"#), failed);
    }
}

//! Policy files: parsed, checked, and rejected with the line and the column of the error.
//!
//! The YAML parser reports the position of syntax errors. For a semantic error only the path in the document is known;
//! its line is found by parsing the file once more, with a visitor that fails on purpose at that path.

use std::fmt;

use burrow_api::policy::{CheckedPolicy, Fault, PolicyDocument, Step, check};
use burrow_model::Name;
use burrow_model::network::RequestScope;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::commands::memory::input;
use crate::commands::prelude::*;

/// A policy file that passed every check that does not need the daemon.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    name: String,
    text: String,
    pub(crate) document: PolicyDocument,
    pub(crate) checked: CheckedPolicy,
}

/// An error and its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyError {
    /// `line:column`, each from 1.
    at: Option<(usize, usize)>,
    reason: String,
    hint: Option<String>,
}

impl PolicyFile {
    /// `-` is standard input.
    pub(crate) fn read(file: &Path) -> Result<Self, Stop> {
        let text = input::read(file, || format!("could not read the policy `{}`", file.display()))?;
        let name = if file == Path::new("-") { PathBuf::from("standard input") } else { file.to_path_buf() };
        let name = name.display().to_string();
        match parse(&text) {
            Ok((document, checked)) => Ok(Self { name, text, document, checked }),
            Err(policy_error) => Err(policy_error.stop(&name)),
        }
    }

    /// Rejects rules that name an unknown secret, or exceed its ceiling. Declarations in the file take precedence.
    pub(crate) fn check_ceilings(
        &self,
        known: &dyn Fn(&Name) -> Option<Vec<RequestScope>>,
    ) -> Result<(), Stop> {
        let Some(network) = &self.checked.network else { return Ok(()) };
        let declared = |name: &Name| {
            let own = self.checked.secrets.iter().find(|(spec, _)| spec.name == *name);
            own.map(|(spec, _)| spec.allow.clone()).or_else(|| known(name))
        };
        check::within(&network.requests, &self.checked.places, &declared)
            .map_err(|fault| policy_error(&self.text, fault).stop(&self.name))
    }
}

impl PolicyError {
    fn stop(self, name: &str) -> Stop {
        let place = self.at.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
        let failure = Failure::new(format!("{name}{place}: {}", self.reason));
        let general = "`burrow egress apply --help` shows a policy";
        failure.hint(self.hint.unwrap_or_else(|| general.to_owned())).into()
    }
}

fn parse(text: &str) -> Result<(PolicyDocument, CheckedPolicy), PolicyError> {
    let document: PolicyDocument = serde_norway::from_str(text).map_err(|error| {
        let at = error.location().map(|location| (location.line(), location.column()));
        let words = error.to_string();
        let reason = words.rfind(" at line ").map_or(words.as_str(), |place| &words[..place]);
        PolicyError { at, reason: reason.to_owned(), hint: None }
    })?;
    let checked = check::document(&document).map_err(|fault| policy_error(text, fault))?;
    Ok((document, checked))
}

fn policy_error(text: &str, fault: Fault) -> PolicyError {
    let reason = match fault.other.as_ref().and_then(|other| nearest(text, other)) {
        Some((line, _)) => format!("{} (line {line})", fault.reason),
        None => fault.reason.clone(),
    };
    PolicyError { at: nearest(text, &fault.place), reason, hint: fault.hint }
}

/// The position of the value, or of its closest ancestor that exists.
fn nearest(text: &str, place: &[Step]) -> Option<(usize, usize)> {
    (0..=place.len()).rev().find_map(|length| locate(text, &place[..length]))
}

/// The line and column where a value starts.
fn locate(text: &str, place: &[Step]) -> Option<(usize, usize)> {
    let error = PositionProbe { place }.deserialize(serde_norway::Deserializer::from_str(text)).err()?;
    if !error.to_string().contains(HERE) {
        return None;
    }
    error.location().map(|location| (location.line(), location.column()))
}

/// The error message that marks the value; it occurs in no other error.
const HERE: &str = "\u{1}here\u{1}";

/// Walks to a value and fails there, so that the parser reports its position.
struct PositionProbe<'a> {
    place: &'a [Step],
}

impl<'de> DeserializeSeed<'de> for PositionProbe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PositionProbe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.place.is_empty() { HERE } else { "a map or a list" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.place.split_first() else { return Err(A::Error::custom(HERE)) };
        while let Some(key) = map.next_key::<String>()? {
            match step {
                Step::Key(wanted) if *wanted == key => map.next_value_seed(PositionProbe { place: rest })?,
                Step::Key(_) | Step::Index(_) => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.place.split_first() else { return Err(A::Error::custom(HERE)) };
        let mut index = 0;
        loop {
            let more = match step {
                Step::Index(wanted) if *wanted == index => {
                    sequence.next_element_seed(PositionProbe { place: rest })?.is_some()
                }
                Step::Index(_) | Step::Key(_) => sequence.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"
secrets:
  - name: openai-api-key
    from: { env: OPENAI_API_KEY }          # or file, command
    allow:                                 # the owner's ceiling; a sandbox policy can only narrow it
      - { host: api.openai.com, methods: [POST], paths: ["/v1/**"] }
    slot: { header: Authorization, format: "Bearer {}" }
egress:
  default: deny
  rules:
    - { host: api.openai.com, secret: openai-api-key, budget: { requestsPerMinute: 60, bytesOutPerDay: 50MB } }
    - { host: "*.packages.example", mode: sni }    # allowed by name, not decrypted
egressAuth:                                # the short form people know, equal to one rule
  - { destination: "api.openai.com", authRef: "openai-api-key" }
"#;

    fn file(text: &str) -> PolicyFile {
        let (document, checked) = parse(text).unwrap_or_else(|policy_error| panic!("{policy_error:?}"));
        PolicyFile { name: "policy.yaml".to_owned(), text: text.to_owned(), document, checked }
    }

    fn words(stop: Stop) -> String {
        match stop {
            Stop::Failed(failure) => failure.to_string(),
            Stop::Exit(_) | Stop::BrokenPipe => panic!("no message"),
        }
    }

    #[test]
    fn the_example_is_understood() {
        let file = file(EXAMPLE);
        let network = file.checked.network.as_ref().unwrap();
        let rules: Vec<String> = network.requests.iter().map(ToString::to_string).collect();
        let expected = ["https://api.openai.com with openai-api-key", "https://*.packages.example (sni)"];
        assert_eq!(rules, expected);
        assert_eq!(network.requests[0].budget.unwrap().bytes_out_per_day, Some(50_000_000));
        file.check_ceilings(&|_| None).unwrap();
    }

    #[test]
    fn errors_are_reported_with_line_and_column() {
        for (change, with, expected) in [
            ("default: deny", "defualt: deny", "9:3: egress: unknown field `defualt`, expected one of"),
            ("default: deny", "default: dney", "9:12: egress.default: unknown variant `dney`"),
            (
                "bytesOutPerDay: 50MB",
                "bytesOutPerDay: 50Mb",
                "11:104: egress.rules[0].budget.bytesOutPerDay: a size is",
            ),
            (
                "requestsPerMinute: 60",
                "requestsPerMinute: many",
                "11:84: egress.rules[0].budget.requestsPerMinute: invalid type",
            ),
            ("requestsPerMinute: 60", "requestsPerMinute: 0", "11:84: a budget of 0 allows nothing"),
            (
                "slot: { header: Authorization",
                "slot: { header: Host",
                "7:21: a secret cannot be inserted into the header `Host`",
            ),
            (
                "from: { env: OPENAI_API_KEY }",
                "from: { env: A, file: b }",
                "4:11: the source of the value must be one of",
            ),
            ("methods: [POST]", "methods: [PO ST]", "6:43: a method is 1 to 32 letters"),
            ("\"/v1/**\"", "\"/v1/../x\"", "6:58: a path is written as it is matched"),
            ("mode: sni", "mode: sni, secret: openai-api-key", "12:56: `secret` requires decryption"),
            (
                "\"*.packages.example\", mode: sni",
                "api.openai.com, mode: sni",
                "12:7: it covers the same requests as `https://api.openai.com with openai-api-key`, and treats them differently (line 11)",
            ),
            ("authRef: \"openai-api-key\"", "authRef: \"other\"", "14:5: it covers the same requests as"),
            ("egressAuth:", "egressAuthh:", "13:1: unknown field `egressAuthh`"),
            ("egressAuth:", "egress:", "2:1: duplicate field `egress`"),
        ] {
            assert!(EXAMPLE.contains(change), "{change}");
            let text = EXAMPLE.replace(change, with);
            let policy_error = parse(&text).map(|_| ()).expect_err(with);
            let message = words(policy_error.stop("policy.yaml"));
            let expected = format!("policy.yaml:{expected}");
            assert!(message.starts_with(&expected), "{with}:\n{message}\n{expected}");
        }
    }

    #[test]
    fn a_rule_beyond_its_ceiling_and_an_unknown_secret_are_reported_with_their_line() {
        let wider = EXAMPLE.replace("secret: openai-api-key,", "secret: openai-api-key, methods: [DELETE],");
        let wider = &wider[..wider.find("egressAuth:").unwrap()];
        let message = words(file(wider).check_ceilings(&|_| None).unwrap_err());
        let expected = "policy.yaml:11:7: `DELETE https://api.openai.com` exceeds what the owner of `openai-api-key` allows, which is `POST https://api.openai.com/v1/**`";
        assert_eq!(message, expected);
        let unknown = "egress:\n  rules:\n    - host: api.example.com\n      secret: nobodys\n";
        let message = words(file(unknown).check_ceilings(&|_| None).unwrap_err());
        assert_eq!(message, "policy.yaml:4:15: secret `nobodys` does not exist");
        let short = "egressAuth:\n  - destination: api.example.com\n    authRef: nobodys\n";
        let message = words(file(short).check_ceilings(&|_| None).unwrap_err());
        assert_eq!(message, "policy.yaml:3:14: secret `nobodys` does not exist");
    }

    #[test]
    fn json_is_accepted_and_errors_have_a_line() {
        let text = "{\"egress\": {\"rules\": [\n  {\"host\": \"a.example\"},\n  {\"host\": \"*\"}\n]}}";
        let message = words(parse(text).map(|_| ()).unwrap_err().stop("policy.json"));
        assert!(message.starts_with("policy.json:3:12: "), "{message}");
    }
}

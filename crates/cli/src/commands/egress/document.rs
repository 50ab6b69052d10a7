//! Policy files: read, judged, and refused with the line and the column of what is wrong.
//!
//! The reader of YAML tells where it met what it could not read. Of what only makes no sense, the place in the document
//! is known; its line is found by reading the file once more and stumbling on purpose at that place.

use std::fmt;
use std::path::{Path, PathBuf};

use burrow_api::policy::{Checked, Fault, PolicyDocument, Step, check};
use burrow_model::Name;
use burrow_model::network::RequestScope;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::commands::memory::input;
use crate::failure::{Failure, Stop};

/// A policy file that makes sense as far as it can be told without the daemon.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    name: String,
    text: String,
    pub(crate) document: PolicyDocument,
    pub(crate) checked: Checked,
}

/// Where something is wrong, and what.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
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
            Err(refused) => Err(refused.stop(&name)),
        }
    }

    /// Refuses rules that name a secret nobody knows, or go beyond its ceiling. What the file itself declares wins.
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
            .map_err(|fault| refused(&self.text, fault).stop(&self.name))
    }
}

impl Refused {
    fn stop(self, name: &str) -> Stop {
        let place = self.at.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
        let failure = Failure::new(format!("{name}{place}: {}", self.reason));
        let general = "`burrow egress apply --help` shows a policy";
        failure.hint(self.hint.unwrap_or_else(|| general.to_owned())).into()
    }
}

fn parse(text: &str) -> Result<(PolicyDocument, Checked), Refused> {
    let document: PolicyDocument = serde_norway::from_str(text).map_err(|error| {
        let at = error.location().map(|location| (location.line(), location.column()));
        let words = error.to_string();
        let reason = words.rfind(" at line ").map_or(words.as_str(), |place| &words[..place]);
        Refused { at, reason: reason.to_owned(), hint: None }
    })?;
    let checked = check::document(&document).map_err(|fault| refused(text, fault))?;
    Ok((document, checked))
}

fn refused(text: &str, fault: Fault) -> Refused {
    let reason = match fault.other.as_ref().and_then(|other| nearest(text, other)) {
        Some((line, _)) => format!("{} (line {line})", fault.reason),
        None => fault.reason.clone(),
    };
    Refused { at: nearest(text, &fault.place), reason, hint: fault.hint }
}

/// Of the place, or of what it would be in.
fn nearest(text: &str, place: &[Step]) -> Option<(usize, usize)> {
    (0..=place.len()).rev().find_map(|length| locate(text, &place[..length]))
}

/// The line and column where a value begins.
fn locate(text: &str, place: &[Step]) -> Option<(usize, usize)> {
    let error = Stumble { place }.deserialize(serde_norway::Deserializer::from_str(text)).err()?;
    if !error.to_string().contains(HERE) {
        return None;
    }
    error.location().map(|location| (location.line(), location.column()))
}

/// What is said on arrival, and nowhere else.
const HERE: &str = "\u{1}here\u{1}";

/// Walks to a place and fails there, which makes the reader tell where it is.
struct Stumble<'a> {
    place: &'a [Step],
}

impl<'de> DeserializeSeed<'de> for Stumble<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Stumble<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.place.is_empty() { HERE } else { "what a place leads through" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, rest)) = self.place.split_first() else { return Err(A::Error::custom(HERE)) };
        while let Some(key) = map.next_key::<String>()? {
            match step {
                Step::Key(wanted) if *wanted == key => map.next_value_seed(Stumble { place: rest })?,
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
                    sequence.next_element_seed(Stumble { place: rest })?.is_some()
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
        let (document, checked) = parse(text).unwrap_or_else(|refused| panic!("{refused:?}"));
        PolicyFile { name: "policy.yaml".to_owned(), text: text.to_owned(), document, checked }
    }

    fn words(stop: Stop) -> String {
        match stop {
            Stop::Failed(failure) => failure.to_string(),
            Stop::Exit(_) | Stop::BrokenPipe => panic!("it says nothing"),
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
    fn what_is_wrong_is_told_with_its_line_and_column() {
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
            ("requestsPerMinute: 60", "requestsPerMinute: 0", "11:84: a budget of nothing"),
            (
                "slot: { header: Authorization",
                "slot: { header: Host",
                "7:21: `Host` is not the name of a header",
            ),
            (
                "from: { env: OPENAI_API_KEY }",
                "from: { env: A, file: b }",
                "4:11: it says where the value is",
            ),
            ("methods: [POST]", "methods: [PO ST]", "6:43: a method is 1 to 32 letters"),
            ("\"/v1/**\"", "\"/v1/../x\"", "6:58: a path is written as it is matched"),
            ("mode: sni", "mode: sni, secret: openai-api-key", "12:56: `secret` needs to see requests"),
            (
                "\"*.packages.example\", mode: sni",
                "api.openai.com, mode: sni",
                "12:7: it covers requests that `https://api.openai.com with openai-api-key` covers too, and treats them differently (line 11)",
            ),
            ("authRef: \"openai-api-key\"", "authRef: \"other\"", "14:5: it covers requests that"),
            ("egressAuth:", "egressAuthh:", "13:1: unknown field `egressAuthh`"),
            ("egressAuth:", "egress:", "2:1: duplicate field `egress`"),
        ] {
            assert!(EXAMPLE.contains(change), "{change}");
            let text = EXAMPLE.replace(change, with);
            let refused = parse(&text).map(|_| ()).expect_err(with);
            let told = words(refused.stop("policy.yaml"));
            let expected = format!("policy.yaml:{expected}");
            assert!(told.starts_with(&expected), "{with}:\n{told}\n{expected}");
        }
    }

    #[test]
    fn a_rule_beyond_its_ceiling_and_a_secret_nobody_knows_are_told_with_their_line() {
        let wider = EXAMPLE.replace("secret: openai-api-key,", "secret: openai-api-key, methods: [DELETE],");
        let wider = &wider[..wider.find("egressAuth:").unwrap()];
        let told = words(file(wider).check_ceilings(&|_| None).unwrap_err());
        let expected = "policy.yaml:11:7: `DELETE https://api.openai.com` is wider than what the owner of `openai-api-key` allows, which is `POST https://api.openai.com/v1/**`";
        assert_eq!(told, expected);
        let unknown = "egress:\n  rules:\n    - host: api.example.com\n      secret: nobodys\n";
        let told = words(file(unknown).check_ceilings(&|_| None).unwrap_err());
        assert_eq!(told, "policy.yaml:4:15: there is no secret `nobodys`");
        let short = "egressAuth:\n  - destination: api.example.com\n    authRef: nobodys\n";
        let told = words(file(short).check_ceilings(&|_| None).unwrap_err());
        assert_eq!(told, "policy.yaml:3:14: there is no secret `nobodys`");
    }

    #[test]
    fn json_is_read_as_well_and_told_by_line() {
        let text = "{\"egress\": {\"rules\": [\n  {\"host\": \"a.example\"},\n  {\"host\": \"*\"}\n]}}";
        let told = words(parse(text).map(|_| ()).unwrap_err().stop("policy.json"));
        assert!(told.starts_with("policy.json:3:12: "), "{told}");
    }
}

//! Ids, names, labels and sizes: what is taken is printed as it was, and is safe wherever it is put.
#![no_main]

use burrow_model::{EgressRule, ExecId, ImageId, ImageName, IpRange, KeyId, Label, Name, SandboxId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for id in [
        text.parse::<SandboxId>().map(|id| id.to_string()).ok(),
        text.parse::<ExecId>().map(|id| id.to_string()).ok(),
        text.parse::<ImageId>().map(|id| id.to_string()).ok(),
        text.parse::<KeyId>().map(|id| id.to_string()).ok(),
        text.parse::<Name>().map(|name| name.to_string()).ok(),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(id, text);
        // Part of paths, of host names and of file names.
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(!id.is_empty() && id.len() <= 63 && id.bytes().all(plain), "{id:?}");
    }
    if let Ok(label) = text.parse::<Label>() {
        assert!(!label.key.is_empty() && !label.value.chars().any(char::is_control), "{label:?}");
    }
    if let Ok(name) = text.parse::<ImageName>() {
        assert_eq!(name.to_string().parse::<ImageName>().expect("what was printed is read"), name);
    }
    if let Ok(rule) = text.parse::<EgressRule>() {
        assert_eq!(rule.to_string().parse::<EgressRule>().expect("what was printed is read"), rule);
    }
    let _ = text.parse::<IpRange>();
    let _ = burrow_model::parse_bytes(text);
});

//! The authentication that a registry requests in a response with status 401.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// A supported kind of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// Request a token for `service` from `realm`.
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

/// The best challenge: a token rather than a password. `Err` contains the unsupported challenges.
pub(super) fn choose(headers: &HeaderMap) -> Result<Challenge, String> {
    let mut basic = false;
    let mut seen = String::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let Ok(text) = value.to_str() else { continue };
        for (scheme, parameters) in parse(text) {
            if scheme.eq_ignore_ascii_case("bearer") {
                let find = |wanted: &str| {
                    let found = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                    found.map(|(_, value)| value.clone())
                };
                if let Some(realm) = find("realm") {
                    return Ok(Challenge::Bearer { realm, service: find("service") });
                }
            }
            basic |= scheme.eq_ignore_ascii_case("basic");
        }
        seen = crate::error::shortened(text);
    }
    if basic { Ok(Challenge::Basic) } else { Err(seen) }
}

type Parameters = Vec<(String, String)>;

/// `scheme name="value", name=value, scheme …`
fn parse(text: &str) -> Vec<(String, Parameters)> {
    let mut challenges: Vec<(String, Parameters)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            // A stray character, or the end.
            let mut characters = rest.chars();
            match characters.next() {
                Some(_) => rest = characters.as_str(),
                None => return challenges,
            }
            continue;
        }
        let Some(value) = after.strip_prefix('=') else {
            challenges.push((word.to_owned(), Vec::new()));
            rest = after;
            continue;
        };
        let (value, after) = read_value(value);
        if let Some((_, parameters)) = challenges.last_mut() {
            parameters.push((word.to_owned(), value));
        }
        rest = after;
    }
}

/// A quoted string, with its escapes removed, or a bare word.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[index + 1..]),
            '\\' => value.extend(characters.next().map(|(_, character)| character)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// A text as part of a query.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn ask(values: &[&str]) -> Result<Challenge, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
        }
        choose(&headers)
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = |realm: &str, service: Option<&str>| {
            Ok(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/python:pull""#;
        assert_eq!(ask(&[docker]), bearer("https://auth.docker.io/token", Some("registry.docker.io")));
        assert_eq!(ask(&[r#"Basic realm="x", Bearer realm="https://a/b,c""#]), bearer("https://a/b,c", None));
        assert_eq!(ask(&[r#"basic realm="Registry Realm""#]), Ok(Challenge::Basic));
        assert_eq!(ask(&["Basic", r#"bearer Realm=https://a, service=s"#]), bearer("https://a", Some("s")));
        assert_eq!(ask(&[r#"Bearer realm="a\"b""#]), bearer("a\"b", None));
        assert_eq!(ask(&["Negotiate"]), Err("Negotiate".to_owned()));
        assert_eq!(ask(&["Bearer"]), Err("Bearer".to_owned()));
        assert_eq!(ask(&[]), Err(String::new()));
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(encode("repository:a/b:pull&x=y ü"), "repository%3Aa%2Fb%3Apull%26x%3Dy%20%C3%BC");
    }

    proptest! {
        #[test]
        fn no_challenge_makes_the_parser_panic(text in "[ -~]{0,60}") {
            let _ = ask(&[&text]);
        }
    }
}

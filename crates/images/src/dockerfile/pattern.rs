//! Patterns of file names in COPY and ADD, as in Go's `filepath.Match`: `*`, `?`, `[a-z]`, `[^a-z]` and `\`.

/// Whether a text has characters of a pattern.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether a name matches. The pattern has no `/`. An invalid pattern matches nothing.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // The last `*`, and where it started to match: the time is proportional to the product of the lengths.
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, from));
            at += 1;
        } else if let Some(next) = one(&pattern, at, name[from]) {
            at = next;
            from += 1;
        } else if let Some((before, matched)) = star {
            star = Some((before, matched + 1));
            at = before + 1;
            from = matched + 1;
        } else {
            return false;
        }
    }
    pattern[at.min(pattern.len())..].iter().all(|c| *c == '*')
}

/// Matches one character at `at`, and returns the place behind it in the pattern.
fn one(pattern: &[char], at: usize, c: char) -> Option<usize> {
    match *pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => set(pattern, at + 1, c),
        '\\' => (*pattern.get(at + 1)? == c).then_some(at + 2),
        own => (own == c).then_some(at + 1),
    }
}

fn set(pattern: &[char], mut at: usize, c: char) -> Option<usize> {
    let without = pattern.get(at) == Some(&'^');
    at += usize::from(without);
    let (mut found, mut first) = (false, true);
    loop {
        let mut low = *pattern.get(at)?;
        if low == ']' && !first {
            return (found != without).then_some(at + 1);
        }
        first = false;
        if low == '\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        let mut high = low;
        if pattern.get(at + 1) == Some(&'-') && pattern.get(at + 2).is_some_and(|c| *c != ']') {
            at += 2;
            high = pattern[at];
        }
        found |= (low..=high).contains(&c);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_go() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("*.py", "a.py", true),
            ("*.py", "a.pyc", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "ä", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]a]", "]", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[a", "a", false),
            ("package*.json", "package-lock.json", true),
            ("", "", true),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_are_fast() {
        assert!(!name_matches(&"a*".repeat(500), &"a".repeat(499)));
    }
}

//! Puts values into a shell command so that they stay values.
//!
//! `{{name}}` becomes the value in single quotes: one word, whatever is in it. That holds only where the shell would read
//! a new word, so this follows the shell's quoting up to each place and refuses every place it is not sure of: inside
//! quotes, after a here-document, after a backtick. A refusal costs the author a `"$PARAM_NAME"`, which is always safe; a
//! wrong guess would let a value run as a command.
//!
//! A place in a comment stays as it is: nobody reads it, and a value with a line break would leave the comment.

use std::collections::BTreeMap;

/// Why a `{{name}}` cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsafe {
    pub(super) name: String,
    pub(super) why: &'static str,
}

/// A piece of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

/// Fills all places. Those without a value were refused before.
pub(super) fn fill(command: &str, values: &BTreeMap<String, String>) -> Result<String, Unsafe> {
    let mut filled = String::with_capacity(command.len() + 64);
    for piece in split(command)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Place(name) => match values.get(name) {
                Some(value) => filled.push_str(&quote(value)),
                None => return Err(Unsafe { name: name.to_owned(), why: "there is no such parameter" }),
            },
        }
    }
    Ok(filled)
}

/// One word of any POSIX shell. Single quotes, since nothing at all is special between them but their end.
pub(super) fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// The `{{name}}` at the beginning of a text: its name and its length.
pub(super) fn place_at(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix("{{")?;
    let name = &inside[..inside.find("}}")?];
    let trimmed = name.trim_matches(' ');
    super::is_parameter_name(trimmed).then_some((trimmed, name.len() + 4))
}

/// Where in the shell's grammar a character stands, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Word,
    Single,
    Double,
    Comment,
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    quoting: Quoting,
    /// Set once the rest cannot be followed with certainty.
    unsure: Option<&'static str>,
    /// The character before, for what starts a comment and for `$` before a place.
    before: Option<char>,
}

fn split(command: &str) -> Result<Vec<Piece<'_>>, Unsafe> {
    let mut scanner = Scanner { text: command, at: 0, quoting: Quoting::Word, unsure: None, before: None };
    let mut pieces = Vec::new();
    let mut text_from = 0;
    while let Some(rest) = scanner.text.get(scanner.at..).filter(|rest| !rest.is_empty()) {
        match place_at(rest) {
            Some((name, length)) if scanner.quoting != Quoting::Comment => {
                scanner.admit(name)?;
                pieces.push(Piece::Text(&command[text_from..scanner.at]));
                pieces.push(Piece::Place(name));
                scanner.at += length;
                scanner.before = Some('}');
                text_from = scanner.at;
            }
            Some(_) | None => scanner.step(rest),
        }
    }
    pieces.push(Piece::Text(&command[text_from..]));
    Ok(pieces)
}

impl Scanner<'_> {
    fn admit(&self, name: &str) -> Result<(), Unsafe> {
        let why = match self.quoting {
            Quoting::Single | Quoting::Double => Some("it stands inside quotes, and is quoted by itself"),
            Quoting::Word | Quoting::Comment => self.unsure,
        };
        // `$'…'` is another kind of quotes, with escapes in it.
        let why = why.or((self.before == Some('$')).then_some("it follows a `$`"));
        match why {
            Some(why) => Err(Unsafe { name: name.to_owned(), why }),
            None => Ok(()),
        }
    }

    /// Goes past one character, or two where the first takes the second's meaning away.
    fn step(&mut self, rest: &str) {
        let mut characters = rest.chars();
        let Some(this) = characters.next() else { return };
        let next = characters.next();
        let mut length = this.len_utf8();
        match (self.quoting, this) {
            (Quoting::Word | Quoting::Double, '\\') => return self.escape(next),
            (Quoting::Word, '\'') if self.before == Some('$') => {
                self.unsure = Some("`$'…'` before it is read differently by different shells");
            }
            (Quoting::Word, '\'') => self.quoting = Quoting::Single,
            (Quoting::Word, '"') => self.quoting = Quoting::Double,
            (Quoting::Single, '\'') | (Quoting::Double, '"') => self.quoting = Quoting::Word,
            (Quoting::Word | Quoting::Double, '`') => self.unsure = Some("a backtick stands before it"),
            (Quoting::Double, '$') if matches!(next, Some('(' | '{')) => {
                self.unsure = Some("a `$(` or `${` inside quotes stands before it");
            }
            (Quoting::Word, '<') if next == Some('<') => {
                // `<<<` is a word like any other; `<<` starts a document in which quotes are only text.
                if rest.starts_with("<<<") {
                    length = 3;
                } else {
                    self.unsure = Some("a here-document (`<<`) stands before it");
                }
            }
            (Quoting::Word, '#') if self.at_word_start() => self.quoting = Quoting::Comment,
            // What else is called white belongs to words for some shells, and not for others.
            (Quoting::Word, '#') if self.before.is_some_and(char::is_whitespace) => {
                self.unsure = Some("a `#` before it may start a comment or not");
            }
            (Quoting::Comment, '\n') => self.quoting = Quoting::Word,
            (Quoting::Word | Quoting::Single | Quoting::Double | Quoting::Comment, _) => {}
        }
        self.before = rest[..length].chars().next_back();
        self.at += length;
    }

    /// Goes past a backslash and the character whose meaning it takes away.
    fn escape(&mut self, escaped: Option<char>) {
        self.at += 1 + escaped.map_or(0, char::len_utf8);
        if escaped != Some('\n') {
            // Part of a word, whatever it would be by itself: nothing starts behind it.
            self.before = Some('\\');
        } else if matches!(self.before, Some('$' | '<')) {
            // Both are left out, so that what is before and what is behind are read as one.
            self.unsure = Some("a line before it goes on behind a `$` or `<`");
        }
    }

    fn at_word_start(&self) -> bool {
        self.before.is_none_or(|before| {
            matches!(before, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn values(value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("x".to_owned(), value.to_owned())])
    }

    #[test]
    fn a_value_becomes_one_word() {
        assert_eq!(fill("ls {{x}}/sub; echo {{ x }}", &values("a b")).unwrap(), "ls 'a b'/sub; echo 'a b'");
        assert_eq!(fill("ls {{x}}", &values("it's")).unwrap(), r"ls 'it'\''s'");
        assert_eq!(fill("ls {{x}}", &values("")).unwrap(), "ls ''");
    }

    #[test]
    fn what_only_looks_like_a_place_stays() {
        for command in [
            "awk '{{print $1}}' f",
            "echo {{}}",
            "echo {{X Y}}",
            "docker ps --format {{.ID}}",
            r"echo \{{x}}",
        ] {
            assert_eq!(fill(command, &values("v")).unwrap(), command);
        }
    }

    #[test]
    fn a_place_that_is_not_surely_a_word_is_refused() {
        for command in [
            "echo '{{x}}'",
            "echo \"{{x}}\"",
            "echo \"$(cat {{x}})\"",
            "echo \"$(echo \"{{x}}\")\"",
            "echo `cat {{x}}`",
            "cat <<EOF\n{{x}}\nEOF",
            "echo ${{x}}",
            r"echo $'it\'s' {{x}}",
            "# it's a comment\necho '{{x}}'",
            "bash -c 'echo {{x}}'",
            "echo a\\\\\"{{x}}\"",
            "echo \\;#\"\n {{x}}\"",
            "echo \\ #\"\n {{x}}\"",
            "echo \u{a0}#\"\n {{x}}\"",
            "echo \r#\"\n {{x}}\"",
            "cat <\\\n<EOF\n{{x}}\nEOF",
            "echo \"$\\\n(cat {{x}})\"",
            "echo $\\\n'it\\'s' {{x}}",
        ] {
            assert!(fill(command, &values("v")).is_err(), "{command}");
        }
    }

    #[test]
    fn a_place_after_quotes_and_comments_is_a_word_again() {
        for (command, filled) in [
            ("echo \"a 'b\" {{x}}", "echo \"a 'b\" 'v'"),
            ("echo 'a \"b' {{x}}", "echo 'a \"b' 'v'"),
            ("echo \\' {{x}}", "echo \\' 'v'"),
            ("echo \"\\\"\" {{x}}", "echo \"\\\"\" 'v'"),
            ("# it's {{x}}\necho {{x}}", "# it's {{x}}\necho 'v'"),
            ("echo a#b\"c\" {{x}}", "echo a#b\"c\" 'v'"),
            ("cat <<< {{x}}", "cat <<< 'v'"),
            ("curl \\\n# it's\n{{x}}", "curl \\\n# it's\n'v'"),
            ("echo \\$'a' {{x}}", "echo \\$'a' 'v'"),
        ] {
            assert_eq!(fill(command, &values("v")).unwrap(), filled);
        }
    }

    #[test]
    fn the_shell_reads_hostile_values_as_they_are() {
        for value in [
            "$(touch /tmp/x)",
            "`id`",
            "a\nb",
            "';id;'",
            "\\",
            "\\'",
            "{{x}}",
            "-n",
            "\u{1b}[31m",
            "!!",
            "$x",
        ] {
            assert_eq!(echoed("printf %s {{x}}", value), value);
        }
    }

    fn echoed(command: &str, value: &str) -> String {
        let command = fill(command, &values(value)).unwrap();
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        // Whatever the author writes around it: where the place is admitted, the shell sees the value unharmed, or the
        // command is one the shell cannot read at all.
        #[test]
        fn an_admitted_place_never_runs_its_value(
            before in r#"[a '"\\#;\n\r\t$(){}<`|&]{0,12}"#,
            after in r#"[a '"\\;\n)}`]{0,6}"#,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let command = format!("{before} {{{{x}}}}{after}");
            let value = "$(touch ran)`touch ran`'\"; touch ran #\n touch ran";
            if let Ok(command) = fill(&command, &values(value)) {
                for shell in ["sh", "bash"] {
                    let _ = Command::new(shell).args(["-c", &command]).current_dir(folder.path())
                        .stdin(std::process::Stdio::null()).output();
                    prop_assert!(!folder.path().join("ran").exists(), "{shell}: {command:?}");
                }
            }
        }
    }
}

//! Inserts values into a shell command such that they stay values.
//!
//! `{{name}}` becomes the value in single quotes: one word, whatever it contains. That is only true where the shell would begin
//! a new word, so this code tracks the shell's quoting up to each placeholder, and refuses every placeholder that is not certain:
//! inside quotes, after a here-document, after a backtick. After a refusal, the author can write `"$PARAM_NAME"`, which is always
//! safe; a wrong guess would let a value run as a command.
//!
//! A placeholder in a comment is left unchanged: a value with a line break would end the comment.

use std::collections::BTreeMap;

/// Why a `{{name}}` cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FillError {
    pub(super) name: String,
    pub(super) why: &'static str,
}

/// A piece of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

/// Fills in all placeholders. Those without a value were refused before.
pub(super) fn fill(command: &str, values: &BTreeMap<String, String>) -> Result<String, FillError> {
    let mut filled = String::with_capacity(command.len() + 64);
    for piece in split(command)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Place(name) => match values.get(name) {
                Some(value) => filled.push_str(&quote(value)),
                None => return Err(FillError { name: name.to_owned(), why: "there is no such parameter" }),
            },
        }
    }
    Ok(filled)
}

/// One word for any POSIX shell. In single quotes, no character is special except the closing quote.
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

/// The quoting state of the shell's grammar, as far as it matters here.
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
    /// Set when the rest of the command cannot be parsed with certainty.
    unsure: Option<&'static str>,
    /// The previous character, to recognise comments and a `$` before a placeholder.
    before: Option<char>,
}

fn split(command: &str) -> Result<Vec<Piece<'_>>, FillError> {
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
    fn admit(&self, name: &str) -> Result<(), FillError> {
        let why = match self.quoting {
            Quoting::Single | Quoting::Double => {
                Some("it is inside quotes, and the value is quoted automatically")
            }
            Quoting::Word | Quoting::Comment => self.unsure,
        };
        // `$'…'` is another kind of quotes, which contains escapes.
        let why = why.or((self.before == Some('$')).then_some("it follows a `$`"));
        match why {
            Some(why) => Err(FillError { name: name.to_owned(), why }),
            None => Ok(()),
        }
    }

    /// Advances by one character, or by two if the first one escapes the second.
    fn step(&mut self, rest: &str) {
        let mut characters = rest.chars();
        let Some(this) = characters.next() else { return };
        let next = characters.next();
        let mut length = this.len_utf8();
        match (self.quoting, this) {
            (Quoting::Word | Quoting::Double, '\\') => return self.escape(next),
            (Quoting::Word, '\'') if self.before == Some('$') => {
                self.unsure = Some("shells differ in how they read the `$'…'` before it");
            }
            (Quoting::Word, '\'') => self.quoting = Quoting::Single,
            (Quoting::Word, '"') => self.quoting = Quoting::Double,
            (Quoting::Single, '\'') | (Quoting::Double, '"') => self.quoting = Quoting::Word,
            (Quoting::Word | Quoting::Double, '`') => self.unsure = Some("there is a backtick before it"),
            (Quoting::Double, '$') if matches!(next, Some('(' | '{')) => {
                self.unsure = Some("there is a `$(` or `${` inside quotes before it");
            }
            (Quoting::Word, '<') if next == Some('<') => {
                // `<<<` is followed by an ordinary word; `<<` begins a here-document, in which quotes are only text.
                if rest.starts_with("<<<") {
                    length = 3;
                } else {
                    self.unsure = Some("there is a here-document (`<<`) before it");
                }
            }
            (Quoting::Word, '#') if self.at_word_start() => self.quoting = Quoting::Comment,
            // Other white space separates words in some shells only.
            (Quoting::Word, '#') if self.before.is_some_and(char::is_whitespace) => {
                self.unsure = Some("shells differ in whether the `#` before it starts a comment");
            }
            (Quoting::Comment, '\n') => self.quoting = Quoting::Word,
            (Quoting::Word | Quoting::Single | Quoting::Double | Quoting::Comment, _) => {}
        }
        self.before = rest[..length].chars().next_back();
        self.at += length;
    }

    /// Advances past a backslash and the character that it escapes.
    fn escape(&mut self, escaped: Option<char>) {
        self.at += 1 + escaped.map_or(0, char::len_utf8);
        if escaped != Some('\n') {
            // Part of a word: no comment or word begins after it.
            self.before = Some('\\');
        } else if matches!(self.before, Some('$' | '<')) {
            // Both characters are removed, so the text before and after them is joined.
            self.unsure = Some("a line before it continues after a `$` or `<`");
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
    fn text_that_only_looks_like_a_placeholder_is_kept() {
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
    fn an_uncertain_placeholder_is_refused() {
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
    fn a_placeholder_after_quotes_and_comments_is_filled() {
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

        // For any surrounding text: where a placeholder is accepted, the shell sees the value unchanged, or the
        // command has a syntax error.
        #[test]
        fn an_accepted_placeholder_never_runs_its_value(
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

//! Stems English words as the text index does (Porter, 1980), so that `running` becomes `run` in both.
//!
//! Works on lower-case ASCII; other words are left unchanged.

/// The index does not stem words outside these bounds, either.
const LENGTHS: std::ops::RangeInclusive<usize> = 3..=64;

/// The stem of a lower-case word.
pub(super) fn stem(word: &str) -> String {
    let mut bytes = word.as_bytes().to_vec();
    if LENGTHS.contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_lowercase) {
        plurals(&mut bytes);
        past_and_progressive(&mut bytes);
        final_y(&mut bytes);
        replace(&mut bytes, DOUBLE_SUFFIXES, 0);
        replace(&mut bytes, SUFFIXES, 0);
        remove_suffix(&mut bytes);
        tidy(&mut bytes);
    }
    String::from_utf8(bytes).expect("ASCII in, ASCII out; anything else is untouched")
}

const DOUBLE_SUFFIXES: &[(&str, &str)] = &[
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];

const SUFFIXES: &[(&str, &str)] = &[
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

const LAST_SUFFIXES: &[&str] = &[
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic", "ou",
];

fn is_consonant(word: &[u8], at: usize) -> bool {
    match word[at] {
        b'a' | b'e' | b'i' | b'o' | b'u' => false,
        b'y' => at == 0 || !is_consonant(word, at - 1),
        _ => true,
    }
}

/// The number of vowel-consonant sequences (Porter's measure).
fn measure(word: &[u8]) -> usize {
    (1..word.len()).filter(|at| is_consonant(word, *at) && !is_consonant(word, at - 1)).count()
}

fn has_vowel(word: &[u8]) -> bool {
    (0..word.len()).any(|at| !is_consonant(word, at))
}

fn ends_double(word: &[u8]) -> bool {
    let n = word.len();
    n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1)
}

/// Consonant, vowel, consonant, and the last is none of `w`, `x`, `y`: a short syllable.
fn ends_short(word: &[u8]) -> bool {
    let n = word.len();
    n >= 3
        && is_consonant(word, n - 3)
        && !is_consonant(word, n - 2)
        && is_consonant(word, n - 1)
        && !matches!(word[n - 1], b'w' | b'x' | b'y')
}

fn plurals(word: &mut Vec<u8>) {
    if word.ends_with(b"sses") || word.ends_with(b"ies") {
        word.truncate(word.len() - 2);
    } else if word.ends_with(b"s") && !word.ends_with(b"ss") {
        word.truncate(word.len() - 1);
    }
}

fn past_and_progressive(word: &mut Vec<u8>) {
    if word.ends_with(b"eed") {
        if measure(&word[..word.len() - 3]) > 0 {
            word.truncate(word.len() - 1);
        }
        return;
    }
    let Some(stem) = ["ed", "ing"].iter().find_map(|suffix| word.strip_suffix(suffix.as_bytes())) else {
        return;
    };
    if !has_vowel(stem) {
        return;
    }
    let length = stem.len();
    word.truncate(length);
    if [&b"at"[..], b"bl", b"iz"].iter().any(|end| word.ends_with(end)) {
        word.push(b'e');
    } else if ends_double(word) && !matches!(word[length - 1], b'l' | b's' | b'z') {
        word.pop();
    } else if measure(word) == 1 && ends_short(word) {
        word.push(b'e');
    }
}

fn final_y(word: &mut [u8]) {
    if let Some((last, stem)) = word.split_last_mut()
        && *last == b'y'
        && has_vowel(stem)
    {
        *last = b'i';
    }
}

/// Replaces the first matching suffix, if the measure of the rest is more than `above`.
fn replace(word: &mut Vec<u8>, table: &[(&str, &str)], above: usize) {
    for (suffix, by) in table {
        if word.ends_with(suffix.as_bytes()) {
            let length = word.len() - suffix.len();
            if measure(&word[..length]) > above {
                word.truncate(length);
                word.extend_from_slice(by.as_bytes());
            }
            return;
        }
    }
}

fn remove_suffix(word: &mut Vec<u8>) {
    let found = LAST_SUFFIXES.iter().find(|suffix| word.ends_with(suffix.as_bytes()));
    let length = match found {
        Some(suffix) => word.len() - suffix.len(),
        None if word.ends_with(b"sion") || word.ends_with(b"tion") => word.len() - 3,
        None => return,
    };
    if measure(&word[..length]) > 1 {
        word.truncate(length);
    }
}

fn tidy(word: &mut Vec<u8>) {
    if let Some(stem) = word.strip_suffix(b"e") {
        let measured = measure(stem);
        if measured > 1 || (measured == 1 && !ends_short(stem)) {
            word.pop();
        }
    }
    if word.ends_with(b"ll") && measure(word) > 1 {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_have_the_same_stem() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "ti"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("digitizer", "digit"),
            ("vietnamization", "vietnam"),
            ("hopefulness", "hope"),
            ("electrical", "electr"),
            ("goodness", "good"),
            ("adjustable", "adjust"),
            ("replacement", "replac"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("controll", "control"),
            ("roll", "roll"),
            ("running", "run"),
            ("is", "is"),
            ("naïve", "naïve"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn the_text_index_has_the_same_stems() {
        let index = rusqlite::Connection::open_in_memory().unwrap();
        index.execute_batch("CREATE VIRTUAL TABLE f USING fts5 (t, tokenize = 'porter unicode61')").unwrap();
        index.execute_batch("CREATE VIRTUAL TABLE v USING fts5vocab (f, row)").unwrap();
        for word in [
            "databases",
            "migrations",
            "deployed",
            "failing",
            "connections",
            "organizer",
            "happily",
            "memories",
            "responsible",
            "generalizations",
            "flying",
            "studied",
            "hobbies",
            "programming",
            "classes",
            "activities",
            "national",
            "rational",
            "creative",
            "sensational",
            "formalize",
            "analogies",
            "dependent",
            "opinion",
        ] {
            index.execute("DELETE FROM f", ()).unwrap();
            index.execute("INSERT INTO f VALUES (?)", [word]).unwrap();
            let term: String = index.query_row("SELECT term FROM v", (), |row| row.get(0)).unwrap();
            assert_eq!(stem(word), term, "{word}");
        }
    }
}

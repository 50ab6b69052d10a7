//! Generates the reference page from the table of keys.

use std::fmt::Write;

use super::keys::{KEYS, Key, TABLES};

/// The contents of `docs/configuration.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         `burrow serve` reads `/etc/burrow/config.toml`, or the file given by `--config` or `BURROW_CONFIG`. A\n\
         missing file means defaults, unless it was given explicitly. An unknown key or an invalid value stops the start with\n\
         an error that names the key and the line. `burrow config show` prints the effective configuration. Sizes are written\n\
         `512M`, `2G`, `1T` (powers of 1024).\n\n\
         This page is generated from the code (`UPDATE=1 cargo test -p burrow-cli --test reference`).\n\n",
    );
    section(&mut page, KEYS.iter().filter(|key| !key.path.contains('.')));
    for (table, doc) in TABLES {
        write!(page, "\n## `[{table}]`\n\n{doc}\n\n").expect("writing to a string succeeds");
        let inside = |key: &&Key| key.path.split_once('.').is_some_and(|(of, _)| of == *table);
        section(&mut page, KEYS.iter().filter(inside));
    }
    page
}

fn section<'k>(page: &mut String, keys: impl Iterator<Item = &'k Key>) {
    page.push_str("| Key | Value | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys {
        let name = key.path.rsplit('.').next().unwrap_or(key.path);
        let default = key.default.map_or_else(|| "none".to_owned(), |text| format!("`{text}`"));
        let expected = key.kind.expected();
        writeln!(page, "| `{name}` | {expected} | {default} | {} |", key.doc)
            .expect("writing to a string succeeds");
    }
}

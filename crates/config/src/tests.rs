//! Valid configurations, and the error messages for invalid ones.

use super::*;

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = Config::parse(Path::new("burrow.toml"), text).expect_err(text);
    assert_eq!(error.to_string(), expected);
}

fn parsed(text: &str) -> Config {
    Config::parse(Path::new("burrow.toml"), text).unwrap()
}

#[test]
fn an_empty_file_means_the_defaults_of_the_api() {
    let config = parsed("");
    assert_eq!(config.listen.port(), burrow_api::defaults::PORT);
    assert_eq!(config.defaults.image, burrow_api::defaults::IMAGE);
    assert_eq!(config.defaults.driver, burrow_api::defaults::DRIVER);
    assert_eq!(config.defaults.limits.ram_mib, burrow_api::defaults::RAM_MIB);
    assert_eq!(config.defaults.limits.cpu_millis, burrow_api::defaults::CPU_MILLIS);
    assert_eq!(config.defaults.limits.pids, burrow_api::defaults::PIDS);
    assert_eq!(config.defaults.limits.disk_mib, burrow_api::defaults::DISK_MIB);
    assert_eq!(config.bounds.json_body_bytes, burrow_api::defaults::JSON_BODY_BYTES_MAX);
    assert!(config.metrics_open && config.tls.is_none());
    config.bounds.limits.check().unwrap();
}

#[test]
fn a_missing_file_means_defaults_unless_it_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.toml");
    let config = Config::of(Settings::read_if_any(&path).unwrap(), path.clone()).unwrap();
    assert_eq!(config.pool, Pool::File { size_bytes: 64 << 30 });
    let error = Config::load(Some(&path)).unwrap_err().to_string();
    assert!(error.starts_with("could not read the configuration"), "{error}");
}

#[test]
fn values_are_parsed_in_all_notations() {
    let config = parsed(
        "listen = \"[::1]:0\"\n[defaults]\nram = \"1.5G\"\ncpu = 0.5\npids = 1_00\n[pool]\npath = \"/pool\"\n\
         [limits]\nmax_disk = 1099511627776\n[log]\nformat = \"json\"",
    );
    assert_eq!(
        config.defaults.limits,
        Limits { ram_mib: 1536, cpu_millis: 500, pids: 100, disk_mib: 10_240 }
    );
    assert_eq!(config.pool, Pool::Directory("/pool".into()));
    assert_eq!(config.bounds.limits.disk_mib, 1 << 20);
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn a_bad_value_names_its_key_and_its_line() {
    refused(
        "listen = \"127.0.0.1:1\"\n\n[defaults]\nram = \"lots\"\n",
        "`defaults.ram` on line 4 of `burrow.toml` must be a size from `32M` to `4T`, not `lots`",
    );
    refused(
        "[limits]\nsandboxes = -1\n",
        "`limits.sandboxes` on line 2 of `burrow.toml` must be a whole number from 1 to 100000, not `-1`",
    );
    refused(
        "limits = { sandboxes = 1.5 }",
        "`limits.sandboxes` on line 1 of `burrow.toml` must be a whole number from 1 to 100000, not a float",
    );
    refused(
        "# a comment\nlisten = 7700\n",
        "`listen` on line 2 of `burrow.toml` must be an address and a port, like `127.0.0.1:7700`, not an integer",
    );
    refused(
        "state_dir = \"var/\\u001b[31m\"\n",
        "`state_dir` on line 1 of `burrow.toml` must be an absolute path, not `var/\\u{1b}[31m`",
    );
    refused(
        "[log]\nlevel = \"loud\"",
        "`log.level` on line 2 of `burrow.toml` must be one of `error`, `warn`, `info`, `debug`, `trace`, not `loud`",
    );
}

#[test]
fn rules_sets_and_ranges_are_lists() {
    let config = parsed(
        "[egress]\ndefault = \"open\"\nrules = [\"Example.com.\"]\nallow_ranges = [\"198.51.100.0/24\"]\n\
         [egress.sets]\nours = [\"*.example.com:443\", \"tcp://db.example.com:5432\"]\n",
    );
    assert_eq!(config.egress.mode, NetworkMode::Open);
    assert_eq!(config.egress.rules, ["example.com".parse().unwrap()]);
    assert_eq!(config.egress.allow_ranges, ["198.51.100.0/24".parse().unwrap()]);
    assert_eq!(config.egress.sets[&"ours".parse().unwrap()].len(), 2);
    assert_eq!(config.effective()["egress"]["sets"]["ours"][0], "*.example.com:443");
    assert_eq!(parsed("").egress.mode, NetworkMode::Allowlist);
}

#[test]
fn an_invalid_list_entry_is_rejected_with_its_line() {
    refused(
        "[egress]\nrules = [\n  \"example.com\",\n  \"*\",\n]\n",
        "`egress.rules` on line 4 of `burrow.toml` contains `*`: `*` would allow every host; set the mode to `open` for \
         that, or write `*.example.com`",
    );
    refused(
        "[egress.sets]\nours = [\"example.com\"]\ntheirs = [\"example.com\",\n7]\n",
        "`egress.sets.theirs` on line 4 of `burrow.toml` must contain strings, not an integer",
    );
    refused(
        "[egress.sets]\nNope = []\n",
        "`egress.sets.Nope` on line 2 of `burrow.toml` is not a valid name of a set: a name is 1 to 63 lower-case \
         letters, digits and inner hyphens, starting with a letter, and not shaped like an id",
    );
    refused(
        "[egress]\nrules = \"example.com\"\n",
        "`egress.rules` on line 2 of `burrow.toml` must be a list of rules, like `[\"*.example.com:443\"]`, not \
         `example.com`",
    );
    refused(
        "[egress]\nallow_ranges = [\n\"10.0.0.0/8\",\n\"127.0.0.0/30\"]\n",
        "`egress.allow_ranges` on line 4 of `burrow.toml` contains `127.0.0.0/30`: it contains the host's own loopback \
         addresses, which sandboxes may never connect to",
    );
}

#[test]
fn an_unknown_key_is_rejected_with_a_suggestion() {
    refused(
        "[limits]\nsandboxs = 3\n",
        "`limits.sandboxs` on line 2 of `burrow.toml` is not a configuration key (did you mean `limits.sandboxes`?)",
    );
    refused(
        "slots = 3\n",
        "`slots` on line 1 of `burrow.toml` is not a configuration key (did you mean `network.slots`?)",
    );
    refused("[weather]\nsunny = true\n", "`weather` on line 1 of `burrow.toml` is not a configuration key");
}

#[test]
fn broken_toml_names_its_line() {
    let error = Config::parse(Path::new("burrow.toml"), "listen = \"127.0.0.1:1\"\nlog = [\n").unwrap_err();
    assert!(error.to_string().starts_with("line "), "{error}");
    let error = Config::parse(Path::new("burrow.toml"), "a = 1\nb = = 2\n").unwrap_err();
    assert!(error.to_string().starts_with("line 2 of `burrow.toml` is not TOML: "), "{error}");
}

#[test]
fn listening_beyond_loopback_requires_tls_or_insecure_http() {
    let error =
        Config::parse(Path::new("burrow.toml"), "\nlisten = \"0.0.0.0:7700\"\n").unwrap_err().to_string();
    assert!(
        error.starts_with("`listen` on line 2 of `burrow.toml` can be reached from other hosts"),
        "{error}"
    );
    assert!(!parsed("listen = \"0.0.0.0:7700\"\ninsecure_http = true\n").metrics_open);
    let config =
        parsed("listen = \"0.0.0.0:7700\"\n[tls]\ncert = \"/c\"\nkey = \"/k\"\n[metrics]\npublic = true");
    assert!(config.tls.is_some() && config.metrics_open);
}

#[test]
fn conflicting_values_are_rejected() {
    refused("[tls]\ncert = \"/c\"\n", "`tls.cert` on line 2 of `burrow.toml` requires `tls.key`");
    refused(
        "[limits]\nmax_ram = \"512M\"\n",
        "`defaults.ram`, which `burrow.toml` does not set, exceeds `limits.max_ram`",
    );
    refused("[image]\nsuite = \"x\"\n", "`image.suite` on line 2 of `burrow.toml` requires `image.mirror`");
    refused(
        "[runtime]\ncgroup = \"../x\"\n",
        "`runtime.cgroup` on line 2 of `burrow.toml` must consist of letters, digits, `-` and `_`",
    );
}

#[test]
fn the_effective_configuration_shows_every_key() {
    let config = parsed("[pool]\nsize = \"2G\"\n");
    for key in keys::KEYS {
        let shown = match key.path.split_once('.') {
            Some((table, name)) => config.effective().get(table).and_then(|table| table.get(name)),
            None => config.effective().get(key.path),
        };
        assert!(shown.is_some(), "{}", key.path);
    }
    assert_eq!(config.effective()["pool"]["size"], "2G");
    assert_eq!(config.effective()["defaults"]["cpu"], 2.0);
    assert_eq!(config.effective()["tls"]["cert"], serde_json::Value::Null);
}

#[test]
fn apparmor_is_used_where_the_host_has_it_unless_it_is_required_or_turned_off() {
    use burrow_runtime::container::apparmor::ProfileUse;
    for (text, expected) in [
        ("", ProfileUse::Auto),
        ("\"auto\"", ProfileUse::Auto),
        ("true", ProfileUse::Always),
        ("false", ProfileUse::Never),
    ] {
        let line = if text.is_empty() { String::new() } else { format!("[runtime]\napparmor = {text}\n") };
        assert_eq!(parsed(&line).runtime.apparmor, expected, "{text}");
    }
    refused(
        "[runtime]\napparmor = \"maybe\"\n",
        "`runtime.apparmor` on line 2 of `burrow.toml` must be `true`, `false` or `auto`, not `maybe`",
    );
}

#[test]
fn idle_sandboxes_sleep_by_default_and_sleep_times_must_ascend() {
    let default = parsed("").sleep.policy;
    assert_eq!((default.pause_after_ms, default.hibernate_after_ms), (Some(300_000), Some(1_800_000)));
    assert!(default.stop_after_ms.is_none() && default.start_on_use);
    let off = parsed("[sleep]\npause_after = \"never\"\nhibernate_after = \"never\"\nstart_on_use = false\n");
    assert!(off.sleep.policy.is_never() && !off.sleep.policy.start_on_use);
    refused(
        "[sleep]\npause_after = \"1h\"\n",
        "`sleep.hibernate_after`, which `burrow.toml` does not set, must be longer than `sleep.pause_after`",
    );
    assert_eq!(parsed("").sleep.cpu_threshold_millis, 20);
    let config = parsed("[sleep]\npause_after = \"5m\"\nhibernate_after = \"1h\"\nstop_after = \"never\"\n");
    assert_eq!(config.defaults.sleep.pause_after_ms, Some(300_000));
    assert_eq!(config.defaults.sleep.hibernate_after_ms, Some(3_600_000));
    assert_eq!(config.defaults.sleep.stop_after_ms, None);
    assert_eq!(config.effective()["sleep"]["pause_after"], "5m");
    assert_eq!(config.effective()["sleep"]["stop_after"], "never");
    refused(
        "[sleep]\npause_after = \"1h\"\nhibernate_after = \"5m\"\n",
        "`sleep.hibernate_after` on line 3 of `burrow.toml` must be longer than `sleep.pause_after`",
    );
    refused(
        "[sleep]\npause_after = \"500ms\"\n",
        "`sleep.pause_after` on line 2 of `burrow.toml` must be a time from `1s` to `3660d`, like `90s`, `5m`, `1h` or \
         `7d`, or `never`, not `500ms`",
    );
    refused(
        "[sleep]\nstop_after = 60\n",
        "`sleep.stop_after` on line 2 of `burrow.toml` must be a time from `1s` to `3660d`, like `90s`, `5m`, `1h` or \
         `7d`, or `never`, not an integer",
    );
}

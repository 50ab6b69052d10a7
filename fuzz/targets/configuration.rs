//! The daemon's configuration file: a person's mistakes are named, whatever they are.
#![no_main]

use std::path::Path;

use burrow_config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(Path::new("/etc/burrow/config.toml"), text) {
        Ok(config) => drop(config.effective().to_string()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

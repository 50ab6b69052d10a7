//! The surroundings of these rows' sandboxes: hosts, their secrets, and an unguarded path to them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::certificates::{Authority, CertificateWithKey, Validity};
use super::hosts::{HostOptions, Records, open};
use super::probe::PROBE;
use crate::controls;
use crate::ground::{Ground, Run};
use crate::harness::run;
use crate::{island, test_network};

/// Speaks HTTP/1 and 2.
const BOTH: &str = "198.51.100.1";
/// HTTP/1 only.
const OLD: &str = "198.51.100.2";
const SELF_SIGNED: &str = "198.51.100.3";
const EXPIRED: &str = "198.51.100.4";
const WRONG: &str = "198.51.100.5";
/// Requires a client certificate.
const MUTUAL: &str = "198.51.100.6";

const NAMES: &str = "198.51.100.1 up.example other.example grpc.example live.example\n198.51.100.2 h1.example\n\
                     198.51.100.3 self-signed.example\n198.51.100.4 expired.example\n198.51.100.5 wrong.example\n\
                     198.51.100.6 mtls.example mtls-other.example\n127.0.0.1 localhost\n";

pub(crate) struct OutsideHosts {
    pub(crate) records: Arc<Records>,
    folder: PathBuf,
    /// In requests to hosts of `bearer` and `metadata`.
    pub(crate) secret: String,
    /// The value after a rotation.
    pub(crate) second: String,
    /// A client certificate with its key.
    pub(crate) identity: String,
    unguarded: Child,
    /// The runtime on whose threads the hosts run.
    _runtime: tokio::runtime::Runtime,
}

static OUTSIDE: OnceLock<OutsideHosts> = OnceLock::new();

pub(crate) fn outside() -> &'static OutsideHosts {
    OUTSIDE.get().expect("the suite fills it first")
}

/// Call it before anything else uses it. Its files are removed when it is dropped.
pub(crate) fn fill() -> tempfile::TempDir {
    for address in [OLD, SELF_SIGNED, EXPIRED, WRONG, MUTUAL] {
        run(Command::new("ip").args(["address", "add", &format!("{address}/24"), "dev", "out0"]));
    }
    island::rewrite_hosts(NAMES);
    let folder = tempfile::Builder::new().prefix("burrow-outside-").tempdir().unwrap();
    let (internet, clients) = (Authority::new("internet"), Authority::new("clients"));
    fs::write(folder.path().join("ca.pem"), internet.pem()).unwrap();
    let identity = clients.certifies(&["agent.example"], Validity::Long).pem();
    fs::write(folder.path().join("identity.pem"), &identity).unwrap();
    let both = &["h2", "http/1.1"][..];
    let good = |names: &[&str]| internet.certifies(names, Validity::Long);
    let servers = [
        (BOTH, good(&["up.example", "other.example", "grpc.example", "live.example"]).server(both, None)),
        (OLD, good(&["h1.example"]).server(&["http/1.1"], None)),
        (SELF_SIGNED, CertificateWithKey::by_itself(&["self-signed.example"]).server(both, None)),
        (EXPIRED, internet.certifies(&["expired.example"], Validity::Over).server(both, None)),
        (WRONG, good(&["right.example"]).server(both, None)),
        (MUTUAL, good(&["mtls.example", "mtls-other.example"]).server(both, Some(&clients))),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let records = Arc::new(Records::default());
    runtime.block_on(async {
        open(HostOptions { address: BOTH, port: 80, tls: None }, Arc::clone(&records)).await;
        for (address, config) in servers {
            open(HostOptions { address, port: 443, tls: Some(config) }, Arc::clone(&records)).await;
        }
    });
    // With characters that encodings treat differently, and assembled here, so that no source contains it.
    let random = || fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "");
    let (secret, second) = (format!("sk-live/{}+", random()), format!("sk-next/{}+", random()));
    let filled = OutsideHosts {
        records,
        folder: folder.path().to_owned(),
        secret,
        second,
        identity,
        unguarded: test_network::unguarded_namespace(),
        _runtime: runtime,
    };
    assert!(OUTSIDE.set(filled).is_ok(), "it is filled once");
    folder
}

impl OutsideHosts {
    /// The configuration of a daemon that trusts these hosts.
    pub(crate) fn config(&self) -> String {
        format!("{}\negress.roots = \"{}\"", island::CONFIG, self.file("ca.pem").display())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a probe without a proxy, and gives it the secret.
    pub(crate) fn weakly(&self, body: &str) -> Run {
        self.weakly_with(&[("SECRET", &self.secret), ("API_KEY", "sk-fake-0123456789")], body)
    }

    pub(crate) fn weakly_with(&self, env: &[(&str, &str)], body: &str) -> Run {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "nsenter",
            "-t",
            &self.unguarded.id().to_string(),
            "-n",
            "python3",
            "-c",
            &program(body),
        ]);
        command.env("SSL_CERT_FILE", self.file("ca.pem")).env("CURL_CA_BUNDLE", self.file("ca.pem"));
        controls::run(command.envs(env.iter().copied()))
    }

    /// Stores the secrets in the daemon.
    pub(crate) fn declare(&self, ground: &Ground) {
        let hosts = ["up.example", "h1.example", "self-signed.example", "expired.example", "wrong.example"];
        let paths = |host: &str| json!({ "host": host, "methods": ["GET", "POST"], "paths": ["/v1/**"] });
        let bearer = json!({ "kind": "header", "name": "Authorization", "format": "Bearer {}" });
        let allow: Vec<Value> = hosts.iter().map(|host| paths(host)).collect();
        let placeholder = json!({ "env": "API_KEY", "prefix": "sk-" });
        set(
            ground,
            "bearer",
            &json!({ "allow": allow, "slot": bearer, "placeholder": placeholder }),
            &self.secret,
        );
        for (name, header) in [("metadata", "x-token"), ("metadata-bin", "x-token-bin")] {
            let slot = json!({ "kind": "grpc_metadata", "name": header });
            let path = if name == "metadata" { "/v1/**" } else { "/bin/**" };
            let allow = json!([{ "host": "grpc.example", "paths": [path] }]);
            set(ground, name, &json!({ "allow": allow, "slot": slot }), &self.secret);
        }
        let certificate = json!({ "allow": [{ "host": "mtls.example" }], "slot": { "kind": "client_cert" } });
        set(ground, "identity", &certificate, &self.identity);
    }

    /// A form of a secret that `text` contains, if any.
    pub(crate) fn leak(&self, text: &str) -> Option<String> {
        let key: String =
            self.identity.lines().skip_while(|line| !line.contains("PRIVATE KEY")).nth(1).unwrap().to_owned();
        let secrets = [&self.secret, &self.second];
        let mut every = secrets.into_iter().flat_map(|secret| forms(secret)).chain([key]);
        every.find(|form| text.contains(form.as_str()))
    }
}

/// The forms of the secret, without the characters of base64 that depend on adjacent bytes.
fn forms(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let escaped = |lower: bool| {
        let escape = |b: &u8| if lower { format!("%{b:02x}") } else { format!("%{b:02X}") };
        let one = |b: &u8| {
            if b.is_ascii_alphanumeric() || *b == b'-' { char::from(*b).to_string() } else { escape(b) }
        };
        bytes.iter().map(one).collect::<String>()
    };
    let unicode: String = bytes.iter().map(|b| format!("\\u{b:04x}")).collect();
    let mut forms =
        vec![secret.to_owned(), hex.clone(), hex.to_uppercase(), escaped(false), escaped(true), unicode];
    forms.push(secret.replace('/', "\\/"));
    // The middle of it, from which an attacker could guess the rest.
    forms.push(secret[8..40].to_owned());
    for before in 0..3_usize {
        let padded = [&vec![0; before][..], bytes].concat();
        let (from, upto) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.push(text[from..upto].to_owned());
        }
    }
    forms
}

/// Declares a secret, which must succeed.
pub(crate) fn set(ground: &Ground, name: &str, declaration: &Value, value: &str) {
    let (status, text) = try_set(ground, name, declaration, value.as_bytes());
    assert_eq!(status, 200, "{text}");
}

pub(crate) fn try_set(ground: &Ground, name: &str, declaration: &Value, value: &[u8]) -> (u16, String) {
    let mut body = declaration.clone();
    body["value"] = STANDARD.encode(value).into();
    let path = format!("/v1/secrets/{name}");
    let answer = ground.ask("PUT", path.as_bytes(), "application/json", body.to_string().as_bytes());
    (answer.status, answer.text())
}

pub(crate) fn program(body: &str) -> String {
    format!("{PROBE}\n{body}\n")
}

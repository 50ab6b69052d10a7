//! Limits of the network and disk speed of a sandbox: they are reached, and not exceeded, over all changes of state.

use std::time::{Duration, Instant};

use crate::harness::{Daemon, eventually};
use crate::microvms;

const MIB: u64 = 8;

/// The measured time, and the bytes that a rate allows in that time.
struct Transfer {
    took: Duration,
}

impl Transfer {
    fn of(act: impl FnOnce()) -> Self {
        let began = Instant::now();
        act();
        Self { took: began.elapsed() }
    }

    /// The burst of one second passes at once.
    fn fits_network(&self, mib_per_second: u64) -> bool {
        MIB as f64 <= mib_per_second as f64 * (self.took.as_secs_f64() + 1.0)
    }

    /// The burst of a tenth of a second passes at once; and a rate is not exact to the byte.
    fn fits_disk(&self, mib_per_second: u64) -> bool {
        let rate = mib_per_second as f64;
        MIB as f64 <= rate * self.took.as_secs_f64() * 1.5 + rate / 4.0
    }
}

/// Downloads a file of [`MIB`] through the daemon from a server in a sandbox.
fn fetch(daemon: &Daemon, sandbox: &str, port: u16) -> Transfer {
    let (id, key) = (daemon.inspect(sandbox)["id"].as_str().unwrap().to_owned(), daemon.key());
    let site = format!("{port}-{id}.localhost");
    let page =
        |path: &str| daemon.http_open("GET", path).header("host", &site).header("x-burrow-key", &key).send();
    eventually("a server", || (page("/small").status == 200).then_some(()));
    Transfer::of(|| {
        let answer = page("/large");
        assert_eq!((answer.status, answer.body.len() as u64), (200, MIB << 20));
    })
}

/// Serves on every address and on loopback alone, which the daemon reaches by different paths.
fn serve(daemon: &Daemon, sandbox: &str) -> [u16; 2] {
    daemon.sh(sandbox, &format!("cd /srv && echo x > small && head -c {} /dev/urandom > large", MIB << 20));
    for (name, address, port) in [("all", "0.0.0.0", "8000"), ("own", "127.0.0.1", "8001")] {
        let argv = ["python3", "-m", "http.server", "-b", address, "-d", "/srv", port];
        daemon.ok(&[&["service", "add", sandbox, name, "--"][..], &argv].concat());
    }
    [8000, 8001]
}

#[test]
fn a_network_reaches_its_rate_and_does_not_exceed_it() {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "web", "--net-rate", "2"]);
    assert_eq!(daemon.inspect("web")["limits"]["network_mib_per_second"], 2);
    for port in serve(&daemon, "web") {
        let passed = fetch(&daemon, "web", port);
        assert!(passed.fits_network(2), "port {port}: {:?}", passed.took);
    }
    // Traffic of the agent does not count as the sandbox's network traffic.
    let passed = Transfer::of(|| {
        assert_eq!(daemon.cli(&["exec", "web", "--", "cat", "/srv/large"]).stdout.len() as u64, MIB << 20)
    });
    assert!(!passed.fits_network(2), "an exec's output took {:?}", passed.took);

    // The same after a restart of the daemon, in a fork, and after a wake.
    daemon.kill();
    daemon.launch();
    assert!(fetch(&daemon, "web", 8000).fits_network(2));
    let child = daemon.json(&["fork", "web", "--name", "child", "--json"])["children"][0].clone();
    assert_eq!(child["limits"]["network_mib_per_second"], 2, "{child}");
    assert!(fetch(&daemon, "child", 8000).fits_network(2));
    daemon.ok(&["rm", "--purge", "child"]);
    daemon.ok(&["hibernate", "web"]);
    assert!(fetch(&daemon, "web", 8001).fits_network(2));

    // Control: without the limit, the same takes less time.
    daemon.ok(&["update", "web", "--net-rate", "none"]);
    assert!(daemon.inspect("web")["limits"].get("network_mib_per_second").is_none());
    for port in [8000, 8001] {
        let passed = fetch(&daemon, "web", port);
        assert!(!passed.fits_network(2), "port {port}: {:?}", passed.took);
    }
    assert_eq!(daemon.complaints(), [""; 0]);
}

#[test]
fn invalid_or_unenforceable_rates_are_refused_with_a_hint() {
    let daemon = Daemon::start();
    let said = daemon.refused(&["create", "--isolation", "container", "--disk-rate", "5"], 1);
    assert!(said.contains("cannot limit the disk rate") && said.contains("--isolation microvm"), "{said}");
    let said = daemon.refused(&["create", "--net-rate", "0"], 1);
    assert!(
        said.contains("`network_mib_per_second` must be from 1 to 8192") && said.contains("hint: omit it"),
        "{said}"
    );
    for bad in ["10M", "9000"] {
        let said = daemon.refused(&["create", "--net-rate", bad], 2);
        assert!(said.contains("MiB per second"), "{said}");
    }
    assert_eq!(daemon.json(&["ls", "--json"]), serde_json::json!([]));
    daemon.ok(&["create", "--name", "alpha", "--isolation", "container"]);
    let said = daemon.refused(&["update", "alpha", "--disk-rate", "5"], 1);
    assert!(said.contains("cannot limit the disk rate"), "{said}");
    daemon.ok(&["update", "alpha", "--disk-rate", "none"]);
}

/// Writes a file of [`MIB`] and syncs it.
fn write(daemon: &Daemon, sandbox: &str) -> Transfer {
    let line = format!("dd if=/dev/zero of=/root/written bs=1M count={MIB} conv=fsync 2>/dev/null");
    Transfer::of(|| drop(daemon.sh(sandbox, &line)))
}

#[test]
fn a_microvms_disk_reaches_its_rate_and_does_not_exceed_it() {
    let mut daemon = microvms::start("");
    microvms::create(&daemon, "alpha", &["--disk-rate", "1"]);
    assert_eq!(daemon.inspect("alpha")["limits"]["disk_mib_per_second"], 1);
    let passed = write(&daemon, "alpha");
    assert!(passed.fits_disk(1), "{:?}", passed.took);
    daemon.kill();
    daemon.launch();
    let passed = write(&daemon, "alpha");
    assert!(passed.fits_disk(1), "after another daemon: {:?}", passed.took);
    daemon.ok(&["hibernate", "alpha"]);
    let passed = write(&daemon, "alpha");
    assert!(passed.fits_disk(1), "after a wake: {:?}", passed.took);
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    let passed = write(&daemon, "child");
    assert!(passed.fits_disk(1), "of a child: {:?}", passed.took);
    // Control: without the limit, the same takes less time.
    daemon.ok(&["update", "child", "--disk-rate", "none"]);
    let passed = write(&daemon, "child");
    assert!(!passed.fits_disk(1), "without a rate: {:?}", passed.took);
}

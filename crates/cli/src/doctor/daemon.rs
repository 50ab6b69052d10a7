//! The daemon: whether it answers, its version, its drivers and their capabilities, its pool.

use burrow_api::{Ability, Driver, ErrorCode, HostInfo, Ssh};
use burrow_client::Client;

use super::{Check, Verdict};
use crate::context::Context;
use crate::print::quantity;

/// A pool with less than this share left is nearly full.
const POOL_FREE_PERCENT: u64 = 10;

pub(super) async fn examine(ctx: &Context) -> Vec<Check> {
    let Ok(client) = ctx.client() else {
        let found = format!("`{}` is not the address of a daemon", ctx.args.url);
        return vec![Check::fail("address", found)];
    };
    let mut checks = Vec::new();
    match client.readiness().await {
        Ok(readiness) if readiness.ready => checks.push(Check::ok("ready", ctx.args.url.clone())),
        Ok(readiness) => {
            let found = format!("not yet; waits for {}", readiness.waiting_for.join(", "));
            checks.push(Check::warn("ready", found));
        }
        Err(error) => {
            let found = if error.is_unreachable() {
                format!("no daemon answers at {}; only a running daemon knows its drivers", ctx.args.url)
            } else {
                error.to_string()
            };
            checks.push(Check::warn("ready", found).fix("sudo burrow up"));
            return checks;
        }
    }
    checks.push(version(&client).await);
    checks.extend(audit(&client).await);
    // A key without the right to ask is reported below.
    checks.extend(client.ssh().await.ok().map(ssh));
    match client.host().await {
        Ok(host) => checks.extend(host_checks(&host)),
        Err(error) if error.code() == Some(ErrorCode::Unauthorized) => {
            let hint = ctx.missing_key_hint().unwrap_or("set BURROW_API_KEY to a valid key").to_owned();
            checks.push(Check::warn("key", error.to_string()).fix(hint));
        }
        Err(error) => checks.push(Check::warn("host", error.to_string())),
    }
    checks
}

/// Whether the audit log is available, if the key has the right to ask.
async fn audit(client: &Client) -> Option<Check> {
    match client.audit_checkpoint().await {
        Ok(checkpoint) => {
            let found = format!("{}, signed", quantity::count(checkpoint.size, "event", "events"));
            Some(Check::ok("audit", found))
        }
        Err(error) if matches!(error.code(), Some(ErrorCode::Unauthorized | ErrorCode::Forbidden)) => None,
        Err(error) => {
            let fix = "free space on the disk of `state_dir`; without an audit log, no secret is injected";
            Some(Check::warn("audit", error.to_string()).fix(fix))
        }
    }
}

async fn version(client: &Client) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match client.version().await {
        Ok(version) if version.version == own => Check::ok("version", own),
        Ok(version) => {
            Check::warn("version", format!("the daemon is {}, this program {own}", version.version))
                .fix("sudo burrow down && sudo burrow up")
        }
        Err(error) => Check::warn("version", error.to_string()),
    }
}

fn ssh(ssh: Ssh) -> Check {
    match ssh.address {
        Some(address) => Check::ok("ssh", format!("served at {address}")),
        None => Check::note("ssh", "not served: it is disabled, or its port is in use")
            .fix("set `ssh.listen` in the configuration to a free address, and restart the daemon"),
    }
}

fn host_checks(host: &HostInfo) -> Vec<Check> {
    let mut checks = vec![pool(host)];
    for driver in &host.drivers {
        checks.extend(driver_checks(driver));
    }
    if !host.drivers.iter().any(|driver| driver.available.yes) {
        checks.push(Check::fail("drivers", "no driver can run sandboxes on this host"));
        return checks;
    }
    let default =
        format!("sandboxes run as `{}` by default; `--isolation` overrides it", host.default_driver);
    checks.push(Check::ok("isolation", default));
    checks
}

fn pool(host: &HostInfo) -> Check {
    let shown = format!(
        "{} of {} free; sandboxes: {}, running: {}",
        quantity::bytes(host.pool_free_bytes),
        quantity::bytes(host.pool_total_bytes),
        host.sandboxes,
        host.sandboxes_running
    );
    if host.pool_free_bytes.saturating_mul(100) >= host.pool_total_bytes.saturating_mul(POOL_FREE_PERCENT) {
        Check::ok("pool", shown)
    } else {
        Check::warn("pool", shown).fix("delete unused sandboxes: `burrow ls`, `burrow rm SANDBOX`")
    }
}

fn driver_checks(driver: &Driver) -> Vec<Check> {
    let name = &driver.name;
    let check = |verdict, found: String| Check::new("driver", verdict, format!("{name}{found}"));
    if !driver.available.yes {
        let found = format!(": not available{}", why(&driver.available));
        return vec![check(Verdict::Note, found).fix_if(driver.available.fix.clone())];
    }
    let mut checks = vec![check(Verdict::Ok, " runs sandboxes".to_owned())];
    checks.extend(driver.note.as_ref().map(|note| check(Verdict::Note, format!(": {note}"))));
    // A missing limit of disk rates is not a problem of the host.
    let abilities = [
        ("pause", Some(&driver.pause), Verdict::Warn),
        ("hibernate", Some(&driver.hibernate), Verdict::Warn),
        ("limits", Some(&driver.limits), Verdict::Warn),
        ("disk rates", driver.disk_rate.as_ref(), Verdict::Note),
    ];
    for (what, ability, missing) in abilities {
        checks.extend(ability.map(|ability| match (ability.yes, missing) {
            (true, _) => check(Verdict::Ok, format!(": {what}")),
            (false, Verdict::Note) => check(missing, format!(": no {what}{}", why(ability))),
            (false, _) => check(missing, format!(": no {what}{}", why(ability))).fix_if(ability.fix.clone()),
        }));
    }
    checks
}

fn why(ability: &Ability) -> String {
    ability.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ability(yes: bool) -> Ability {
        if yes {
            return Ability { yes, reason: None, fix: None };
        }
        Ability { yes, reason: Some("CRIU is too old".to_owned()), fix: Some("make up".to_owned()) }
    }

    fn host(available: bool, free: u64) -> HostInfo {
        let driver = Driver {
            name: "container".to_owned(),
            available: ability(available),
            pause: ability(true),
            hibernate: ability(false),
            limits: ability(true),
            disk_rate: Some(ability(false)),
            volumes: Some(ability(true)),
            note: Some("machines run by magic".to_owned()),
        };
        HostInfo {
            version: "0.1.0".to_owned(),
            drivers: vec![driver],
            default_driver: "container".to_owned(),
            pool_total_bytes: 100,
            pool_free_bytes: free,
            sandboxes_recovering: 0,
            sandboxes: 1,
            sandboxes_running: 1,
        }
    }

    #[test]
    fn every_missing_capability_has_a_reason_and_a_fix() {
        let checks = host_checks(&host(true, 50));
        let hibernate = checks.iter().find(|check| check.found.contains("hibernate")).unwrap();
        assert_eq!(hibernate.found, "container: no hibernate: CRIU is too old");
        assert_eq!((hibernate.verdict, hibernate.fix.as_deref()), (Verdict::Warn, Some("make up")));
        assert!(checks.iter().all(|check| check.verdict != Verdict::Fail));
        let rates = checks.iter().find(|check| check.found.contains("disk rates")).unwrap();
        assert_eq!((rates.verdict, rates.fix.as_deref()), (Verdict::Note, None), "{}", rates.found);
        for expected in ["container: machines run by magic", "sandboxes run as `container` by default"] {
            assert!(checks.iter().any(|check| check.found.starts_with(expected)), "{expected}");
        }
    }

    #[test]
    fn the_ssh_gateway_is_reported() {
        let check = |address: Option<&str>| {
            let address = address.map(str::to_owned);
            ssh(Ssh { address, host_key: None, host_fingerprint: None })
        };
        assert_eq!(check(Some("127.0.0.1:2222")), Check::ok("ssh", "served at 127.0.0.1:2222"));
        let off = check(None);
        assert!(off.verdict == Verdict::Note && off.fix.unwrap().contains("`ssh.listen`"), "{}", off.found);
    }

    #[test]
    fn a_host_without_any_driver_fails() {
        assert!(host_checks(&host(false, 50)).iter().any(|check| check.verdict == Verdict::Fail));
        assert_eq!(pool(&host(true, 5)).verdict, Verdict::Warn);
    }
}

//! The daemon: whether it answers, its version, its drivers and their capabilities, its pool.

use burrow_api::{Ability, Driver, ErrorCode, HostInfo, Ssh};
use burrow_client::Client;

use super::Check;
use crate::context::Context;
use crate::print::quantity;

const AREA: &str = "daemon";
/// A pool with less than this share left is nearly full.
const POOL_FREE_PERCENT: u64 = 10;

pub(super) async fn examine(ctx: &Context) -> Vec<Check> {
    let client = match ctx.client() {
        Ok(client) => client,
        Err(_) => {
            return vec![Check::fail(
                AREA,
                "address",
                format!("`{}` is not the address of a daemon", ctx.args.url),
            )];
        }
    };
    let mut checks = Vec::new();
    match client.readiness().await {
        Ok(readiness) if readiness.ready => checks.push(Check::ok(AREA, "ready", ctx.args.url.clone())),
        Ok(readiness) => {
            checks.push(Check::warn(
                AREA,
                "ready",
                format!("not yet; waits for {}", readiness.waiting_for.join(", ")),
            ));
        }
        Err(error) => {
            let found = if error.is_unreachable() {
                format!("no daemon answers at {}; only a running daemon knows its drivers", ctx.args.url)
            } else {
                error.to_string()
            };
            checks.push(Check::warn(AREA, "ready", found).fix("sudo burrow up"));
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
            checks.push(Check::warn(AREA, "key", error.to_string()).fix(hint));
        }
        Err(error) => checks.push(Check::warn(AREA, "host", error.to_string())),
    }
    checks
}

/// Whether the audit log is available, if the key has the right to ask.
async fn audit(client: &Client) -> Option<Check> {
    match client.audit_checkpoint().await {
        Ok(checkpoint) => {
            let events = usize::try_from(checkpoint.size).unwrap_or(usize::MAX);
            let found = format!("{}, signed", quantity::count(events, "event", "events"));
            Some(Check::ok(AREA, "audit", found))
        }
        Err(error) if matches!(error.code(), Some(ErrorCode::Unauthorized | ErrorCode::Forbidden)) => None,
        Err(error) => {
            let fix = "free space on the disk of `state_dir`; without an audit log, no secret is injected";
            Some(Check::warn(AREA, "audit", error.to_string()).fix(fix))
        }
    }
}

async fn version(client: &Client) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match client.version().await {
        Ok(version) if version.version == own => Check::ok(AREA, "version", own),
        Ok(version) => {
            Check::warn(AREA, "version", format!("the daemon is {}, this program {own}", version.version))
                .fix("sudo burrow down && sudo burrow up")
        }
        Err(error) => Check::warn(AREA, "version", error.to_string()),
    }
}

fn ssh(ssh: Ssh) -> Check {
    match ssh.address {
        Some(address) => Check::ok(AREA, "ssh", format!("served at {address}")),
        None => Check::note(AREA, "ssh", "not served: it is disabled, or its port is in use")
            .fix("set `ssh.listen` in the configuration to a free address, and restart the daemon"),
    }
}

fn host_checks(host: &HostInfo) -> Vec<Check> {
    let mut checks = vec![pool(host)];
    for driver in &host.drivers {
        checks.extend(driver_checks(driver));
    }
    if !host.drivers.iter().any(|driver| driver.available.yes) {
        checks.push(Check::fail(AREA, "drivers", "no driver can run sandboxes on this host"));
        return checks;
    }
    let default =
        format!("sandboxes run as `{}` by default; `--isolation` overrides it", host.default_driver);
    checks.push(Check::ok(AREA, "isolation", default));
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
        Check::ok(AREA, "pool", shown)
    } else {
        Check::warn(AREA, "pool", shown).fix("delete unused sandboxes: `burrow ls`, `burrow rm SANDBOX`")
    }
}

fn driver_checks(driver: &Driver) -> Vec<Check> {
    if !driver.available.yes {
        let check =
            Check::note(AREA, "driver", format!("{}: not available{}", driver.name, why(&driver.available)));
        return vec![with_fix(check, &driver.available)];
    }
    let mut checks = vec![Check::ok(AREA, "driver", format!("{} runs sandboxes", driver.name))];
    if let Some(note) = &driver.note {
        checks.push(Check::note(AREA, "driver", format!("{}: {note}", driver.name)));
    }
    for (what, ability) in
        [("pause", &driver.pause), ("hibernate", &driver.hibernate), ("limits", &driver.limits)]
    {
        checks.push(if ability.yes {
            Check::ok(AREA, "driver", format!("{}: {what}", driver.name))
        } else {
            with_fix(
                Check::warn(AREA, "driver", format!("{}: no {what}{}", driver.name, why(ability))),
                ability,
            )
        });
    }
    if let Some(rate) = &driver.disk_rate {
        checks.push(if rate.yes {
            Check::ok(AREA, "driver", format!("{}: disk rates", driver.name))
        } else {
            // This is not a problem of the host.
            Check::note(AREA, "driver", format!("{}: no disk rates{}", driver.name, why(rate)))
        });
    }
    checks
}

fn why(ability: &Ability) -> String {
    ability.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn with_fix(check: Check, ability: &Ability) -> Check {
    match &ability.fix {
        Some(fix) => check.fix(fix.clone()),
        None => check,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

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
        assert_eq!(check(Some("127.0.0.1:2222")), Check::ok(AREA, "ssh", "served at 127.0.0.1:2222"));
        let off = check(None);
        assert!(off.verdict == Verdict::Note && off.fix.unwrap().contains("`ssh.listen`"), "{}", off.found);
    }

    #[test]
    fn a_host_without_any_driver_fails() {
        assert!(host_checks(&host(false, 50)).iter().any(|check| check.verdict == Verdict::Fail));
        assert_eq!(pool(&host(true, 5)).verdict, Verdict::Warn);
    }
}

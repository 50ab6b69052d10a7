//! `burrow doctor`: checks this host, and suggests a fix for each problem, or runs it.

use crate::commands::prelude::*;
use crate::doctor::{self, Check, Verdict, repair};

/// Check this host and suggest fixes for problems
///
/// Exits with 1 when something required is missing. Also works while the daemon is down.
///
/// With --fix it shows the commands that fix a problem, asks, runs them, and checks again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow doctor
  sudo burrow doctor --fix
  sudo burrow doctor --fix --yes --json")]
pub(crate) struct DoctorArgs {
    /// Configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Fix what can be fixed: missing packages, kernel modules and settings, permissions
    #[arg(long)]
    fix: bool,
    /// Fix without asking
    #[arg(long, requires = "fix")]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: DoctorArgs) -> Result<(), Stop> {
    let mut checks = doctor::examine(ctx, args.config.as_deref()).await;
    if args.fix {
        checks = fix(ctx, &args, checks).await?;
    }
    let healthy = checks.iter().all(|check| check.verdict != Verdict::Fail);
    let json = serde_json::json!({ "ok": healthy, "checks": checks });
    args.format.show(&json, |_| print::data(&report(&checks)))?;
    if healthy { Ok(()) } else { Err(Stop::Exit(1)) }
}

/// Fixes one problem after the other, and returns the checks after the last one. One command may fix several problems.
async fn fix(ctx: &Context, args: &DoctorArgs, mut checks: Vec<Check>) -> Result<Vec<Check>, Stop> {
    let what = "could not fix the problems of this host";
    let mut tried = Vec::new();
    while let Some(check) = repair::next(&checks, &tried) {
        if !rustix::process::geteuid().is_root() {
            return fail(format!("{what}: root is required"), "sudo burrow doctor --fix");
        }
        tried.push((check.area, check.name));
        print::note(format!("{}, {}: {}", check.area, check.name, escape(&check.found)));
        for words in &check.repair {
            print::note(format!("  fix: {}", escape(&words.join(" "))));
        }
        if !args.yes {
            ask::require_terminal(what, "add --yes")?;
            if !ask::confirm("Run it?")? {
                continue;
            }
        }
        if let Err(error) = repair::run(&check.repair).await {
            print::note(format!("  {}", escape(&error.to_string())));
        }
        checks = doctor::examine(ctx, args.config.as_deref()).await;
        let is_same = |check: &&Check| tried.last() == Some(&(check.area, check.name));
        match checks.iter().find(is_same).filter(|check| check.is_problem()) {
            Some(check) => print::note(format!("  not fixed: {}", escape(&check.found))),
            None => print::note("  fixed"),
        }
    }
    if tried.is_empty() {
        print::note("no problem was found that --fix can fix");
    }
    Ok(checks)
}

fn report(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut area = "";
    for check in checks {
        if check.area != area {
            area = check.area;
            text.push_str(area);
            text.push('\n');
        }
        let verdict = match check.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Note => "note",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        text.push_str(&format!("  {verdict}  {:<22} {}\n", check.name, escape(&check.found)));
        if let Some(fix) = &check.fix {
            text.push_str(&format!("        fix: {}\n", escape(fix)));
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    let summary = match (failed, warned) {
        (0, 0) => "all required checks passed".to_owned(),
        (0, warned) => format!("all required checks passed; warnings: {warned}"),
        (failed, warned) => format!("failed checks: {failed}; warnings: {warned}"),
    };
    text + &summary + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_problem_with_its_fix() {
        let checks = vec![
            Check { area: "kernel", ..Check::ok("version", "6.18") },
            Check { area: "network", ..Check::fail("nft", "not found").fix("apt-get install -y nftables") },
        ];
        assert_eq!(
            report(&checks),
            "kernel\n\
             \x20 ok    version                6.18\n\
             network\n\
             \x20 FAIL  nft                    not found\n\
             \x20       fix: apt-get install -y nftables\n\
             failed checks: 1; warnings: 0\n"
        );
    }
}

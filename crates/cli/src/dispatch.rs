//! The command line: the commands, how they are run, and how failures are reported.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::commands::*;
use crate::context::{Context, GlobalArgs};
use crate::failure::{CODE_BROKEN_PIPE, CODE_OWN_FAILURE, Failure, Stop};
use crate::print::paint;
use crate::{groups, names, terminal};

const EXAMPLES: &str = "\
Examples:
  burrow up                                   start the daemon on this host
  burrow run --rm -- uname -a                 a sandbox for one command
  burrow create --name web                    a persistent sandbox
  burrow exec -it web -- bash                 a terminal in it
  burrow cp ./site web:/srv/                  copy files into it
  burrow code lab -e 'x = 1'                  run code that keeps its variables
  burrow stop web && burrow start web         its files are kept
  burrow hibernate web && burrow wake web     its processes are kept too
  burrow snapshot create web                  a snapshot of it
  burrow fork web --count 3                   three copies that continue from here
  burrow diff web web-1                       the changes of one of them
  burrow merge web-1 --into web               merge its changes
  burrow memory add web 'it listens on 8080'  store a fact in memory
  burrow memory search web 'which port'       and find it again
  burrow mcp --sandbox web                    serve it as tools to MCP clients

A sandbox is given by name, by id, or by the first characters of its id.";

const WRONG_KEY_HINT: &str = "the key comes from --key, BURROW_API_KEY, ~/.config/burrow/key or /etc/burrow/admin.key, in this \
    order; `burrow key create` on the daemon's host creates a new one";

/// Persistent sandboxes for AI agents.
#[derive(Debug, Parser)]
#[command(name = "burrow", version, after_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

subcommands! {
    enum Command {
        Run(run::RunArgs) => run::run,
        Create(create::CreateArgs) => create::run,
        Ls(ls::LsArgs) => ls::run,
        Inspect(inspect::InspectArgs) => inspect::run,
        Stats(stats::StatsArgs) => stats::run,
        Events(events::EventsArgs) => events::run,
        Start(power::StartArgs) => power::start,
        Stop(power::StopArgs) => power::stop,
        /// Pause sandboxes: freeze their processes, keep their RAM
        ///
        /// Any use wakes them.
        Pause(power::SandboxesArgs) => power::pause,
        /// Resume paused sandboxes
        Resume(power::SandboxesArgs) => power::resume,
        Hibernate(power::HibernateArgs) => power::hibernate,
        /// Wake sandboxes that are paused, hibernated or stopped
        Wake(power::SandboxesArgs) => power::wake,
        Update(update::UpdateArgs) => update::run,
        Rename(rename::RenameArgs) => rename::run,
        Rm(rm::RmArgs) => rm::run,
        Exec(exec::ExecArgs) => exec::run,
        Code(code::CodeArgs) => code::run,
        #[command(subcommand)]
        Context(context::ContextCommand) => context::run,
        Shell(shell::ShellArgs) => shell::run,
        Ssh(ssh::SshArgs) => ssh::run,
        SshConfig(ssh::config::SshConfigArgs) => ssh::config::run,
        Ps(ps::PsArgs) => ps::run,
        Logs(logs::LogsArgs) => logs::run,
        Attach(attach::AttachArgs) => attach::run,
        Kill(kill::KillArgs) => kill::run,
        Wait(wait::WaitArgs) => wait::run,
        #[command(subcommand)]
        Service(service::ServiceCommand) => service::run,
        #[command(subcommand)]
        Env(env::EnvCommand) => env::run,
        Cp(cp::CpArgs) => cp::run,
        #[command(subcommand)]
        Files(files::FilesCommand) => files::run,
        Mcp(mcp::McpArgs) => mcp::run,
        #[command(subcommand)]
        Snapshot(snapshot::SnapshotCommand) => snapshot::run,
        Fork(fork::ForkArgs) => fork::run,
        Diff(diff::DiffArgs) => diff::run,
        Merge(merge::MergeArgs) => merge::run,
        Race(race::RaceArgs) => race::run,
        Tree(tree::TreeArgs) => tree::run,
        Export(export::ExportArgs) => export::run,
        Import(import::ImportArgs) => import::run,
        #[command(subcommand)]
        Memory(memory::MemoryCommand) => memory::run,
        #[command(subcommand)]
        Kv(kv::KvCommand) => kv::run,
        #[command(subcommand)]
        Skill(skill::SkillCommand) => skill::run,
        #[command(subcommand)]
        Artifact(artifact::ArtifactCommand) => artifact::run,
        #[command(subcommand)]
        Space(space::SpaceCommand) => space::run,
        #[command(subcommand)]
        Egress(egress::EgressCommand) => egress::run,
        #[command(subcommand)]
        Secret(secret::SecretCommand) => secret::run,
        #[command(subcommand)]
        Port(port::PortCommand) => port::run,
        PortForward(port_forward::PortForwardArgs) => port_forward::run,
        Open(open::OpenArgs) => open::run,
        #[command(subcommand)]
        Image(image::ImageCommand) => image::run,
        #[command(subcommand)]
        Volume(volume::VolumeCommand) => volume::run,
        Up(up::UpArgs) if "daemon" => up::run,
        Down(down::DownArgs) if "daemon" => down::run,
        Serve(serve::ServeArgs) if "daemon" => serve::run,
        Doctor(doctor::DoctorArgs) if "daemon" => doctor::run,
        #[command(subcommand)]
        Config(config::ConfigCommand) => config::run,
        Backup(backup::BackupArgs) => backup::run,
        Gc(gc::GcArgs) => gc::run,
        #[command(subcommand)]
        Audit(audit::AuditCommand) => audit::run,
        #[command(subcommand)]
        Key(key::KeyCommand) => key::run,
        #[command(subcommand)]
        SshKey(ssh::key::SshKeyCommand) => ssh::key::run,
        Version(version::VersionArgs) => version::run,
        Completion(completion::CompletionArgs) => completion::run,
        Help(help::HelpArgs) => help::run,
        Manual(manual::ManualArgs) => manual::run,
    }
}

/// Runs the program, and returns its exit code.
pub fn main() -> ExitCode {
    #[cfg(feature = "daemon")]
    crate::roles::take_over(std::env::args_os().nth(1).as_deref());
    if std::env::var_os(names::VARIABLE).is_some() {
        return names::complete();
    }
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let ctx = Context::new(cli.global);
    let result = match cli.command {
        // The daemon creates its own runtime.
        #[cfg(feature = "daemon")]
        Command::Serve(args) => serve::serve(args),
        command => on_runtime(&ctx, command),
    };
    terminal::restore();
    ExitCode::from(match result {
        Ok(()) => 0,
        Err(stop) => report(&ctx, stop),
    })
}

/// The definition of the command line, for completions and the generated reference.
pub fn command() -> clap::Command {
    groups::with_grouped_help(Cli::command())
}

fn on_runtime(ctx: &Context, command: Command) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new("could not start").because(&error))?;
    // The exit codes of processes are distinguished from failures of this program.
    let runs_process = matches!(
        command,
        Command::Run(_)
            | Command::Exec(_)
            | Command::Code(_)
            | Command::Shell(_)
            | Command::Ssh(_)
            | Command::Attach(_)
            | Command::Wait(_)
    );
    let result = runtime.block_on(run(ctx, command));
    let result = if runs_process { result.map_err(|stop| stop.with_code(CODE_OWN_FAILURE)) } else { result };
    // A thread may still be blocked in a write without a reader; the process ends without waiting for it.
    runtime.shutdown_background();
    result
}

/// Prints the failure, and returns the exit code.
fn report(ctx: &Context, stop: Stop) -> u8 {
    let failure = match stop {
        Stop::Exit(code) => return code,
        Stop::BrokenPipe => return CODE_BROKEN_PIPE,
        Stop::Failed(failure) => failure,
    };
    let hint = match failure.unauthorized {
        true => Some(ctx.missing_key_hint().unwrap_or(WRONG_KEY_HINT).to_owned()),
        false => failure.hint.clone(),
    };
    let mut stderr = io::stderr().lock();
    let (error, plain) = if paint::colours(stderr.is_terminal()) {
        ("\u{1b}[1;31merror:\u{1b}[0m", "\u{1b}[1mhint:\u{1b}[0m")
    } else {
        ("error:", "hint:")
    };
    let _ = writeln!(stderr, "{error} {failure}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "{plain} {}", crate::print::escape::escape(&hint));
    }
    failure.code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        command().debug_assert();
    }

    /// Commands without `--json`, because they answer nothing, or with data that is not theirs: the output of processes, files,
    /// streams and scripts in formats of their own.
    const WITHOUT_JSON: &[&str] = &[
        // They answer nothing; the exit code tells the result.
        "start",
        "stop",
        "pause",
        "resume",
        "hibernate",
        "wake",
        "rename",
        "rm",
        "kill",
        "context rm",
        "context interrupt",
        "context restart",
        "service add",
        "service rm",
        "service restart",
        "env set",
        "env rm",
        "files write",
        "files rm",
        "files mv",
        "files mkdir",
        "files chmod",
        "race rm",
        "kv rm",
        "skill outcome",
        "skill rm",
        "artifact rm",
        "space rm",
        "egress approve",
        "egress refuse",
        "secret rm",
        "port publish",
        "port unpublish",
        "image untag",
        "volume rm",
        "volume snapshot rm",
        "key revoke",
        "key revoke-tokens",
        "ssh-key rm",
        // Output of processes, and connections to them.
        "logs",
        "attach",
        "ssh",
        "port-forward",
        "mcp",
        // Files in their own formats.
        "cp",
        "files cat",
        "artifact get",
        "memory export",
        "image export",
        "backup restore",
        "audit export",
        "ssh-config",
        // The daemon itself, and the help.
        "up",
        "down",
        "serve",
        "completion",
        "manual",
        "help",
    ];

    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, bool)>) {
        for nested in command.get_subcommands() {
            let path = format!("{path} {}", nested.get_name()).trim_start().to_owned();
            if nested.has_subcommands() {
                leaves(nested, &path, found);
            } else {
                let json = nested.get_arguments().any(|argument| argument.get_long() == Some("json"));
                found.push((path, json));
            }
        }
    }

    #[test]
    fn every_command_that_answers_something_can_answer_in_json() {
        let mut found = Vec::new();
        leaves(&command(), "", &mut found);
        assert!(found.len() > 100, "{found:?}");
        for (path, json) in &found {
            let exempt = WITHOUT_JSON.contains(&path.as_str());
            assert!(*json != exempt, "`burrow {path}`: --json {json}, listed as without {exempt}");
        }
        for path in WITHOUT_JSON {
            assert!(found.iter().any(|(known, _)| known == path), "`burrow {path}` does not exist");
        }
    }

    #[track_caller]
    fn check(line: &str, good: bool) {
        let arguments = std::iter::once("burrow").chain(line.split_whitespace());
        let parsed = Cli::try_parse_from(arguments);
        assert_eq!(parsed.is_ok(), good, "{line}: {:?}", parsed.err().map(|error| error.to_string()));
    }

    #[test]
    fn common_command_lines_are_accepted() {
        for line in [
            "run",
            "run --rm -- uname -a",
            "run --rm -it --name x -e A=b --ram 512M --cpu 1.5 -- bash -l",
            "create --name web --if-not-exists --label a=b --label c=d --ttl 2h --disk 10G --pids 512",
            "create web --ram 2G",
            "create -f spec.yaml --ephemeral",
            "exec web ls -la /",
            "exec -it web -- bash -l",
            "exec -d --timeout 30s -e A=b -w /tmp -u user web sleep 100",
            "exec web -c true",
            "shell web",
            "ls --label a=b --state running --json",
            "ls -qa",
            "ps web --running -q",
            "logs -f web exeabc",
            "attach --from 0 exeabc",
            "kill -s KILL web exeabc",
            "wait --timeout 5s exeabc",
            "stats web --json",
            "events -f --since 12 --sandbox web",
            "stop web other --grace 1s",
            "mcp",
            "mcp --sandbox web --image debian",
            "update web --ram 2G --label a=b --unlabel c",
            "env set web A=b C=d",
            "env rm web A",
            "run --rm --net none -- true",
            "create --allow example.com --allow tcp://db.example.com:5432 --set apt",
            "update web --net open",
            "update web --allow example.com --disallow *.example.org --disallow-set apt",
            "egress log web -f --denied --json",
            "egress explain web https://example.com/x",
            "egress test web example.com:443 --json",
            "egress show web",
            "egress allow web example.com *.example.org:443",
            "egress deny web example.com",
            "rm -f web other",
            "rename web site",
            "cp ./x web:/x",
            "cp - web:/x",
            "cp web:/x -",
            "files ls web /",
            "files write --mode 600 web /x",
            "files rm -r web /x",
            "service add web app --restart on-failure -- ./serve --port 80",
            "service add --replace web app -- ./serve",
            "port ls web --json",
            "port publish web 8080",
            "port unpublish web 8080",
            "port url web 8080 --expires 2h",
            "port-forward web 8080:80 5432 --address ::1",
            "open web 8080 --print",
            "key create ci --scope exec --sandbox web --ttl 24h",
            "key revoke keyabc",
            "image build --rebuild",
            "config show",
            "backup -o x.tar",
            "doctor --json",
            "serve --config /etc/burrow/config.toml",
            "up",
            "down --stop-sandboxes",
            "version --json --url http://[::1]:7700",
            "completion zsh",
            "help",
            "help snapshot create",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_host_sets_are_accepted() {
        for line in [
            "egress sets --json",
            "egress allow web --set pypi --set npm",
            "egress deny web --set pypi example.com",
            "create --net packages --set ours",
            "update web --net packages",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_secrets_and_the_audit_log_are_accepted() {
        for line in [
            "secret set key --from-env KEY --allow https://api.example.com/v1/** --basic user",
            "secret rotate key --from-file new-key",
            "secret rm key --force",
            "egress apply -f policy.yaml web other",
            "egress explain web https://example.com/x -X POST",
            "egress allow web api.example.com --secret key",
            "egress approvals web --json",
            "egress approve web 7",
            "egress refuse web --wait",
            "audit ls --action egress --outcome denied --since 2h --actor ci -n 5 --json",
            "audit tail -f --sandbox web",
            "audit verify --export a.jsonl --checkpoint a --checkpoint b --public-key k.pub --json",
            "audit export -o a.jsonl",
            "audit prove 7",
            "audit prove --grown-from 100 --json",
            "audit checkpoint",
            "audit key --json",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_sleep_and_snapshots_are_accepted() {
        for line in [
            "hibernate web other",
            "wake web",
            "start web --files-only",
            "snapshot create web --name before --description x --label a=b --files-only --expires 7d",
            "snapshot ls web --label a=b --kind policy --kind before-restore --all --json",
            "snapshot ls -q",
            "snapshot tree",
            "snapshot tree web --json",
            "snapshot inspect snpabc --json",
            "snapshot rm snpabc before",
            "snapshot rm --older-than 30d --sandbox web --yes",
            "snapshot restore before --in-place web --yes --files-only",
            "snapshot restore before --name web2 --label a=b",
            "snapshot policy web",
            "snapshot policy web --every 15m --keep 10 --files-only",
            "snapshot policy web --off",
            "fork web",
            "fork web --count 20 --name child --files-only --ephemeral --label a=b --ttl 1h --json",
            "tree",
            "tree web --snapshots --json",
            "gc",
            "gc --apply --unused-for 30d --yes --json",
            "create --sleep-after 5m --hibernate-after 1h --stop-after never --snapshot-every 15m --snapshot-keep 4",
            "create --from before --rotate-every 7d --name web",
            "run --from before --sleep-after never -- true",
            "update web --sleep-after 5m --hibernate-after never --stop-after 7d",
            "update web --rotate-every 7d --from before",
            "update web --rotate-every never --snapshot-every never",
            "exec --snapshot web -- make",
            "exec --rollback-on-failure web -- make install",
            "run --rollback-on-failure -- make install",
            "rm --snapshots web",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_memory_are_accepted() {
        for line in [
            "memory add web text --kind fact --meta a=1 --importance 0.9 --at 2h --once k --space team",
            "memory add web - --supersedes mem1 --link mem2 --artifact a.pdf --valid-to 2026-12-31",
            "memory add web --jsonl --file x.jsonl --session s",
            "memory add web --lines",
            "memory search web query -n 5 --why --kind fact --meta a=1 --since 7d --as-of before",
            "memory search web query -q --space own --space team --half-life 30d --min-score 0.2",
            "memory search web query --weights words=1,meaning=0.5 --cold --superseded --json",
            "memory context web",
            "memory context web query --budget 800 --as-of 1200 --json",
            "memory context web --messages -",
            "memory turn web turn.json --session s",
            "memory ls web --kind error --since 24h -n 3 --space team",
            "memory ls web --all -q --as-of 2h",
            "memory get web mem1 --text",
            "memory update web mem1 text --if-version 2 --meta a=1 --unmeta b",
            "memory forget web mem1 mem2",
            "memory forget web --older-than 90d --kind error --dry-run --json",
            "memory erase web --user alice --yes",
            "memory history web mem1",
            "memory export web -o x.jsonl --as-of before",
            "memory import web -",
            "memory sessions web --json",
            "memory stats space:ops --json",
            "memory merge web --from try --kv theirs --dry-run",
            "memory consolidate web --older-than 30d --keep 0.5 --budget 5s --dry-run",
            "memory check web --json",
            "memory rebuild web",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_keys_skills_artifacts_and_spaces_are_accepted() {
        for line in [
            "kv get web plan/step --as-of before --json",
            "kv set web plan/step -3 --ttl 5m --if-absent",
            "kv set web plan --file -",
            "kv cas web plan/step 4 --version 17",
            "kv cas web owner me --absent",
            "kv rm web a b --if-version 3",
            "kv ls web",
            "kv ls web plan/ -q",
            "kv incr web n --by -2.5 --ttl 1h",
            "kv batch web --file x",
            "kv watch web plan/ --since 17 --count 1 --json",
            "kv history web plan",
            "skill add web deploy --file x.yaml",
            "skill add web clean --run a --run b --param host --param port=80",
            "skill promote web --name deploy --last 4 -p host=db-2",
            "skill promote web --name deploy exea exeb",
            "skill search web query",
            "skill ls web --as-of 3 --json",
            "skill show web deploy --version 2",
            "skill versions web deploy",
            "skill run web deploy -p host=db-3 --in other --version 2 --json",
            "skill outcome web deploy --failed --exit-code -1 --detail x --took 3s",
            "skill rm web deploy",
            "artifact put web report.pdf --meta q=3",
            "artifact put web - --name x --type text/plain",
            "artifact get web x --version 1 -o - --from 3 --to 5",
            "artifact ls web reports/",
            "artifact versions web x",
            "artifact rm web x y",
            "space create ops --description x --label a=b",
            "space ls -q",
            "space inspect ops --json",
            "space update ops --name ops2 --unlabel a",
            "space rm ops --force --yes",
            "create --memory ops --attach team --attach book:rw --remember errors",
            "run --rm --memory ops --remember all -- true",
            "update web --memory own --attach team:rw --unattach book --remember off",
            "exec --related web -- false",
            "run --no-related -- false",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn command_lines_about_volumes_are_accepted_or_rejected() {
        for line in [
            "volume create data --size 20G --json",
            "volume create copy --from vsnabc",
            "volume ls -q",
            "volume inspect data --json",
            "volume snapshot create data --name good",
            "volume snapshot ls data -q",
            "volume snapshot rm data good other",
            "volume restore data good --yes",
            "volume rm data other --snapshots -y",
            "create --volume data:/data --volume models:/models:ro",
            "run --rm --volume data:/data -- true",
            "update web --volume data:/data:ro",
            "update web --no-volumes",
        ] {
            check(line, true);
        }
        for line in [
            "volume",
            "volume create",
            "volume rm",
            "volume restore data",
            "volume ls -q --json",
            "create --volume data",
            "create --volume data:/proc/x",
            "update web --volume data:/data --no-volumes",
        ] {
            check(line, false);
        }
    }

    #[test]
    fn invalid_command_lines_about_memory_are_rejected() {
        for line in [
            "memory",
            "memory add",
            "memory add web text --importance 2",
            "memory add web text --file x",
            "memory add web --lines --jsonl",
            "memory search web",
            "memory search web query -n 0",
            "memory search web query -n 201",
            "memory context web --budget 10",
            "memory merge web",
            "memory merge web --from x --kv mine",
            "kv get web",
            "kv cas web a 1",
            "kv cas web a 1 --absent --version 2",
            "kv incr web n --by much",
            "skill add web deploy",
            "skill promote web --name x",
            "skill promote web --name x exea --last 3",
            "skill outcome web deploy",
            "artifact put web",
            "space create",
            "create --attach team:write",
            "create --remember some",
            "exec --related --no-related web -- false",
        ] {
            check(line, false);
        }
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            "",
            "nonsense",
            "exec",
            "exec web",
            "exec web -c true ls",
            "create --ram 5",
            "create --ttl soon",
            "create --label x",
            "create web --name other",
            "create --memory 2G",
            "run --nmae x",
            "exec web --nmae x",
            "service add web app --nmae x",
            "run -e 1A=b",
            "ls --state asleep",
            "kill -s NOPE x",
            "hibernate",
            "snapshot create",
            "snapshot create web --expires soon",
            "snapshot ls --kind weekly",
            "snapshot rm",
            "snapshot restore before --in-place web --name other",
            "snapshot policy web --every 15m --off",
            "snapshot policy web --keep 0",
            "fork web --count 0",
            "fork web --count 65",
            "gc --unused-for always",
            "create --sleep-after 10ms",
            "create --snapshot-keep 4",
            "update web --from before",
            "run --rm --rollback-on-failure -- true",
            "env set web",
            "create --net wide",
            "create --allow *",
            "create --allow https://example.com/path",
            "update web --disallow",
            "egress allow web",
            "egress allow web example.com --set pypi --secret key",
            "egress explain web",
            "service add web app",
            "port publish web 0",
            "port publish web 65536",
            "port-forward web",
            "open web",
            "key create ci --scope root",
            "rename web",
            "completion tcsh",
        ] {
            check(line, false);
        }
    }
}

//! Finds an exec: by id, by the first characters of its id, or as the latest exec of a sandbox.

use burrow_api::{ErrorCode, Exec, ExecState};
use burrow_client::SandboxQuery;
use burrow_model::ExecId;
use futures_util::StreamExt as _;

use crate::commands::prelude::*;

/// Sandboxes queried concurrently: enough to hide the round trip, few enough not to load the daemon.
const LOOKUPS_AT_ONCE: usize = 8;

#[derive(Clone, Debug, Args)]
pub(crate) struct ExecTarget {
    /// Id of an exec, or a sandbox (for its latest exec, unless EXEC is given)
    #[arg(value_name = "SANDBOX|EXEC")]
    target: String,
    /// Exec of the sandbox
    #[arg(value_name = "EXEC")]
    exec: Option<String>,
}

impl ExecTarget {
    pub(crate) async fn find(&self, client: &Client) -> Result<Exec, Stop> {
        match &self.exec {
            Some(exec) => of_sandbox(client, &self.target, exec).await,
            None if self.target.parse::<ExecId>().is_ok() => anywhere(client, &self.target).await,
            None => latest_or_prefix(client, &self.target).await,
        }
    }

    /// The sandbox, when the target cannot be an exec.
    pub(crate) fn sandbox(&self) -> &str {
        &self.target
    }
}

async fn of_sandbox(client: &Client, sandbox: &str, exec: &str) -> Result<Exec, Stop> {
    let what = || format!("could not find exec `{exec}` of sandbox `{sandbox}`");
    if exec.parse::<ExecId>().is_ok() {
        return client.exec(sandbox, exec).await.or_fail(what);
    }
    let execs = client.execs(sandbox).await.or_fail(what)?;
    only_one(execs.into_iter().filter(|known| known.id.starts_with(exec)).collect(), exec)
}

async fn anywhere(client: &Client, exec: &str) -> Result<Exec, Stop> {
    match client.find_exec(exec).await {
        // A daemon without that route is queried sandbox by sandbox; so is one that has no record of the exec, since
        // only the sandbox knows the execs of its services.
        Err(error) if error.is_not_found() || error.code() == Some(ErrorCode::NoSuchRoute) => {
            scan(client, exec).await
        }
        answer => answer.or_fail(|| format!("could not find exec `{exec}`")),
    }
}

async fn latest_or_prefix(client: &Client, target: &str) -> Result<Exec, Stop> {
    let what = || format!("could not list the execs of sandbox `{target}`");
    let execs = match client.execs(target).await {
        Err(error) if error.is_not_found() && target.starts_with(ExecId::PREFIX) => {
            return scan(client, target).await;
        }
        answer => answer.or_fail(what)?,
    };
    latest(execs).ok_or_else(|| {
        Failure::new(format!("sandbox `{target}` has run no exec yet"))
            .hint(format!("start one with `burrow exec {target} -- COMMAND`"))
            .into()
    })
}

/// The newest of those that run, else the newest of all.
fn latest(execs: Vec<Exec>) -> Option<Exec> {
    execs.into_iter().max_by_key(|exec| (exec.state == ExecState::Running, exec.started_ms))
}

/// Queries each sandbox; this wakes none of them.
async fn scan(client: &Client, prefix: &str) -> Result<Exec, Stop> {
    let what = || format!("could not search for exec `{prefix}`");
    let whole = prefix.parse::<ExecId>().is_ok();
    let sandboxes = client.all_sandboxes(&SandboxQuery::default()).await.or_fail(what)?;
    let lookups = sandboxes.into_iter().map(|sandbox| async move {
        // An exec that is not listed, such as that of a service, is still found by its full id.
        let found = if whole {
            client.exec(&sandbox.id, prefix).await.map(|exec| vec![exec])
        } else {
            client.execs(&sandbox.id).await
        };
        match found {
            // The sandbox may have been deleted meanwhile.
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            found => found,
        }
    });
    let mut lookups = futures_util::stream::iter(lookups).buffer_unordered(LOOKUPS_AT_ONCE);
    let mut found = Vec::new();
    while let Some(execs) = lookups.next().await {
        let execs = execs.or_fail(what)?;
        found.extend(execs.into_iter().filter(|exec| exec.id.starts_with(prefix)));
    }
    only_one(found, prefix)
}

fn only_one(mut found: Vec<Exec>, prefix: &str) -> Result<Exec, Stop> {
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => fail(
            format!("could not find an exec `{prefix}`"),
            "`burrow ps SANDBOX` lists the execs of a sandbox",
        ),
        count => fail(
            format!("ambiguous id prefix `{prefix}`: matches {count} execs"),
            "give more characters of the id",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interact::outcome::example_exec;

    fn exec(id: &str, state: ExecState, started_ms: u64) -> Exec {
        Exec { id: id.to_owned(), state, started_ms, ..example_exec() }
    }

    #[test]
    fn a_running_exec_is_preferred_to_a_newer_one_that_ended() {
        let execs = vec![
            exec("a", ExecState::Running, 1),
            exec("b", ExecState::Running, 2),
            exec("c", ExecState::Ended, 3),
        ];
        assert_eq!(latest(execs).unwrap().id, "b");
        assert!(latest(Vec::new()).is_none());
    }

    #[test]
    fn a_prefix_must_match_one_exec() {
        assert_eq!(only_one(vec![exec("exea", ExecState::Ended, 0)], "exe").unwrap().id, "exea");
        assert!(only_one(Vec::new(), "exe").is_err());
        assert!(
            only_one(vec![exec("exea", ExecState::Ended, 0), exec("exeb", ExecState::Ended, 0)], "exe")
                .is_err()
        );
    }
}

//! Creates a sandbox from flags and a specification, from an image or from a snapshot.

use burrow_api::{CreateSandbox, NetworkRequest, Sandbox, SandboxFromSnapshot, UpdateNetwork, UpdateSandbox};
use burrow_client::CreateOutcome;

use super::life::lacks_snapshot;
use crate::commands::prelude::*;

/// `from`: a snapshot to start from instead of an image.
pub(super) async fn create_sandbox(
    client: &Client,
    request: &CreateSandbox,
    from: Option<&str>,
) -> Result<(CreateOutcome, Sandbox), Stop> {
    let what = || match &request.name {
        Some(name) => format!("could not create sandbox `{name}`"),
        None => "could not create a sandbox".to_owned(),
    };
    if lacks_snapshot(request.rotate.as_ref()) {
        return fail(
            format!("{}: a rotation needs a snapshot to restore", what()),
            "add --from SNAPSHOT; `burrow snapshot ls` lists them",
        );
    }
    let Some(snapshot) = from else {
        return client.create_sandbox_or_find(request).await.or_fail(what);
    };
    if let Some(part) = fixed_by_snapshot(request) {
        return fail(
            format!("{}: with --from, `{part}` comes from the snapshot", what()),
            "omit it, or omit --from",
        );
    }
    let _working = Progress::working(&format!("restoring {snapshot}"));
    let sandbox = client.create_sandbox_from(snapshot, &from_snapshot(request)).await.or_fail(what)?;
    let update = rest(request);
    if update == UpdateSandbox::default() {
        return Ok((CreateOutcome::New, sandbox));
    }
    match client.update_sandbox(&sandbox.id, &update).await.or_fail(what) {
        Ok(sandbox) => Ok((CreateOutcome::New, sandbox)),
        Err(stop) => {
            // Do not leave a sandbox that only partly matches the request.
            let _ = client.delete_sandbox(&sandbox.id).await;
            Err(stop)
        }
    }
}

/// The first requested property that the snapshot determines.
fn fixed_by_snapshot(request: &CreateSandbox) -> Option<&'static str> {
    [
        ("image", request.image.is_some()),
        ("driver", request.driver.is_some()),
        ("workdir", request.workdir.is_some()),
        ("user", request.user.is_some()),
        ("services", !request.services.is_empty()),
        ("if_not_exists", request.if_not_exists),
        ("volumes", !request.volumes.is_empty()),
    ]
    .into_iter()
    .find_map(|(part, given)| given.then_some(part))
}

fn from_snapshot(request: &CreateSandbox) -> SandboxFromSnapshot {
    SandboxFromSnapshot {
        name: request.name.clone(),
        files_only: false,
        labels: Some(request.labels.clone()).filter(|labels| !labels.is_empty()),
        ephemeral: request.ephemeral,
        ttl_seconds: request.ttl_seconds,
        // Not afterwards: the processes of the snapshot would run with another policy until then.
        network: request.network.clone().map(network),
    }
}

/// The properties that are set after the sandbox was created from the snapshot.
fn rest(request: &CreateSandbox) -> UpdateSandbox {
    UpdateSandbox {
        limits: request.limits,
        env: request.env.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect(),
        sleep: request.sleep,
        snapshot_policy: request.snapshot_policy,
        rotate: request.rotate.clone(),
        memory: request.memory.clone(),
        ..UpdateSandbox::default()
    }
}

fn network(request: NetworkRequest) -> UpdateNetwork {
    let NetworkRequest { mode, allow, sets, requests, deny } = request;
    UpdateNetwork { mode, allow, sets, requests, deny, ..UpdateNetwork::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::{LimitsRequest, NetworkMode, SleepRequest};

    #[test]
    fn properties_of_the_snapshot_are_rejected_and_the_others_are_set_afterwards() {
        let mut request = CreateSandbox {
            name: Some("web".to_owned()),
            limits: Some(LimitsRequest { ram_mib: Some(64), ..LimitsRequest::default() }),
            env: [("A".to_owned(), "b".to_owned())].into(),
            sleep: Some(SleepRequest { pause_after_seconds: Some(5), ..SleepRequest::default() }),
            ..CreateSandbox::default()
        };
        assert_eq!(fixed_by_snapshot(&request), None);
        let rest = rest(&request);
        assert_eq!((rest.limits, rest.sleep), (request.limits, request.sleep));
        assert_eq!(rest.env["A"].as_deref(), Some("b"));
        assert_eq!(rest.name, None, "the name is given at creation");
        assert_eq!(from_snapshot(&request).labels, None, "the snapshot's stay");
        assert_eq!(from_snapshot(&request).network, None);
        request.image = Some("debian".to_owned());
        assert_eq!(fixed_by_snapshot(&request), Some("image"));
    }

    #[test]
    fn the_network_is_given_at_creation() {
        let network = NetworkRequest { mode: Some(NetworkMode::None), ..NetworkRequest::default() };
        let request = CreateSandbox { network: Some(network), ..CreateSandbox::default() };
        let given = UpdateNetwork { mode: Some(NetworkMode::None), ..UpdateNetwork::default() };
        assert_eq!(from_snapshot(&request).network, Some(given));
        assert_eq!(rest(&request), UpdateSandbox::default());
    }

    #[test]
    fn a_plain_copy_needs_nothing_set_afterwards() {
        let request = CreateSandbox { name: Some("web".to_owned()), ..CreateSandbox::default() };
        assert_eq!(rest(&request), UpdateSandbox::default());
    }
}

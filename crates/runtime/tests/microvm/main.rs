//! The microVM driver on a real kernel, emulated: boots, pauses, dumps, restores. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod forks;
mod isolation;
mod rates;
mod reader;
mod support;

use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Limits, MountMode, MountPath, SandboxId};
use burrow_network::Attachment;
use burrow_runtime::conformance::{self, Fixture};
use burrow_runtime::{Ability, BootOptions, Machine, Runtime};
use support::Host;

struct MicrovmFixture {
    host: Host,
}

#[async_trait]
impl Fixture for MicrovmFixture {
    fn runtime(&self) -> &dyn Runtime {
        &*self.host.runtime
    }

    async fn options(&self, limits: Limits) -> BootOptions {
        self.host.plot().await.options(limits)
    }

    async fn end_by_itself(&self, _id: &SandboxId, machine: &Machine) {
        support::kill(machine.pid);
    }

    async fn images(&self) -> PathBuf {
        self.host.images()
    }

    async fn attachment_later(&self) -> Attachment {
        self.host.attach().await.attachment
    }

    async fn source(&self) -> PathBuf {
        self.host.images()
    }

    async fn sees(&self, _id: &SandboxId, machine: &Machine, target: &MountPath) -> Option<MountMode> {
        unreachable!("the driver has no volumes: {machine:?} has no mount at {target}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_microvm_driver_conforms() {
    let real = MicrovmFixture { host: Host::new() };
    assert_eq!(real.host.runtime.capabilities().available, Ability::Yes);
    conformance::all(&real).await;
    assert_eq!(real.host.runtime.inventory().await.unwrap(), []);
}

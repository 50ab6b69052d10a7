//! What is different between sandboxes, snapshots and images, and how the work of one comes into another.

use burrow_api::{Diff, DiffRequest, MergeRace, MergeSandbox, Merged, PastMerges, Race, Races, StartRace};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{Client, ClientError};

fn race_path(race: &str) -> Path {
    Path::new("/v1/races").part(race)
}

impl Client {
    /// What is different in one tree of files from another.
    pub async fn diff(&self, request: &DiffRequest) -> Result<Diff, ClientError> {
        self.send_json(Method::POST, Path::new("/v1/diff"), request).await
    }

    /// Brings the work of a fork into the sandbox it came from. Where there are conflicts, nothing is changed.
    pub async fn merge_sandbox(&self, parent: &str, request: &MergeSandbox) -> Result<Merged, ClientError> {
        self.send_json(Method::POST, sandbox_path(parent).fixed("merge"), request).await
    }

    /// Begins a race, which goes on by itself.
    pub async fn start_race(&self, request: &StartRace) -> Result<Race, ClientError> {
        Ok(self.create(Path::new("/v1/races"), request).await?.1)
    }

    /// Races, newest first.
    pub async fn races(&self) -> Result<Races, ClientError> {
        self.get(Path::new("/v1/races")).await
    }

    /// How a race stands; with `after`, once its version is greater than that, or so many milliseconds later.
    pub async fn race(&self, race: &str, after: Option<(u64, u64)>) -> Result<Race, ClientError> {
        let path = race_path(race).query_if("after", after.map(|(version, _)| version));
        self.get(path.query_if("wait_ms", after.map(|(_, wait_ms)| wait_ms))).await
    }

    /// Merges the winner of a race that is over.
    pub async fn merge_race(&self, race: &str, request: &MergeRace) -> Result<Merged, ClientError> {
        self.send_json(Method::POST, race_path(race).fixed("merge"), request).await
    }

    /// Ends a race, deletes its attempts and forgets it.
    pub async fn delete_race(&self, race: &str) -> Result<(), ClientError> {
        self.send_for_nothing(Call::new(Method::DELETE, race_path(race))).await
    }

    /// What was merged into a sandbox.
    pub async fn merges(&self, sandbox: &str) -> Result<PastMerges, ClientError> {
        self.get(sandbox_path(sandbox).fixed("merges")).await
    }
}

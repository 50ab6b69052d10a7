//! Differences between sandboxes, snapshots and images; merges and races.

use burrow_api::{
    Diff, DiffRequest, MergeRace, MergeReport, MergeSandbox, PastMerges, Race, Races, StartRace,
};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{Client, ClientError};

fn race_path(race: &str) -> Path {
    Path::new("/v1/races").part(race)
}

impl Client {
    /// The differences between two file trees.
    pub async fn diff(&self, request: &DiffRequest) -> Result<Diff, ClientError> {
        self.send_json(Method::POST, Path::new("/v1/diff"), request).await
    }

    /// Merges the changes of a fork into the sandbox that it was forked from. If there are conflicts, nothing is changed.
    pub async fn merge_sandbox(
        &self,
        parent: &str,
        request: &MergeSandbox,
    ) -> Result<MergeReport, ClientError> {
        self.send_json(Method::POST, sandbox_path(parent).fixed("merge"), request).await
    }

    /// Starts a race, which continues in the background.
    pub async fn start_race(&self, request: &StartRace) -> Result<Race, ClientError> {
        Ok(self.create(Path::new("/v1/races"), request).await?.1)
    }

    /// Races, newest first.
    pub async fn races(&self) -> Result<Races, ClientError> {
        self.get(Path::new("/v1/races")).await
    }

    /// The state of a race. With `after`: as soon as its version is greater, or after the given milliseconds.
    pub async fn race(&self, race: &str, after: Option<(u64, u64)>) -> Result<Race, ClientError> {
        let path = race_path(race).query_if("after", after.map(|(version, _)| version));
        self.get(path.query_if("wait_ms", after.map(|(_, wait_ms)| wait_ms))).await
    }

    /// Merges the winner of a finished race.
    pub async fn merge_race(&self, race: &str, request: &MergeRace) -> Result<MergeReport, ClientError> {
        self.send_json(Method::POST, race_path(race).fixed("merge"), request).await
    }

    /// Ends a race, and deletes its attempts and its record.
    pub async fn delete_race(&self, race: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, race_path(race))).await
    }

    /// The merges into a sandbox.
    pub async fn merges(&self, sandbox: &str) -> Result<PastMerges, ClientError> {
        self.get(sandbox_path(sandbox).fixed("merges")).await
    }
}

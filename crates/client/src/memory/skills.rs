//! Skills: save, find, run, and record outcomes.

use burrow_api::memory::{
    FindSkills, FoundSkills, NewSkill, PromoteSkill, RunSkill, Skill, SkillOutcome, SkillRun, SkillRunStep,
};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};

use super::Memory;
use crate::body::full;
use crate::client::Call;
use crate::{ByteStream, ClientError, NdjsonStream};

impl Memory {
    /// Stores a new skill, or a new version of one.
    pub async fn skill_put(&self, skill: &NewSkill) -> Result<Skill, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("skills")), skill).await
    }

    pub async fn skills(&self) -> Result<Vec<Skill>, ClientError> {
        self.client.all_pages(self.read_path(self.route("skills"))).await
    }

    /// The newest version if none is given.
    pub async fn skill(&self, name: &str, version: Option<u64>) -> Result<Skill, ClientError> {
        self.client.get(self.read_path(self.route("skills").part(name)).query_if("version", version)).await
    }

    /// Oldest first.
    pub async fn skill_versions(&self, name: &str) -> Result<Vec<Skill>, ClientError> {
        self.client.get(self.read_path(self.route("skills").part(name).fixed("versions"))).await
    }

    pub async fn skill_forget(&self, name: &str) -> Result<(), ClientError> {
        let path = self.write_path(self.route("skills").part(name));
        self.client.send_no_content(Call::new(Method::DELETE, path)).await
    }

    pub async fn skill_search(&self, find: &FindSkills) -> Result<FoundSkills, ClientError> {
        self.client.send_json(Method::POST, self.read_all_spaces(self.route("skills/search")), find).await
    }

    /// Creates a skill from commands that were run.
    pub async fn skill_promote(&self, promote: &PromoteSkill) -> Result<Skill, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("skills/promote")), promote).await
    }

    /// Runs a skill to its end.
    pub async fn skill_run(&self, name: &str, run: &RunSkill) -> Result<SkillRun, ClientError> {
        let run = RunSkill { stream: false, ..run.clone() };
        self.client
            .send_json(Method::POST, self.write_path(self.route("skills").part(name).fixed("run")), &run)
            .await
    }

    /// The same, step by step; the stream ends with `End` or `Error`.
    pub async fn skill_run_steps(
        &self,
        name: &str,
        run: &RunSkill,
    ) -> Result<NdjsonStream<SkillRunStep>, ClientError> {
        let path = self.write_path(self.route("skills").part(name).fixed("run"));
        let shown = path.shown();
        let run = RunSkill { stream: true, ..run.clone() };
        let bytes =
            serde_json::to_vec(&run).map_err(|source| ClientError::Encode { path: shown.clone(), source })?;
        let mut call = Call::new(Method::POST, path);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = full(Bytes::from(bytes));
        let response = self.client.send(call).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }

    /// Records the outcome of a run that was not made with Burrow.
    pub async fn skill_outcome(
        &self,
        name: &str,
        version: Option<u64>,
        outcome: &SkillOutcome,
    ) -> Result<Skill, ClientError> {
        let path =
            self.write_path(self.route("skills").part(name).fixed("outcome")).query_if("version", version);
        self.client.send_json(Method::POST, path, outcome).await
    }
}

//! Prompts that users select in their client.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{PromptMessage, Role};
use rmcp::{prompt, prompt_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::server::Server;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    /// What is to be done.
    task: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attempts {
    /// What is to be done.
    task: String,
    /// How many approaches to try; 3 if absent.
    attempts: Option<String>,
}

fn user(text: String) -> Vec<PromptMessage> {
    vec![PromptMessage::new_text(Role::User, text)]
}

#[prompt_router(vis = "pub(crate)")]
impl Server {
    /// Continues a task where the last conversation left off.
    #[prompt(
        name = "continue",
        description = "Continue a task: read the context first, and remember what you learn"
    )]
    async fn continue_task(&self, Parameters(task): Parameters<Task>) -> Vec<PromptMessage> {
        user(format!(
            "{}\n\nFirst call `memory_recall` for what is known about it, and `memory_context`, if you have it, for the state of the work. Take a \
            `sandbox_snapshot` before anything risky. When you are done, `memory_remember` what the next conversation should know, and \
            save what worked as a skill if you have `skill_save`.",
            task.task
        ))
    }

    /// Tries several approaches in forks of the sandbox, and keeps the best.
    #[prompt(
        name = "attempts",
        description = "Try several approaches in forks of the sandbox, and keep the best"
    )]
    async fn attempts(&self, Parameters(wanted): Parameters<Attempts>) -> Vec<PromptMessage> {
        let count = wanted.attempts.and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(3).clamp(2, 8);
        user(format!(
            "{}\n\nUse `sandbox_fork` with count {count}, try a different approach in each copy (pass its id as `sandbox`), and compare \
            the results. `sandbox_merge` the best one into your own sandbox, delete the forks, and `memory_remember` why it was the best.",
            wanted.task
        ))
    }

    /// Records what was learned in a conversation.
    #[prompt(
        name = "wrap-up",
        description = "Record what was learned in this conversation, for the next one"
    )]
    async fn wrap_up(&self) -> Vec<PromptMessage> {
        user(
            "Review this conversation. `memory_remember` each fact, decision and open question that the next one should \
            know, one by one; if you have `skill_save`, save each sequence of commands that worked as a skill; if you have \
            `sandbox_hibernate`, call it at the end."
                .to_owned(),
        )
    }
}

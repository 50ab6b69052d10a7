//! Prompts that people pick in their client.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{PromptMessage, Role};
use rmcp::{prompt, prompt_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::server::Server;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    /// What shall be done.
    task: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attempts {
    /// What shall be done.
    task: String,
    /// How many ways to try; 3 when absent.
    attempts: Option<String>,
}

fn user(text: String) -> Vec<PromptMessage> {
    vec![PromptMessage::new_text(Role::User, text)]
}

#[prompt_router(vis = "pub(crate)")]
impl Server {
    /// Take up a task where the last conversation left it.
    #[prompt(
        name = "continue",
        description = "Go on with a task: look back first, and remember what you learn"
    )]
    async fn go_on(&self, Parameters(task): Parameters<Task>) -> Vec<PromptMessage> {
        user(format!(
            "{}\n\nFirst call `context` to see where the work stood, and `recall` for what is known about it. Take a \
             `snapshot` before anything risky. When you are done, `remember` what the next conversation should know, and \
             save what worked as a skill.",
            task.task
        ))
    }

    /// Try several ways in forks of the machine, and keep the best.
    #[prompt(name = "attempts", description = "Try several ways in forks of the machine, and keep the best")]
    async fn attempts(&self, Parameters(wanted): Parameters<Attempts>) -> Vec<PromptMessage> {
        let count = wanted.attempts.and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(3).clamp(2, 8);
        user(format!(
            "{}\n\nUse `fork` with count {count}, try a different way in each copy (give its id as `sandbox`), and compare \
             how they came out. `merge` the best one into your own machine, delete the forks, and `remember` why it won.",
            wanted.task
        ))
    }

    /// Write down what a conversation has taught.
    #[prompt(
        name = "wrap-up",
        description = "Write down what this conversation has taught, for the next one"
    )]
    async fn wrap_up(&self) -> Vec<PromptMessage> {
        user(
            "Look back over this conversation. `remember` each fact, decision and open question that the next one should \
             know, one by one; save each sequence of commands that worked as a skill; then put the machine to `sleep`."
                .to_owned(),
        )
    }
}

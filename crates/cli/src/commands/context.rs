//! `burrow context`: the language processes in which code runs.

use burrow_api::{CodeContext, CreateCodeContext};

use crate::commands::prelude::*;

/// Manage code contexts: language processes that keep variables
///
/// `burrow code` runs code in a context. The context `default` always exists.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  id=$(burrow context create lab --language bash)
  burrow code lab --context $id -e 'cd /srv; ls'
  burrow context ls lab
  burrow context restart lab default             discard all variables")]
pub(crate) enum ContextCommand {
    /// Create a context and print its id
    Create(CreateArgs),
    /// List contexts
    Ls {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// Remove a context and its variables
    Rm { sandbox: String, context: String },
    /// Interrupt the code that runs in a context; its variables are kept
    Interrupt { sandbox: String, context: String },
    /// Restart a context without variables
    Restart { sandbox: String, context: String },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Language, such as python, javascript or bash; the image determines which are available
    #[arg(short = 'l', long, value_name = "NAME", default_value = "python")]
    language: String,
    /// Working directory; the user's home by default
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Environment variable; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Print the context as JSON instead of its id
    #[arg(long)]
    json: bool,
    sandbox: String,
}

pub(crate) async fn run(ctx: &Context, command: ContextCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        ContextCommand::Create(args) => create(ctx, args).await,
        ContextCommand::Ls { sandbox, format } => {
            let contexts = client.code_contexts(&sandbox).await;
            let contexts =
                contexts.or_fail(|| format!("could not list the contexts of sandbox `{sandbox}`"))?;
            format.table(&["CONTEXT", "LANGUAGE", "STATE", "RUNS", "DIRECTORY"], &contexts, row)
        }
        ContextCommand::Rm { sandbox, context } => {
            let what = || format!("could not remove context `{context}` of sandbox `{sandbox}`");
            client.delete_code_context(&sandbox, &context).await.or_fail(what)
        }
        ContextCommand::Interrupt { sandbox, context } => {
            let what = || format!("could not interrupt context `{context}` of sandbox `{sandbox}`");
            client.interrupt_code(&sandbox, &context).await.or_fail(what)
        }
        ContextCommand::Restart { sandbox, context } => {
            let what = || format!("could not restart context `{context}` of sandbox `{sandbox}`");
            client.restart_code_context(&sandbox, &context).await.or_fail(what).map(drop)
        }
    }
}

async fn create(ctx: &Context, args: CreateArgs) -> Result<(), Stop> {
    let request = CreateCodeContext {
        language: Some(args.language),
        cwd: args.workdir,
        env: args.env.into_iter().collect(),
    };
    let made = ctx.client()?.create_code_context(&args.sandbox, &request).await;
    let made = made.or_fail(|| format!("could not create a context in sandbox `{}`", args.sandbox))?;
    Format { json: args.json }.show(&made, |made| print::line(&made.id))
}

fn row(context: &CodeContext) -> Vec<String> {
    vec![
        context.id.clone(),
        context.language.clone(),
        print::json::word(context.state),
        context.execution_count.to_string(),
        context.cwd.clone(),
    ]
}

//! Runs code in contexts that keep their variables.

use burrow_api::{CodeContext, CodeEvent, CodeRun, CreateCodeContext, RunCode};
use http::Method;

use crate::client::{Call, json_call};
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream};

fn context_path(sandbox: &str, context: &str) -> Path {
    sandbox_path(sandbox).fixed("contexts").part(context)
}

impl Client {
    pub async fn create_code_context(
        &self,
        sandbox: &str,
        request: &CreateCodeContext,
    ) -> Result<CodeContext, ClientError> {
        self.send_json(Method::POST, sandbox_path(sandbox).fixed("contexts"), request).await
    }

    pub async fn code_contexts(&self, sandbox: &str) -> Result<Vec<CodeContext>, ClientError> {
        self.all_pages(sandbox_path(sandbox).fixed("contexts")).await
    }

    pub async fn code_context(&self, sandbox: &str, context: &str) -> Result<CodeContext, ClientError> {
        self.get(context_path(sandbox, context)).await
    }

    pub async fn delete_code_context(&self, sandbox: &str, context: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, context_path(sandbox, context))).await
    }

    /// Interrupts the current run and discards the queued ones; variables are kept.
    pub async fn interrupt_code(&self, sandbox: &str, context: &str) -> Result<(), ClientError> {
        let path = context_path(sandbox, context).fixed("interrupt");
        self.send_no_content(Call::new(Method::POST, path)).await
    }

    /// Restarts the context, without its variables.
    pub async fn restart_code_context(
        &self,
        sandbox: &str,
        context: &str,
    ) -> Result<CodeContext, ClientError> {
        let path = context_path(sandbox, context).fixed("restart");
        self.send_upload(Call::new(Method::POST, path)).await
    }

    /// Runs code and streams the results. Closing the stream interrupts the run.
    pub async fn run_code(
        &self,
        sandbox: &str,
        context: &str,
        request: &RunCode,
    ) -> Result<NdjsonStream<CodeEvent>, ClientError> {
        let path = context_path(sandbox, context).fixed("run");
        let shown = path.shown();
        let request = RunCode { wait: false, ..request.clone() };
        let response = self.send(json_call(Method::POST, path, &request)?()).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }

    /// Runs code and waits for its end. `request.wait` is ignored; see [`Client::run_code`].
    pub async fn run_code_to_end(
        &self,
        sandbox: &str,
        context: &str,
        request: &RunCode,
    ) -> Result<CodeRun, ClientError> {
        let request = RunCode { wait: true, ..request.clone() };
        let path = context_path(sandbox, context).fixed("run");
        // Never repeated: the code may have run.
        self.send_upload(json_call(Method::POST, path, &request)?()).await
    }
}

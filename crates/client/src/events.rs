//! Events of the host, as a stream that resumes after a dropped connection.

use burrow_api::Event;
use http::Method;
use std::time::Duration;

use crate::client::Call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream};

/// Attempts to resume a stream; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only events after this sequence number.
    pub since: Option<u64>,
    /// Continue with new events.
    pub follow: bool,
    /// Name or id.
    pub sandbox: Option<String>,
}

/// Events in order and without duplicates.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    query: EventQuery,
    lines: Option<NdjsonStream<Event>>,
    failures: u32,
}

impl Client {
    pub async fn events(&self, query: EventQuery) -> Result<EventStream, ClientError> {
        let lines = Some(self.event_lines(&query).await?);
        Ok(EventStream { client: self.clone(), query, lines, failures: 0 })
    }

    async fn event_lines(&self, query: &EventQuery) -> Result<NdjsonStream<Event>, ClientError> {
        let path = Path::new("/v1/events")
            .query_if("since", query.since)
            .flag("follow", query.follow)
            .query_if("sandbox", query.sandbox.as_ref());
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

impl EventStream {
    /// The next event; `None` after the last past event, unless the stream follows.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(event)) => {
                    self.failures = 0;
                    self.query.since = Some(event.seq);
                    return Ok(Some(event));
                }
                Ok(None) if !self.query.follow => return Ok(None),
                // A followed stream does not end by itself: the daemon is shutting down.
                Ok(None) => ClientError::Truncated { path: "/v1/events".to_owned() },
                Err(error) => error,
            };
            self.lines = None;
            if !self.query.follow || !error.is_transient() || self.failures >= RESUMES_MAX {
                return Err(error);
            }
            self.failures += 1;
            tokio::time::sleep(RESUME_PAUSE).await;
        }
    }

    async fn step(&mut self) -> Result<Option<Event>, ClientError> {
        if self.lines.is_none() {
            self.lines = Some(self.client.event_lines(&self.query).await?);
        }
        self.lines.as_mut().expect("it was just set").next().await
    }
}

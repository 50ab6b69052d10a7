//! Keys and values, and their changes as a stream that resumes after a dropped connection.

use std::time::Duration;

use burrow_api::memory::{KvBatch, KvChanged, KvEvent, KvIncrement, KvItem, KvOperation, KvSet, KvVersion};
use burrow_api::{ErrorCode, Page};
use http::Method;

use super::Memory;
use crate::client::Call;
use crate::{ByteStream, ClientError, NdjsonStream, PageQuery};

/// Attempts to resume a watch; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Changes of keys, in order, complete and without duplicates.
#[derive(Debug)]
pub struct KvWatch {
    memory: Memory,
    prefix: String,
    since: Option<u64>,
    lines: Option<NdjsonStream<KvEvent>>,
    failures: u32,
}

impl Memory {
    /// `None` if the key does not exist.
    pub async fn kv_get(&self, key: &str) -> Result<Option<KvItem>, ClientError> {
        match self.client.get(self.read_path(self.route("kv").part(key))).await {
            Ok(item) => Ok(Some(item)),
            // Distinguishes a missing key from a missing sandbox or space.
            Err(error) if error.is_not_found() => match self.kv_list(key, &ONE).await {
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    pub async fn kv_set(&self, key: &str, set: &KvSet) -> Result<KvItem, ClientError> {
        self.client.send_json(Method::PUT, self.write_path(self.route("kv").part(key)), set).await
    }

    /// Deletes a key, or only the given version of it. A missing key is not an error.
    pub async fn kv_delete(&self, key: &str, if_version: Option<u64>) -> Result<(), ClientError> {
        let path = self.write_path(self.route("kv").part(key)).query_if("if_version", if_version);
        self.client.send_no_content(Call::new(Method::DELETE, path)).await
    }

    /// By key.
    pub async fn kv_list(&self, prefix: &str, page: &PageQuery) -> Result<Page<KvItem>, ClientError> {
        let path = self.route("kv").query_if("prefix", Some(prefix).filter(|prefix| !prefix.is_empty()));
        self.client.page(self.read_path(path), page).await
    }

    pub async fn kv_increment(&self, increment: &KvIncrement) -> Result<KvItem, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("kv-increment")), increment).await
    }

    /// Applies all operations or none.
    pub async fn kv_batch(&self, ops: Vec<KvOperation>) -> Result<KvChanged, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("kv-batch")), &KvBatch { ops }).await
    }

    /// Every version of a key, oldest first.
    pub async fn kv_history(&self, key: &str) -> Result<Vec<KvVersion>, ClientError> {
        self.client.get(self.read_path(self.route("kv-history").part(key))).await
    }

    /// Changes of the keys with this prefix: after log number `since`, or from now on.
    pub async fn kv_watch(&self, prefix: &str, since: Option<u64>) -> Result<KvWatch, ClientError> {
        let mut watch =
            KvWatch { memory: self.clone(), prefix: prefix.to_owned(), since, lines: None, failures: 0 };
        watch.lines = Some(watch.open().await?);
        Ok(watch)
    }
}

const ONE: PageQuery = PageQuery { cursor: None, limit: Some(1) };

// === impl KvWatch ===

impl KvWatch {
    /// The next change, or a heartbeat, which says that nothing changed up to its number.
    pub async fn next(&mut self) -> Result<KvEvent, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(KvEvent::Error { error })) => ClientError::refused(error),
                Ok(Some(event)) => {
                    self.failures = 0;
                    // Numbers before a reset belong to another log.
                    let before = match event {
                        KvEvent::Reset { .. } => None,
                        KvEvent::Set { .. }
                        | KvEvent::Deleted { .. }
                        | KvEvent::Expired { .. }
                        | KvEvent::Heartbeat { .. }
                        | KvEvent::Error { .. } => self.since,
                    };
                    self.since = Some(seq(&event).unwrap_or_default().max(before.unwrap_or_default()));
                    return Ok(event);
                }
                // A watch does not end by itself: the daemon is shutting down.
                Ok(None) => ClientError::Truncated { path: "kv-watch".to_owned() },
                Err(error) => error,
            };
            self.lines = None;
            let permanent = matches!(error.code(), Some(ErrorCode::Internal));
            if permanent || !error.is_transient() || self.failures >= RESUMES_MAX {
                return Err(error);
            }
            self.failures += 1;
            tokio::time::sleep(RESUME_PAUSE).await;
        }
    }

    async fn step(&mut self) -> Result<Option<KvEvent>, ClientError> {
        if self.lines.is_none() {
            self.lines = Some(self.open().await?);
        }
        self.lines.as_mut().expect("it was just set").next().await
    }

    async fn open(&self) -> Result<NdjsonStream<KvEvent>, ClientError> {
        let path = self
            .memory
            .route("kv-watch")
            .query_if("prefix", Some(&self.prefix).filter(|prefix| !prefix.is_empty()))
            .query_if("since", self.since);
        let path = self.memory.write_path(path);
        let shown = path.shown();
        let response = self.memory.client.send(Call::new(Method::GET, path)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

fn seq(event: &KvEvent) -> Option<u64> {
    match event {
        KvEvent::Set { seq, .. }
        | KvEvent::Deleted { seq, .. }
        | KvEvent::Expired { seq, .. }
        | KvEvent::Reset { seq }
        | KvEvent::Heartbeat { seq } => Some(*seq),
        KvEvent::Error { .. } => None,
    }
}

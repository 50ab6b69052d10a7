//! Keys and values, and their changes as a stream that survives a dropped connection.

use std::time::Duration;

use burrow_api::memory::{KvBatch, KvChanged, KvEvent, KvIncrement, KvItem, KvOperation, KvSet, KvVersion};
use burrow_api::{ErrorCode, Page};
use http::Method;

use super::Memory;
use crate::client::Call;
use crate::{ByteStream, ClientError, NdjsonStream, PageQuery};

/// Attempts to take a watch up again before giving up; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Changes of keys in order, none missed and none twice.
#[derive(Debug)]
pub struct KvWatch {
    memory: Memory,
    prefix: String,
    since: Option<u64>,
    lines: Option<NdjsonStream<KvEvent>>,
    failures: u32,
}

impl Memory {
    /// `None` where there is no such key.
    pub async fn kv_get(&self, key: &str) -> Result<Option<KvItem>, ClientError> {
        match self.client.get(self.reading(self.route("kv").part(key))).await {
            Ok(item) => Ok(Some(item)),
            // A sandbox or a space that does not exist is no key that does not exist.
            Err(error) if error.is_not_found() => match self.kv_list(key, &ONE).await {
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    pub async fn kv_set(&self, key: &str, set: &KvSet) -> Result<KvItem, ClientError> {
        self.client.send_json(Method::PUT, self.writing(self.route("kv").part(key)), set).await
    }

    /// Only this version of it where one is given. What is not there is no error.
    pub async fn kv_delete(&self, key: &str, if_version: Option<u64>) -> Result<(), ClientError> {
        let path = self.writing(self.route("kv").part(key)).query_if("if_version", if_version);
        self.client.send_for_nothing(Call::new(Method::DELETE, path)).await
    }

    /// By key.
    pub async fn kv_list(&self, prefix: &str, page: &PageQuery) -> Result<Page<KvItem>, ClientError> {
        let path = self.route("kv").query_if("prefix", Some(prefix).filter(|prefix| !prefix.is_empty()));
        self.client.page(self.reading(path), page).await
    }

    pub async fn kv_increment(&self, increment: &KvIncrement) -> Result<KvItem, ClientError> {
        self.client.send_json(Method::POST, self.writing(self.route("kv-increment")), increment).await
    }

    /// All of it, or nothing.
    pub async fn kv_batch(&self, ops: Vec<KvOperation>) -> Result<KvChanged, ClientError> {
        self.client.send_json(Method::POST, self.writing(self.route("kv-batch")), &KvBatch { ops }).await
    }

    /// Every version of a key, oldest first.
    pub async fn kv_history(&self, key: &str) -> Result<Vec<KvVersion>, ClientError> {
        self.client.get(self.reading(self.route("kv-history").part(key))).await
    }

    /// Changes of the keys that begin with `prefix`: from after number `since` on, or from now on.
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
    /// The next change. A heartbeat is one too: nothing happened until its number.
    pub async fn next(&mut self) -> Result<KvEvent, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(KvEvent::Error { error })) => ClientError::refused(error),
                Ok(Some(event)) => {
                    self.failures = 0;
                    // Numbers before a reset are another log's.
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
                // A watch has no end of its own: the daemon is going down.
                Ok(None) => ClientError::Truncated { path: "kv-watch".to_owned() },
                Err(error) => error,
            };
            self.lines = None;
            let lasting = matches!(error.code(), Some(ErrorCode::Internal));
            if lasting || !error.is_transient() || self.failures >= RESUMES_MAX {
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
        let path = self.memory.writing(path);
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

//! Entries: add, find, change, forget.

use burrow_api::Page;
use burrow_api::memory::{
    AddEntries, AddedEntries, AddedEntry, EntryFilter, EraseEntries, ErasedEntries, ForgetEntries,
    ForgottenEntries, MemoryEntry, MemorySession, MemoryVersion, NewEntry, SearchMemory, SearchResult,
    UpdateEntry,
};
use http::Method;

use super::Memory;
use crate::client::Call;
use crate::url::Path;
use crate::{ClientError, PageQuery};

impl Memory {
    /// Adds all entries or none, in this order. Repeated automatically after a broken connection only if every entry has a
    /// `key`, so that nothing is stored twice.
    pub async fn add(&self, entries: Vec<NewEntry>) -> Result<Vec<AddedEntry>, ClientError> {
        let path = self.write_path(self.route("entries"));
        let keyed = entries.iter().all(|entry| entry.key.is_some());
        let body = AddEntries { entries };
        let added: AddedEntries = match keyed {
            true => self.client.create(path, &body).await?.1,
            false => self.client.send_json(Method::POST, path, &body).await?,
        };
        Ok(added.entries)
    }

    pub async fn search(&self, query: &SearchMemory) -> Result<SearchResult, ClientError> {
        self.client.send_json(Method::POST, self.read_all_spaces(self.route("search")), query).await
    }

    /// One page, newest first.
    pub async fn list(
        &self,
        filter: &EntryFilter,
        page: &PageQuery,
    ) -> Result<Page<MemoryEntry>, ClientError> {
        self.client.page(self.read_path(filtered(self.route("entries"), filter)), page).await
    }

    pub async fn entry(&self, id: &str) -> Result<MemoryEntry, ClientError> {
        self.client.get(self.read_path(self.route("entries").part(id))).await
    }

    /// Stores a new version; the old one is kept in the history.
    pub async fn update(&self, id: &str, change: &UpdateEntry) -> Result<MemoryEntry, ClientError> {
        self.client.send_json(Method::PATCH, self.write_path(self.route("entries").part(id)), change).await
    }

    /// Every version, oldest first.
    pub async fn history(&self, id: &str) -> Result<Vec<MemoryVersion>, ClientError> {
        self.client.get(self.read_path(self.route("entries").part(id).fixed("history"))).await
    }

    /// Forgets entries from now on; reads of an earlier state still find them.
    pub async fn forget(&self, what: &ForgetEntries) -> Result<ForgottenEntries, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("forget")), what).await
    }

    pub async fn forget_one(&self, id: &str) -> Result<(), ClientError> {
        let path = self.write_path(self.route("entries").part(id));
        self.client.send_no_content(Call::new(Method::DELETE, path)).await
    }

    /// Erases entries permanently, from every version, branch and snapshot.
    pub async fn erase(&self, what: &EraseEntries) -> Result<ErasedEntries, ClientError> {
        self.client.send_json(Method::POST, self.write_path(self.route("erase")), what).await
    }

    /// Newest first.
    pub async fn sessions(&self, page: &PageQuery) -> Result<Page<MemorySession>, ClientError> {
        self.client.page(self.read_path(self.route("sessions")), page).await
    }
}

/// Lists are separated by commas; tests of metadata are JSON.
fn filtered(path: Path, filter: &EntryFilter) -> Path {
    let several = |items: &[String]| Some(items.join(",")).filter(|joined| !joined.is_empty());
    let tests = (!filter.metadata.is_empty())
        .then(|| serde_json::to_string(&filter.metadata).expect("a test of metadata is plain JSON"));
    path.query_if("kind", several(&filter.kinds))
        .query_if("id", several(&filter.ids))
        .query_if("metadata", tests)
        .query_if("since_ms", filter.since_ms)
        .query_if("until_ms", filter.until_ms)
        .query_if("session", filter.session.as_ref())
        .query_if("source", filter.source.as_ref())
        .query_if("user", filter.user.as_ref())
        .query_if("agent", filter.agent.as_ref())
        .flag("include_cold", filter.include_cold)
        .flag("include_superseded", filter.include_superseded)
}

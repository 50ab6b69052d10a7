//! Memory through the API.

mod artifacts;
mod entries;
mod hostile;
mod kv;
mod own_listener;
mod remember;
mod search;
mod skills;
mod spaces;

use serde_json::{Value, json};

use super::world::World;

impl World {
    /// Adds an entry with this text, and returns its id.
    async fn note(&self, of: &str, text: &str) -> String {
        let added = self.post(&format!("/v1/memory/{of}/entries"), json!({ "text": text }), 201).await;
        added["entries"][0]["id"].as_str().unwrap().to_owned()
    }

    async fn post(&self, path: &str, body: Value, status: u16) -> Value {
        self.send_json("POST", path, body.to_string()).await.expect(status).json()
    }

    async fn put(&self, path: &str, body: Value, status: u16) -> Value {
        self.send_json("PUT", path, body.to_string()).await.expect(status).json()
    }

    async fn fetch(&self, path: &str) -> Value {
        self.send("GET", path).await.expect(200).json()
    }

    /// The texts of all entries, oldest first.
    async fn texts(&self, of: &str, query: &str) -> Vec<String> {
        let listed = self.fetch(&format!("/v1/memory/{of}/entries{query}")).await;
        let mut texts: Vec<String> = listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["text"].as_str().unwrap().to_owned())
            .collect();
        texts.reverse();
        texts
    }

    /// The texts that a search finds, best first.
    async fn found(&self, of: &str, query: &str) -> Vec<String> {
        let found = self.post(&format!("/v1/memory/{of}/search"), json!({ "query": query }), 200).await;
        let text = |hit: &Value| hit["entry"]["text"].as_str().unwrap().to_owned();
        found["hits"].as_array().unwrap().iter().map(text).collect()
    }
}

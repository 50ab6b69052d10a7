//! Requests for memory, against the fake daemon: routes, parameters, streams that break.

use burrow_client::api::memory::{
    ContextRequest, CreateSpace, EntryFilter, ForgetEntries, KvEvent, KvIncrement, KvOperation, KvSet,
    MetadataOperator, MetadataTest, NewEntry, RunSkill, SearchMemory, SkillRunStep,
};
use burrow_client::{DownloadRange, MemorySelection, NewArtifact, PageQuery, UploadBody};
use http::Response;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::{chunks, daemon, json, request_of, response};

fn at(of: &str, as_of: Option<&str>, space: Option<&str>) -> MemorySelection {
    MemorySelection { of: of.to_owned(), as_of: as_of.map(str::to_owned), space: space.map(str::to_owned) }
}

fn entry(id: &str) -> Value {
    json!({
        "id": id, "seq": 1, "version": 1, "text": "x", "kind": "note", "metadata": {}, "importance": 0.5, "source": null,
        "session": null, "user": null, "agent": null, "at_ms": 0, "stored_ms": 0, "valid_from_ms": null,
        "valid_to_ms": null, "supersedes": [], "superseded_by": null, "count": 1, "artifacts": [], "links": [],
        "cold": false, "branch": "brn"
    })
}

fn item(key: &str, version: u64) -> Value {
    json!({ "key": key, "value": { "a": 1 }, "version": version, "created_ms": 0, "updated_ms": 0, "expires_ms": null })
}

fn artifact(name: &str) -> Value {
    json!({
        "name": name, "version": 2, "hash": "ab", "bytes": 3, "media_type": "text/plain", "metadata": {}, "seq": 9, "at_ms": 0
    })
}

#[tokio::test]
async fn reads_send_their_time_and_writes_their_space() {
    let client = daemon(|_, request| async move {
        let (line, body) = request_of(request).await;
        match line.as_str() {
            "GET /v1/memory/space%3Aops/entries/mem1?as_of=2026-11-15T00%3A00%3A00Z&space=team" => {
                json(200, &entry("mem1"))
            }
            "POST /v1/memory/web/entries?space=team" => {
                assert_eq!(body, r#"{"entries":[{"text":"x"}]}"#);
                json(201, &json!({ "entries": [{ "id": "mem2", "seq": 7, "existed": false }] }))
            }
            "POST /v1/memory/web/search?as_of=before" => {
                assert_eq!(body, r#"{"query":"x"}"#);
                json(200, &json!({ "hits": [], "arms": [], "searched": 0, "took_us": 1 }))
            }
            "POST /v1/memory/web/context" => {
                json(200, &json!({ "text": "", "used_tokens": 0, "ids": [], "arms": [], "truncated": false }))
            }
            "POST /v1/memory/web/forget" => {
                assert_eq!(body, r#"{"older_than_seconds":60,"dry_run":true}"#);
                json(200, &json!({ "count": 3, "ids": [], "dry_run": true }))
            }
            other => panic!("{other}"),
        }
    })
    .await;
    let past = client.memory(at("space:ops", Some("2026-11-15T00:00:00Z"), Some("team")));
    assert_eq!(past.entry("mem1").await.unwrap().id, "mem1");
    let team = client.memory(at("web", Some("before"), Some("team")));
    assert_eq!(team.add(vec![NewEntry::note("x".to_owned())]).await.unwrap()[0].id, "mem2");
    let query = SearchMemory { query: "x".to_owned(), ..SearchMemory::default() };
    assert!(team.search(&query).await.unwrap().hits.is_empty());
    let memory = client.memory(MemorySelection::now("web"));
    assert!(memory.context(&ContextRequest::default()).await.unwrap().text.is_empty());
    let old = ForgetEntries { older_than_seconds: Some(60), dry_run: true, ..ForgetEntries::default() };
    assert_eq!(memory.forget(&old).await.unwrap().count, 3);
}

#[tokio::test]
async fn an_add_is_repeated_only_if_all_entries_have_keys() {
    let client = daemon(|count, _| async move {
        match count {
            0 | 2 => None,
            _ => json(201, &json!({ "entries": [{ "id": "mem1", "seq": 1, "existed": false }] })),
        }
    })
    .await;
    let memory = client.memory(MemorySelection::now("web"));
    let keyed = NewEntry { key: Some("k".to_owned()), ..NewEntry::note("x".to_owned()) };
    assert_eq!(memory.add(vec![keyed]).await.unwrap().len(), 1, "an entry with a key is stored once");
    assert!(memory.add(vec![NewEntry::note("x".to_owned())]).await.is_err());
}

#[tokio::test]
async fn a_filter_is_sent_as_parameters() {
    let client = daemon(|_, request| async move {
        let (line, _) = request_of(request).await;
        assert_eq!(
            line,
            "GET /v1/memory/web/entries?kind=fact%2Cerror&metadata=%5B%7B%22path%22%3A%22a%22%2C%22operator%22%3A%22lt%22%2C\
             %22value%22%3A3%7D%5D&since_ms=5&session=s&include_cold=true&limit=2"
        );
        json(200, &json!({ "items": [entry("mem1")], "next_cursor": "c" }))
    })
    .await;
    let filter = EntryFilter {
        kinds: vec!["fact".to_owned(), "error".to_owned()],
        metadata: vec![MetadataTest {
            path: "a".to_owned(),
            operator: MetadataOperator::Lt,
            value: json!(3),
        }],
        since_ms: Some(5),
        session: Some("s".to_owned()),
        include_cold: true,
        ..EntryFilter::default()
    };
    let page = PageQuery { cursor: None, limit: Some(2) };
    let page = client.memory(MemorySelection::now("web")).list(&filter, &page).await.unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("c"));
}

#[tokio::test]
async fn keys_with_slashes_are_one_key_and_missing_keys_are_none() {
    let client = daemon(|_, request| async move {
        let (line, body) = request_of(request).await;
        match line.as_str() {
            "GET /v1/memory/web/kv/plan%2F..%2Fstep" => json(200, &item("plan/../step", 3)),
            "GET /v1/memory/web/kv/gone" => {
                json(404, &json!({ "error": { "code": "not_found", "message": "no key `gone`" } }))
            }
            "GET /v1/memory/web/kv?prefix=gone&limit=1" => json(200, &json!({ "items": [] })),
            line if line.starts_with("GET /v1/memory/missing/") => {
                json(404, &json!({ "error": { "code": "not_found", "message": "no memory `missing`" } }))
            }
            "PUT /v1/memory/web/kv/a" => {
                assert_eq!(body, r#"{"value":null,"if_version":3}"#);
                json(409, &json!({ "error": { "code": "conflict", "message": "it has version 4" } }))
            }
            "DELETE /v1/memory/web/kv/a?if_version=4" => response(204, ""),
            "POST /v1/memory/web/kv-increment" => {
                assert_eq!(body, r#"{"key":"n","by":-2.5}"#);
                json(200, &item("n", 5))
            }
            "POST /v1/memory/web/kv-batch" => {
                assert_eq!(body, r#"{"ops":[{"op":"delete","key":"a"}]}"#);
                json(200, &json!({ "items": [null] }))
            }
            other => panic!("{other}"),
        }
    })
    .await;
    let memory = client.memory(MemorySelection::now("web"));
    assert_eq!(memory.kv_get("plan/../step").await.unwrap().unwrap().version, 3);
    assert_eq!(memory.kv_get("gone").await.unwrap(), None);
    let missing = client.memory(MemorySelection::now("missing")).kv_get("x").await.unwrap_err();
    assert_eq!(missing.to_string(), "no memory `missing`");
    let set = KvSet { value: Value::Null, ttl_seconds: None, if_version: Some(3), if_absent: false };
    assert_eq!(memory.kv_set("a", &set).await.unwrap_err().to_string(), "it has version 4");
    memory.kv_delete("a", Some(4)).await.unwrap();
    let step =
        KvIncrement { key: "n".to_owned(), by: serde_json::from_str("-2.5").unwrap(), ttl_seconds: None };
    memory.kv_increment(&step).await.unwrap();
    let ops = vec![KvOperation::Delete { key: "a".to_owned(), if_version: None }];
    assert_eq!(memory.kv_batch(ops).await.unwrap().items, [None]);
}

#[tokio::test]
async fn a_watch_resumes_where_it_stopped_without_missing_changes() {
    let client = daemon(|count, request| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        match count {
            0 => {
                assert_eq!(query, "prefix=plan%2F");
                chunks(vec![
                    "{\"kind\":\"heartbeat\",\"seq\":4}\n{\"kind\":\"set\",\"seq\":5,\"item\":{\"key\":\"plan/a\",\"value\":1,",
                    "\"version\":5,\"created_ms\":0,\"updated_ms\":0,\"expires_ms\":null}}\n",
                ])
            }
            1 => {
                assert_eq!(query, "prefix=plan%2F&since=5");
                chunks(vec!["{\"kind\":\"error\",\"error\":{\"code\":\"busy\",\"message\":\"it is going down\"}}\n"])
            }
            _ => {
                assert_eq!(query, "prefix=plan%2F&since=5");
                chunks(vec!["{\"kind\":\"deleted\",\"seq\":6,\"key\":\"plan/a\"}\n"])
            }
        }
    })
    .await;
    let mut watch = client.memory(MemorySelection::now("web")).kv_watch("plan/", None).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), KvEvent::Heartbeat { seq: 4 }));
    assert!(matches!(watch.next().await.unwrap(), KvEvent::Set { seq: 5, .. }));
    assert!(matches!(watch.next().await.unwrap(), KvEvent::Deleted { seq: 6, .. }));
}

#[tokio::test]
async fn artifacts_have_type_and_metadata_and_can_be_read_in_parts() {
    let client = daemon(|_, request| async move {
        let headers = request.headers().clone();
        let (line, body) = request_of(request).await;
        match line.as_str() {
            "PUT /v1/memory/web/artifacts/a%2Fb.txt" => {
                assert_eq!(headers["content-type"], "text/plain");
                assert_eq!(headers["x-burrow-metadata"], "{\"t\":\"\\u00fc\"}");
                assert_eq!((headers["content-length"].to_str().unwrap(), body.as_str()), ("3", "abc"));
                json(201, &artifact("a/b.txt"))
            }
            "GET /v1/memory/web/artifacts/a%2Fb.txt?as_of=3&version=1" => {
                assert_eq!(headers["range"], "bytes=1-1");
                let body = Full::new("b".into()).boxed_unsync();
                Some(Response::builder().status(206).header("etag", "\"ab\"").body(body).unwrap())
            }
            other => panic!("{other}"),
        }
    })
    .await;
    let memory = client.memory(at("web", Some("3"), None));
    let metadata = json!({ "t": "ü" });
    let new = NewArtifact {
        name: "a/b.txt".to_owned(),
        media_type: Some("text/plain".to_owned()),
        metadata: metadata.as_object().unwrap().clone(),
    };
    assert_eq!(memory.artifact_put(&new, UploadBody::from_bytes("abc")).await.unwrap().version, 2);
    let range = Some(DownloadRange { start: 1, end: Some(2) });
    let download = memory.artifact_get("a/b.txt", Some(1), range).await.unwrap();
    assert_eq!(download.hash.as_deref(), Some("ab"));
    let mut bytes = Vec::new();
    download.bytes.copy_to(&mut bytes, |_| {}).await.unwrap();
    assert_eq!(bytes, b"b");
    let bad = NewArtifact { media_type: Some("a\nb".to_owned()), ..new };
    assert!(memory.artifact_put(&bad, UploadBody::from_bytes("")).await.is_err());
}

#[tokio::test]
async fn a_skill_run_is_streamed_step_by_step() {
    let client = daemon(|_, request| async move {
        let (line, body) = request_of(request).await;
        assert_eq!(line, "POST /v1/memory/web/skills/deploy/run");
        assert_eq!(body, r#"{"parameters":{"host":"db"},"stream":true}"#);
        chunks(vec![
            "{\"kind\":\"start\",\"step\":1,\"total\":1,\"run\":\"make\"}\n",
            "{\"kind\":\"end\",\"ok\":true,\"took_ms\":1,\"recorded\":true}\n",
        ])
    })
    .await;
    let run = RunSkill { parameters: [("host".to_owned(), "db".to_owned())].into(), ..RunSkill::default() };
    let mut steps = client.memory(MemorySelection::now("web")).skill_run_steps("deploy", &run).await.unwrap();
    assert!(matches!(steps.next().await.unwrap(), Some(SkillRunStep::Start { step: 1, .. })));
    assert!(matches!(steps.next().await.unwrap(), Some(SkillRunStep::End { ok: true, .. })));
    assert!(steps.next().await.unwrap().is_none());
}

#[tokio::test]
async fn memory_is_exported_and_imported_as_lines_and_spaces_are_managed() {
    let client = daemon(|_, request| async move {
        let headers = request.headers().clone();
        let (line, body) = request_of(request).await;
        let space = json!({ "id": "spc1", "name": "ops", "description": "", "labels": {}, "created_ms": 0 });
        match line.as_str() {
            "GET /v1/memory/web/export" => chunks(vec!["{\"kind\":\"entry\"}\n", "{}\n"]),
            "POST /v1/memory/web/import" => {
                assert_eq!(headers["content-type"], "application/x-ndjson");
                assert_eq!(body, "{}\n");
                json(200, &json!({ "lines": 1, "added": 1, "updated": 0, "existed": 0, "erased": 0 }))
            }
            "POST /v1/spaces" => json(201, &space),
            "GET /v1/spaces/ops" => json(200, &space),
            "DELETE /v1/spaces/ops?force=true" => response(204, ""),
            other => panic!("{other}"),
        }
    })
    .await;
    let memory = client.memory(MemorySelection::now("web"));
    let mut lines = Vec::new();
    memory.export().await.unwrap().copy_to(&mut lines, |_| {}).await.unwrap();
    assert_eq!(lines, b"{\"kind\":\"entry\"}\n{}\n");
    assert_eq!(memory.import(UploadBody::from_bytes("{}\n")).await.unwrap().added, 1);
    let request =
        CreateSpace { name: "ops".to_owned(), description: String::new(), labels: Default::default() };
    assert_eq!(client.create_space(&request).await.unwrap().id, "spc1");
    assert!(client.space("ops").await.unwrap().used_by.is_empty());
    client.delete_space("ops", true).await.unwrap();
}

//! Lists of sandboxes, filtered by metadata, state, template and age, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_catalog::{PAGE_LIMIT_MAX, PageRequest, SandboxFilter, SandboxRow};
use burrow_model::State as SandboxState;
use http::{HeaderName, HeaderValue, Uri};

use super::body::E2bExtractor;
use super::error::Refusal;
use super::{show, template_name};
use burrow_gateway::e2b::reach;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Reader};
use burrow_http::input::pairs;
use burrow_http::pages::page_of_list;

const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");

const LIMIT: u32 = 100;
const LIMIT_MAX: u32 = 1000;

/// Maximum number of pairs in one filter.
const FILTERS_MAX: usize = 100;

#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    /// Each pair has its possible decodings: see [`metadata`].
    metadata: Vec<[(String, String); 2]>,
    states: Vec<String>,
    template: Option<String>,
    started_after_ms: Option<u64>,
    oldest_first: bool,
    limit: u32,
    next_token: Option<String>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let query = Query::read(&uri)?;
    let images = match query.template.as_deref() {
        Some(template) => Some(template_name::images(&app, &caller, template).await?),
        None => None,
    };
    let mut rows = all(&app, &caller).await?;
    rows.retain(|row| {
        query.fits(row) && images.as_ref().is_none_or(|images| images.contains(&row.spec.image.to_string()))
    });
    rows.sort_by_key(|row| (std::cmp::Reverse(show::started_ms(row)), row.id.clone()));
    if query.oldest_first {
        rows.reverse();
    }
    let request = PageRequest { cursor: query.next_token.clone(), limit: query.limit };
    let page = page_of_list(rows, &request, |row| row.id.as_str())?;
    let items: Vec<_> = page.items.iter().map(show::listed).collect();
    Ok(paged(Json(items).into_response(), page.next_cursor))
}

/// Adds the token of the next page, if there is one.
pub(super) fn paged(mut response: Response, next: Option<String>) -> Response {
    if let Some(value) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert(NEXT_TOKEN, value);
    }
    response
}

/// All sandboxes that the caller may see. Their number is limited by the host's limit.
async fn all(app: &App, caller: &Caller) -> Result<Vec<SandboxRow>, Refusal> {
    if let Some(rows) = caller.reach(app).await? {
        return Ok(rows);
    }
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let request = PageRequest { cursor, limit: PAGE_LIMIT_MAX };
        let page = app.engine.list(caller.tenant(), SandboxFilter::default(), request).await?;
        rows.extend(page.rows);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(rows);
        }
    }
}

impl Query {
    fn read(uri: &Uri) -> Result<Self, Refusal> {
        let mut query = Self { limit: LIMIT, ..Self::default() };
        for (name, value) in pairs(uri)? {
            match name.as_str() {
                "metadata" => query.metadata.extend(metadata(&value)?),
                "state" => query.states.extend(value.split(',').map(str::to_owned)),
                "template" => query.template = Some(value),
                "startedAfter" => query.started_after_ms = Some(moment(&value)?),
                "order" => query.oldest_first = value == "asc",
                "nextToken" => query.next_token = Some(value).filter(|token| !token.is_empty()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    query.limit = limit
                        .ok_or_else(|| Refusal::invalid(format!("`limit` must be from 1 to {LIMIT_MAX}")))?;
                }
                _ => return Err(Refusal::absent(format!("Burrow does not support the filter `{name}`"))),
            }
        }
        if query.metadata.len() > FILTERS_MAX {
            return Err(Refusal::invalid(format!("`metadata` has more than {FILTERS_MAX} pairs")));
        }
        if let Some(state) = query.states.iter().find(|state| !matches!(state.as_str(), "running" | "paused"))
        {
            return Err(Refusal::invalid(format!("`state` must be `running` or `paused`, not `{state}`")));
        }
        Ok(query)
    }

    fn fits(&self, row: &SandboxRow) -> bool {
        let nothing = BTreeMap::new();
        let metadata = row.spec.lease.as_ref().map_or(&nothing, |lease| &lease.metadata);
        let has = |(key, value): &(String, String)| metadata.get(key) == Some(value);
        row.state != SandboxState::Deleting
            && self.metadata.iter().all(|either| either.iter().any(has))
            && (self.states.is_empty() || self.states.iter().any(|state| state == reach::state(row)))
            && self.started_after_ms.is_none_or(|after| show::started_ms(row) >= after)
    }
}

/// Pairs as received, and decoded once more: clients encode keys and values, then the whole list, then the address.
fn metadata(text: &str) -> Result<Vec<[(String, String); 2]>, Refusal> {
    let bad = || Refusal::invalid("`metadata` must be like `key=value`, encoded as a query");
    let address: Uri = format!("/?{}", text.replace(' ', "%20")).parse().map_err(|_| bad())?;
    let once = pairs(&address)?;
    Ok(once.into_iter().map(|(key, value)| [(decoded(&key), decoded(&value)), (key, value)]).collect())
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = (*byte == b'%').then(|| after.first_chunk::<2>()).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &after[2..];
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn moment(text: &str) -> Result<u64, Refusal> {
    let bad = || Refusal::invalid("`startedAfter` must be a time like `2026-01-31T12:00:00Z`");
    // Every client formats other time zones as UTC.
    let text = text.strip_suffix("+00:00").map_or_else(|| text.to_owned(), |time| format!("{time}Z"));
    let time = humantime::parse_rfc3339(&text).map_err(|_| bad())?;
    let since = time.duration_since(std::time::UNIX_EPOCH).map_err(|_| bad())?;
    u64::try_from(since.as_millis()).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Query, Refusal> {
        Query::read(&format!("/v2/sandboxes?{query}").parse().unwrap())
    }

    #[test]
    fn metadata_matches_in_all_encodings() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let query = read("metadata=k%3Dv%252520v").unwrap();
        assert!(query.metadata[0].contains(&pair("k", "v v")));
        let query = read("metadata=k%3Dv%2520v%26a%3Db").unwrap();
        assert!(query.metadata[0].contains(&pair("k", "v v")));
        assert!(query.metadata[1].contains(&pair("a", "b")));
    }

    #[test]
    fn invalid_filters_are_rejected() {
        for bad in ["state=gone", "limit=0", "limit=x", "limit=9999", "startedAfter=yesterday", "colour=red"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        let query = read(
            "state=running,paused&limit=7&order=asc&nextToken=&startedAfter=1970-01-01T00:00:01%2B00:00",
        );
        let query = query.unwrap();
        assert_eq!((query.states.len(), query.limit, query.oldest_first), (2, 7, true));
        assert_eq!((query.next_token, query.started_after_ms), (None, Some(1000)));
    }
}

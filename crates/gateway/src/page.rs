//! Error responses of the gateway itself: a small page for browsers, our usual JSON for other clients.

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use burrow_api::ErrorDetail;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, USER_AGENT, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use burrow_http::error::ApiError;

use crate::e2b::reach::RefusalPage;

/// Distinguishes our own errors from a sandbox's responses.
pub(super) const ERROR: HeaderName = HeaderName::from_static("x-burrow-error");

/// The page contains only text and style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    Browser,
    Program,
}

impl Audience {
    pub(super) fn of(request: &Request) -> Self {
        if takes_html(request.headers()) { Self::Browser } else { Self::Program }
    }
}

pub(super) fn takes_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|kind| kind.trim_start().starts_with("text/html"))
}

/// Whether E2B's proxy takes the client for a browser: it decides by these words, and not by the accepted types.
pub(super) fn is_e2b_browser(headers: &HeaderMap) -> bool {
    const BROWSERS: [&str; 7] = ["mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"];
    let agent =
        headers.get(USER_AGENT).map(|value| value.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    let agent = String::from_utf8_lossy(&agent);
    BROWSERS.iter().any(|browser| agent.contains(browser))
}

/// Replaces the body of a response of E2B's proxy by a page. Responses of sandboxes are not changed.
pub(super) fn e2b_page(mut response: Response) -> Response {
    let Some(page) = response.extensions_mut().remove::<RefusalPage>() else { return response };
    let status = response.status();
    let footer = format!("{} · Burrow", status.as_u16());
    let mut response = (status, document(page.title, &marked(&page.message), "", &footer)).into_response();
    as_html(response.headers_mut());
    response
}

/// The headers of a page of the gateway.
fn as_html(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

pub(super) fn refuse(error: ApiError, audience: Audience) -> Response {
    let code = error.code();
    let mut response = match audience {
        Audience::Program => error.into_response(),
        Audience::Browser => {
            let status = http::StatusCode::from_u16(code.status()).expect("the codes' statuses are statuses");
            let mut response = (status, html(&error.into_detail())).into_response();
            as_html(response.headers_mut());
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(ERROR, HeaderValue::from_static(code.as_str()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn html(detail: &ErrorDetail) -> String {
    let status = detail.code.status();
    let hint = detail.hint.as_deref().map_or_else(String::new, |hint| format!("<p>{}</p>", marked(hint)));
    let footer = format!("{status} {} · Burrow", detail.code.as_str());
    document(&format!("{status} · Burrow"), &marked(&detail.message), &hint, &footer)
}

/// A page. The arguments are HTML.
fn document(title: &str, heading: &str, more: &str, footer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:34em;padding:0 1em;color:#222}}\
         h1{{font-size:1.3em}}code{{background:#eee;border-radius:3px;padding:.1em .3em}}p{{color:#555}}\
         @media(prefers-color-scheme:dark){{body{{background:#181818;color:#ddd}}code{{background:#333}}p{{color:#aaa}}}}\
         </style></head>\n<body><h1>{heading}</h1>{more}<p><small>{footer}</small></p></body></html>\n",
    )
}

/// Escapes HTML, and formats text in backticks as code.
fn marked(text: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let mut shown = String::with_capacity(escaped.len());
    for (index, part) in escaped.split('`').enumerate() {
        match index % 2 {
            0 => shown.push_str(part),
            _ => shown.push_str(&format!("<code>{part}</code>")),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use burrow_api::ErrorCode;

    use super::*;

    const HTML: &[u8] = b"text/html; charset=utf-8";

    #[tokio::test]
    async fn browsers_see_a_page_with_the_title_of_e2b() {
        let refused = crate::e2b::reach::port_closed("sbx<1>", 3000);
        let page = e2b_page(refused);
        assert_eq!((page.status().as_u16(), page.headers()[CONTENT_TYPE].as_bytes()), (502, HTML));
        let page = axum::body::to_bytes(page.into_body(), 1 << 16).await.unwrap();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("<title>Closed Port Error</title>"), "{page}");
        let of_a_sandbox = e2b_page((http::StatusCode::BAD_GATEWAY, "its own").into_response());
        let body = axum::body::to_bytes(of_a_sandbox.into_body(), 1024).await.unwrap();
        assert_eq!(&body[..], b"its own");
    }

    #[test]
    fn programs_are_no_browsers() {
        let is_browser = |agent: &'static str| {
            is_e2b_browser(&[(USER_AGENT, HeaderValue::from_static(agent))].into_iter().collect())
        };
        assert!(is_browser("Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/91.0"));
        assert!(["node", "python-httpx/0.28", "curl/8.5.0"].into_iter().all(|agent| !is_browser(agent)));
        assert!(!is_e2b_browser(&HeaderMap::new()));
    }

    #[test]
    fn html_in_messages_is_escaped() {
        let error = ApiError::new(ErrorCode::PortClosed, "nothing in `<script>` & \"x\"").hint("try `a`");
        let page = html(&error.into_detail());
        assert!(page.contains("<code>&lt;script&gt;</code> &amp; &quot;x&quot;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("try <code>a</code>"), "{page}");
    }

    #[test]
    fn browsers_are_recognised_by_the_accept_header() {
        for (accept, html) in [
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), true),
            (Some("application/json"), false),
            (Some("*/*"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|accept| (ACCEPT, HeaderValue::from_static(accept))));
            assert_eq!(takes_html(&headers), html, "{accept:?}");
        }
    }
}

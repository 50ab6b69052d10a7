//! Answers the requests of one intercepted connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use burrow_audit::{Action, Event, Outcome};
use burrow_model::network::{Approve, HeaderTransform};
use burrow_model::{HostName, SecretBytes, Slot};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;

use super::approvals::{ApprovalOutcome, PendingApproval};
use super::body::{ClientBody, RequestBody, ResponseBody, blot_headers};
use super::client::InterceptedConnection;
use super::compiled::CompiledPolicy;
use super::exchange::{Exchange, RequestSummary, action_of};
use super::guard::Gate;
use super::judge::{self, MatchedRule, Placeholders, Refusal, RequestTarget};
use super::request_body::{AnswerBody, BodyRemainder, LentBody};
use super::upstream::{self, Key, Lease};
use super::{path, slots, websocket};
use crate::Directives;
use crate::clock::monotonic_ms;
use crate::policy::{Denial, DetectedProtocol, Policy};
use crate::proxy::Shared;
use crate::sandbox::Sandbox;

/// Response headers that concern the proxy's connection to the host, or that would lead programs around the proxy.
const NOT_PASSED_BACK: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::ALT_SVC,
    HeaderName::from_static("http2-settings"),
];

/// The connection that its requests share.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) shared: Arc<Shared>,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) intercepted: Arc<InterceptedConnection>,
    pub(super) host: HostName,
    pub(super) port: u16,
    pub(super) gate: Arc<Gate>,
}

/// A request that was allowed.
struct AllowedRequest<'a> {
    ruled: MatchedRule<'a>,
    /// The headers to set.
    transform: Option<&'a HeaderTransform>,
    policy: &'a Policy,
    compiled: Arc<CompiledPolicy>,
    exchange: Arc<Exchange>,
    path: String,
}

pub(super) async fn handle(
    conversation: Arc<Conversation>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody<ClientBody>>, Infallible> {
    let rest = BodyRemainder::default();
    let request = request.map(|body| rest.lend(body));
    let (method, target) = (request.method().clone(), request.uri().path().to_owned());
    let upgrade = request.headers().contains_key(header::UPGRADE) && request.version() < Version::HTTP_2;
    // A client that sent `Expect` learns from the answer whether to send a body at all.
    let expects_answer = request.headers().contains_key(header::EXPECT);
    let outcome = conversation.answer(request).await;
    let mut response = match outcome {
        Ok(response) => response,
        Err(refusal) => {
            if !upgrade && !expects_answer {
                rest.read().await;
            }
            conversation.refuse(&method, &target, &refusal)
        }
    };
    if upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // The data that follows was not inspected and will not be.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|answer| AnswerBody::new(answer, rest)))
}

impl Conversation {
    async fn answer(&self, request: Request<LentBody>) -> Result<Response<ClientBody>, Refusal> {
        if let Some((status, what)) = self.gate.malformed(request.headers()) {
            return Err(Refusal::new(status, format!("the request is malformed: {what}")));
        }
        judge::check_method(request.method())?;
        judge::check_authority(request.uri(), request.headers(), &self.intercepted.meter.destination)?;
        let path = path::normal(request.uri().path())
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let policy = self.sandbox.policy();
        let policy_changed = || Refusal::forbidden("the policy was changed and no longer allows it");
        let directives = policy.directives().ok_or_else(policy_changed)?;
        let upgrade = upgrade_of(&request)?;
        let judged = self.judge(&policy, directives, &request, path)?;
        self.take_budget(&judged)?;
        self.ask_for_approval(directives, &request, &judged).await?;
        self.record_injection(&judged).await?;
        match upgrade {
            None => self.forward(request, judged).await,
            Some(Websocket) => self.forward_upgrade(request, judged).await,
        }
    }

    fn judge<'a>(
        &self,
        policy: &'a Policy,
        directives: &'a Directives,
        request: &Request<LentBody>,
        path: String,
    ) -> Result<AllowedRequest<'a>, Refusal> {
        let (uri, headers) = (request.uri(), request.headers());
        let method = request.method().as_str();
        let compiled = self.sandbox.intercept.compiled(policy);
        let asked = RequestTarget { host: &self.host, port: self.port, method, path: &path };
        let placeholders = Placeholders::in_head(&compiled.placeholders, uri, headers);
        let transform = policy.transform(&self.intercepted.meter.destination);
        let headers_only = transform.map(|(_, rule)| rule);
        let ruled = judge::rule(directives, headers_only, asked, placeholders, headers, uri.query());
        // Checked even if the request is refused anyway: a misplaced placeholder is worth an alarm.
        if placeholders == Placeholders::Present {
            let going = ruled.as_ref().ok().and_then(|ruled| ruled.grant);
            judge::check_placeholders(directives, going, uri, headers)?;
            judge::check_foreign(&compiled.own, &compiled.placeholders, uri, headers)?;
        }
        let ruled = ruled?;
        if let Some(grant) = ruled.grant {
            // Checked before the injection is recorded.
            slots::check_fits(grant, headers).map_err(|error| Refusal::forbidden(error.to_string()))?;
        }
        let described = self.described(directives, method, &path, Some(&ruled));
        let exchange = Exchange::new(
            Arc::clone(&self.sandbox.account),
            ruled.rule.clone(),
            Arc::clone(&compiled.owners),
            &described,
        );
        let transform = transform.map(|(transform, _)| transform);
        Ok(AllowedRequest { ruled, transform, policy, compiled, exchange, path })
    }

    fn described<'a>(
        &'a self,
        directives: &Directives,
        method: &'a str,
        path: &'a str,
        ruled: Option<&MatchedRule<'_>>,
    ) -> RequestSummary<'a> {
        RequestSummary {
            tenant: directives.tenant.clone(),
            host: self.host.as_str(),
            port: self.port,
            method,
            path,
            rule: ruled.map(|ruled| ruled.rule.to_string()),
            secret: ruled.and_then(|ruled| ruled.grant).map(|grant| grant.name.to_string()),
        }
    }

    fn take_budget(&self, judged: &AllowedRequest<'_>) -> Result<(), Refusal> {
        let taken = self.sandbox.budgets().take(judged.ruled.rule, monotonic_ms());
        taken.map_err(|spent| {
            let what = format!("the rule `{}` has used up {}", judged.ruled.rule, spent.what);
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, what);
            Refusal { retry_after_s: Some(spent.retry_after_s), ..refusal }
        })
    }

    async fn ask_for_approval(
        &self,
        directives: &Directives,
        request: &Request<LentBody>,
        judged: &AllowedRequest<'_>,
    ) -> Result<(), Refusal> {
        let Some(approve) = judged.ruled.rule.approve else { return Ok(()) };
        let method = request.method().as_str();
        let waiting = PendingApproval {
            number: 0,
            rule: judged.ruled.rule.to_string(),
            approve,
            method: method.to_owned(),
            host: self.host.to_string(),
            port: self.port,
            path: judged.path.clone(),
            secret: judged.ruled.grant.map(|grant| grant.name.to_string()),
            since_ms: 0,
        };
        let patience = Duration::from_secs(self.sandbox.limits().approval_seconds.into());
        let decided = tokio::select! {
            biased;
            decided = self.sandbox.intercept.approvals.ask(judged.ruled.rule, waiting, patience) => decided,
            () = self.intercepted.hung_up() => ApprovalOutcome::Gone,
        };
        let (outcome, reason) = match (decided, approve) {
            (ApprovalOutcome::Yes, Approve::Once) => (Outcome::Allowed, "approved"),
            (ApprovalOutcome::Yes, Approve::Session) => {
                (Outcome::Allowed, "approved, with all requests that its rule covers")
            }
            (ApprovalOutcome::Already, _) => (Outcome::Allowed, "approved before"),
            (ApprovalOutcome::No, _) => (Outcome::Denied, "the request needs approval, which was refused"),
            (ApprovalOutcome::TooLate, _) => {
                (Outcome::Denied, "the request needs approval, which was not given in time")
            }
            (ApprovalOutcome::Gone, _) => {
                (Outcome::Denied, "the request needs approval, and the program closed its connection before")
            }
            (ApprovalOutcome::Full, _) => (
                Outcome::Denied,
                "the request needs approval, and too many requests wait for approval already",
            ),
        };
        let described = self.described(directives, method, &judged.path, Some(&judged.ruled));
        let event = described.event(&self.sandbox, Action::EgressApproval, outcome);
        self.sandbox.note(Event { reason: Some(reason.into()), ..event });
        if outcome == Outcome::Allowed { Ok(()) } else { Err(Refusal::forbidden(reason)) }
    }

    /// Without a record, no secret is inserted (E-A1).
    async fn record_injection(&self, judged: &AllowedRequest<'_>) -> Result<(), Refusal> {
        let event = judged.exchange.event();
        if judged.ruled.grant.is_none() {
            self.sandbox.note(event.clone());
            return Ok(());
        }
        self.shared.audit.record(event).await.map_err(|error| {
            let what =
                format!("the request needs a secret, and its injection could not be recorded: {error}");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what)
        })
    }

    fn key(&self, judged: &AllowedRequest<'_>) -> Key {
        let secret = judged.ruled.grant.map(|grant| (grant.name.clone(), grant.version));
        Key { host: self.host.clone(), port: self.port, secret }
    }

    async fn forward(
        &self,
        request: Request<LentBody>,
        judged: AllowedRequest<'_>,
    ) -> Result<Response<ClientBody>, Refusal> {
        let (parts, body) = request.into_parts();
        let request = prepare(parts, body, &judged)?;
        let (identity, key) = (identity(&judged), self.key(&judged));
        let (account, pool) = (&self.sandbox.account, &self.sandbox.intercept.pool);
        let sent = upstream::send(&self.shared, account, pool, judged.policy, &key, identity, request);
        let (response, lease) = sent.await.map_err(|error| self.failed(&judged, &error.to_string()))?;
        let (parts, body) = self.prepare_answer(response, &judged)?;
        let is_grpc = slots::is_grpc(&parts.headers);
        let secrets = judged.compiled.secrets.clone();
        let body = ResponseBody::new(body, secrets, is_grpc, lease, judged.exchange);
        Ok(Response::from_parts(parts, ClientBody::FromHost(Box::new(body))))
    }

    async fn forward_upgrade(
        &self,
        mut request: Request<LentBody>,
        judged: AllowedRequest<'_>,
    ) -> Result<Response<ClientBody>, Refusal> {
        let client = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        let mut request = prepare(parts, body, &judged)?;
        let headers = request.headers_mut();
        headers.remove("sec-websocket-extensions");
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let (identity, key) = (identity(&judged), self.key(&judged));
        let (account, pool) = (&self.sandbox.account, &self.sandbox.intercept.pool);
        let sent =
            upstream::send_upgrade(&self.shared, account, pool, judged.policy, &key, identity, request);
        let (mut response, lease) = sent.await.map_err(|error| self.failed(&judged, &error.to_string()))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (parts, body) = self.prepare_answer(response, &judged)?;
            let secrets = judged.compiled.secrets.clone();
            let body = ResponseBody::new(body, secrets, false, lease, judged.exchange);
            return Ok(Response::from_parts(parts, ClientBody::FromHost(Box::new(body))));
        }
        if response.headers().contains_key("sec-websocket-extensions") {
            return Err(self.failed(&judged, "it answered with a WebSocket extension that was not requested"));
        }
        let host = hyper::upgrade::on(&mut response);
        let (mut parts, _) = self.prepare_answer(response, &judged)?;
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        self.begin_websocket(client, host, lease, judged);
        Ok(Response::from_parts(parts, ClientBody::Generated(Full::default())))
    }

    fn begin_websocket(
        &self,
        client: hyper::upgrade::OnUpgrade,
        host: hyper::upgrade::OnUpgrade,
        lease: Lease,
        judged: AllowedRequest<'_>,
    ) {
        self.gate.open();
        let AllowedRequest { compiled, exchange, .. } = judged;
        let intercepted = Arc::clone(&self.intercepted);
        self.intercepted.tasks().spawn(async move {
            // The task of the connection to the host runs for as long as this lease is kept.
            let _lease = lease;
            let (Ok(client), Ok(host)) = tokio::join!(client, host) else { return exchange.ended(false) };
            let (client, host) = (TokioIo::new(client), TokioIo::new(host));
            let (placeholders, secrets) = (compiled.placeholders.clone(), compiled.secrets.clone());
            websocket::run(client, host, placeholders, secrets, exchange).await;
            drop(intercepted);
        });
    }

    /// Removes the secrets from a response's head, and refuses a response that cannot be scrubbed (E-S3, E-S21).
    fn prepare_answer(
        &self,
        response: Response<Incoming>,
        judged: &AllowedRequest<'_>,
    ) -> Result<(http::response::Parts, Incoming), Refusal> {
        let (mut parts, body) = response.into_parts();
        judged.exchange.answered(parts.status);
        let other_than = |name: &str, plain: &[u8]| {
            let mut values = parts.headers.get_all(name).iter();
            values.any(|value| !value.as_bytes().eq_ignore_ascii_case(plain))
        };
        // A response to HEAD, or with status 304, names the encoding of a body that it does not have.
        if judged.compiled.secrets.is_some()
            && !body.is_end_stream()
            && (other_than("content-encoding", b"identity")
                || other_than("grpc-encoding", b"identity")
                || other_than("transfer-encoding", b"chunked"))
        {
            return Err(self.failed(judged, "it answered in an encoding that was not requested"));
        }
        for name in NOT_PASSED_BACK {
            parts.headers.remove(name);
        }
        parts.version = Version::HTTP_11;
        // The host chooses the reason phrase of the status line, which would be forwarded.
        parts.extensions.clear();
        if let Some(forms) = &judged.compiled.secrets {
            judged.exchange.scrubbed(&blot_headers(&mut parts.headers, forms));
        }
        Ok((parts, body))
    }

    /// The host could not be reached or misbehaved, or the program's own body failed.
    fn failed(&self, judged: &AllowedRequest<'_>, what: &str) -> Refusal {
        if let Some(refusal) = judged.exchange.take_trouble() {
            judged.exchange.ended(false);
            return refusal;
        }
        judged.exchange.ended(false);
        let what = format!("`{}` is allowed, but {what}", self.host);
        Refusal::new(StatusCode::BAD_GATEWAY, what)
    }

    /// Reports a refusal to the log, the audit log and the program.
    fn refuse(&self, method: &Method, target: &str, refusal: &Refusal) -> Response<ClientBody> {
        let destination = &self.intercepted.meter.destination;
        let policy = self.sandbox.policy();
        // Placeholders, of this sandbox or others, are not recorded either.
        let placeholders = &self.sandbox.intercept.compiled(&policy).placeholders;
        let plain = |text: &str| judge::without_placeholders(placeholders, text);
        let (target, reason) = (plain(target), plain(&refusal.what));
        let what = format!("{method}: {reason}");
        if refusal.status == StatusCode::BAD_GATEWAY {
            self.sandbox.failed(destination, DetectedProtocol::Tls, self.intercepted.meter.rule(), what);
        } else {
            self.sandbox.request_denied(destination, DetectedProtocol::Tls, &Denial::Request { what });
        }
        if let Some(directives) = policy.directives() {
            let outcome =
                if refusal.status == StatusCode::BAD_GATEWAY { Outcome::Failed } else { Outcome::Denied };
            let described = RequestSummary {
                secret: refusal.secret.clone(),
                ..self.described(directives, method.as_str(), &target, None)
            };
            let event = described.event(&self.sandbox, action_of(refusal), outcome);
            let (status, reason) = (Some(refusal.status.as_u16()), Some(reason.as_str().into()));
            self.sandbox.note(Event { status, reason, ..event });
        }
        refusal_response(&self.host, refusal)
    }
}

/// The response to a refused request.
fn refusal_response(host: &HostName, refusal: &Refusal) -> Response<ClientBody> {
    let error = serde_json::json!({
        "error": {
            "type": "burrow_egress",
            "status": refusal.status.as_u16(),
            "host": host.as_str(),
            "message": format!("burrow: the request to {host} was refused: {}", refusal.what),
        }
    });
    let mut response = Response::new(ClientBody::Generated(Full::new(Bytes::from(format!("{error}\n")))));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-burrow-egress", HeaderValue::from_static("refused"));
    if let Some(seconds) = refusal.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The client certificate to present.
fn identity<'a>(judged: &AllowedRequest<'a>) -> Option<&'a SecretBytes> {
    judged.ruled.grant.filter(|grant| grant.slot == Slot::ClientCert).map(|grant| &grant.value)
}

/// The request as it is sent to the host.
fn prepare(
    mut parts: Parts,
    body: LentBody,
    judged: &AllowedRequest<'_>,
) -> Result<Request<RequestBody>, Refusal> {
    slots::strip_hop(&mut parts.headers);
    parts.headers.remove(header::HOST);
    parts.extensions.clear();
    let mut query = parts.uri.query().map(str::to_owned);
    if let Some(grant) = judged.ruled.grant {
        query = slots::inject(grant, &mut parts.headers, query.as_deref())
            .map_err(|error| Refusal::forbidden(error.to_string()))?;
    }
    if let Some(transform) = judged.transform {
        slots::set_headers(transform, judged.ruled.grant, &mut parts.headers);
    }
    // Last, so that no configured header requests a response that cannot be scrubbed.
    if judged.compiled.secrets.is_some() {
        slots::ask_for_readable(&mut parts.headers);
    }
    let target = match &query {
        Some(query) => format!("{}?{query}", judged.path),
        None => judged.path.clone(),
    };
    let bad = |_| Refusal::new(StatusCode::BAD_REQUEST, "the target cannot be forwarded");
    parts.uri = target.parse().map_err(bad)?;
    if judged.exchange.goes_out(size_of_head(&parts.headers, &target)).is_err() {
        let spent = || Refusal::new(StatusCode::TOO_MANY_REQUESTS, "the rule has used up its budget");
        return Err(judged.exchange.take_trouble().unwrap_or_else(spent));
    }
    let placeholders = judged.compiled.placeholders.clone();
    let body = RequestBody::new(body, placeholders, Arc::clone(&judged.exchange));
    Ok(Request::from_parts(parts, body))
}

/// The approximate size of a head in bytes.
fn size_of_head(headers: &HeaderMap, target: &str) -> usize {
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    target.len() + lines.sum::<usize>()
}

/// The only protocol to which connections can be upgraded.
#[derive(Clone, Copy, Debug)]
struct Websocket;

fn upgrade_of(request: &Request<LentBody>) -> Result<Option<Websocket>, Refusal> {
    let Some(protocol) = request.headers().get(header::UPGRADE) else { return Ok(None) };
    if request.version() >= Version::HTTP_2 {
        return Ok(None);
    }
    let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    if !is_websocket || request.method() != Method::GET {
        return Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "a connection can be upgraded only to WebSocket",
        ));
    }
    Ok(Some(Websocket))
}

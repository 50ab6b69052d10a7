//! E-S1 to E-S5, E-S21: credentials that the sandbox sets itself, and hosts that echo the secret.

use super::{Attempt, answered, audited, got, inside, kept, outside, row, weakly};
use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-S1", "credentials of one's own beside the secret", beside, beside_unguarded),
    row(
        "E-S2",
        "the secret echoed: header, body, trailer, event, message, in pieces",
        echoed,
        echoed_unguarded,
    ),
    row("E-S3", "compressed, byte by byte, by ranges, cut off", cut, cut_unguarded),
    row("E-S4", "the secret echoed in other forms", forms, forms_unguarded),
    row("E-S5", "a redirect that carries it away", redirect, redirect_unguarded),
    row("E-S21", "the secret stored by a host, and returned where none went along", stored, stored_unguarded),
];

const BESIDE: &str = "
more = b'Authorization: Bearer mine-1\\r\\nauthorization: Basic bWluZS0y\\r\\nX-Api-Key: mine-3\\r\\nCookie: session=mine-4\\r\\n' \
    b'Api-Key: mine-5\\r\\nProxy-Authorization: Bearer mine-6\\r\\nX-Auth-Token: mine-7\\r\\nX-Goog-Api-Key: mine-8\\r\\n'
ask('h1', '/v1/s1', more=more)
ask('old', '/v1/s1', 'h1.example', more=more)
http2('h2', 'up.example', [('x-api-key', 'mine-3'), ('cookie', 'session=mine-4'), ('authorization', 'Bearer mine-1')], '/v1/s1')
";

fn beside(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.with("s1").len();
    let found = inside(sandbox, BESIDE)?;
    answered(&found, &[200])?;
    kept(&found)?;
    let seen = outside().records.with("s1").split_off(before);
    ensure(seen.len() == found.len(), || format!("{} arrived of {found:?}", seen.len()))?;
    for seen in &seen {
        let text = seen.text();
        ensure(!text.contains("mine-") && !text.contains("bWluZS0y"), || {
            format!("a credential went along: {text}")
        })?;
        let ours = format!("Bearer {}", outside().secret);
        ensure(seen.header("authorization") == ours, || format!("not ours: {text}"))?;
    }
    audited(sandbox, "the secret that went along", |event| {
        event["action"] == "egress.inject" && event["secret"] == "bearer"
    });
    Ok(format!("{} requests: ours went along, theirs did not", seen.len()))
}

fn beside_unguarded(_: &Ground) -> Finding {
    let before = outside().records.with("s1").len();
    weakly(BESIDE)?;
    let seen = outside().records.with("s1").split_off(before);
    ensure(!seen.is_empty() && seen.iter().all(|seen| seen.text().contains("mine-4")), || {
        format!("{seen:?}")
    })?;
    Ok("all of them arrive where nobody is in between".to_owned())
}

const ECHOED: &str = "
trailers = b'TE: trailers\\r\\n'
ask('h1', '/v1/echo', more=trailers)
ask('old', '/v1/echo', 'h1.example', more=trailers)
ask('posted', '/v1/echo', method='POST', body=b'hello')
http2('h2', 'up.example')
curl('h2-trailers', '--http2', '-H', 'TE: trailers', 'https://up.example/v1/echo')
for kind in ('pieces', 'events', 'cookie'):
    ask(kind, '/v1/' + kind)
    ask(kind + '-old', '/v1/' + kind, 'h1.example')
ask('reason', '/v1/reason', 'h1.example')
s, head = web_socket()
say(s, b'tell')
tell('socket', status(head), hear(s, b'told'))
";

fn scrubbed(sandbox: &Sandbox<'_>, found: &[Attempt]) -> Finding {
    kept(found)?;
    let scrubs = |event: &serde_json::Value| event["action"] == "egress.scrub" && event["secret"] == "bearer";
    let event = audited(sandbox, "what was taken out", scrubs);
    Ok(format!("{} answers without it; {}", found.len(), event["reason"]))
}

fn echoed(sandbox: &Sandbox<'_>) -> Finding {
    let found = inside(sandbox, ECHOED)?;
    answered(&found, &[101, 200])?;
    // The rest of each answer is there, with its original length.
    let blots = "*".repeat(outside().secret.len());
    for attempt in found.iter().filter(|attempt| attempt.name != "reason") {
        ensure(attempt.text.contains(&blots), || format!("nothing was there to take out: {attempt:?}"))?;
    }
    let socket = found.iter().find(|attempt| attempt.name == "socket").unwrap();
    ensure(socket.text.ends_with("told\n"), || format!("the messages broke: {socket:?}"))?;
    // The last one came in two messages: at most three bytes of it are there.
    ensure(!socket.text.contains("sk-l"), || format!("half of it came through: {socket:?}"))?;
    scrubbed(sandbox, &found)
}

fn echoed_unguarded(_: &Ground) -> Finding {
    got(&weakly(ECHOED)?)
}

const CUT: &str = "
ask('gzip', '/v1/gzip', more=b'Accept-Encoding: gzip\\r\\n')
ask('gzip-old', '/v1/gzip', 'h1.example', more=b'Accept-Encoding: gzip, br\\r\\n')
got = b''
for place in range(40):
    s = tls()
    s.sendall(request('/v1/range', more=b'Range: bytes=%d-%d\\r\\n' % (place, place)))
    got += plain(rest(s)).split(b'\\r\\n\\r\\n', 1)[1]
    if not SECRET and place > 4: break
tell('range', 200, got)
ask('cut', '/v1/cut')
ask('cut-old', '/v1/cut', 'h1.example')
ask('pieces', '/v1/pieces', more=b'Accept-Encoding: gzip\\r\\n')
";

fn cut(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.seen().len();
    let found = inside(sandbox, CUT)?;
    kept(&found)?;
    for attempt in &found {
        let compressed = attempt.name.starts_with("gzip");
        ensure(!compressed || attempt.status == 502, || format!("not refused: {attempt:?}"))?;
        // A secret that is cut off is dropped, and its first part is not passed on.
        ensure(!attempt.text.contains("sk-live"), || format!("a part of it came through: {attempt:?}"))?;
    }
    let seen = outside().records.seen().split_off(before);
    let asked: Vec<String> =
        seen.iter().map(|seen| seen.header("accept-encoding") + &seen.header("range")).collect();
    ensure(asked.iter().all(|asked| asked == "identity"), || format!("hosts were asked for {asked:?}"))?;
    audited(sandbox, "the answer that was refused", |event| event["status"] == 502);
    Ok(format!("{} answers; hosts were asked for whole, readable ones", found.len()))
}

fn cut_unguarded(_: &Ground) -> Finding {
    let found = weakly(CUT)?;
    // A cut answer reveals at most all bytes but the last.
    let most = &outside().secret[..40];
    for attempt in &found {
        ensure(attempt.text.contains(most), || format!("`{}` did not get it: {attempt:?}", attempt.name))?;
    }
    Ok(format!("all {} get it where nobody is in between", found.len()))
}

const FORMS: &str = "
ask('h1', '/v1/forms')
ask('old', '/v1/forms', 'h1.example')
http2('h2', 'up.example', path='/v1/forms')
";

fn forms(sandbox: &Sandbox<'_>) -> Finding {
    let found = inside(sandbox, FORMS)?;
    answered(&found, &[200])?;
    // Where an echo cannot be matched, methods and paths limit the secret: no other request to this host gets it.
    let beyond =
        super::again(sandbox, "ask('path', '/v2/reversed'); ask('method', '/v1/echo', method='PUT')")?;
    answered(&beyond, &[403])?;
    scrubbed(sandbox, &found)
}

fn forms_unguarded(_: &Ground) -> Finding {
    let found = weakly(FORMS)?;
    ensure(
        found
            .iter()
            .all(|attempt| attempt.text.lines().filter(|line| outside().leak(line).is_some()).count() >= 10),
        || format!("not every form: {found:?}"),
    )?;
    got(&found)
}

const REDIRECT: &str = "
ask('moved', '/v1/moved')
curl('followed', '--http2', '-L', '--location-trusted', 'https://up.example/v1/moved')
curl('followed-old', '--http1.1', '-L', '--location-trusted', 'https://h1.example/v1/moved')
";

fn redirect(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.with("/take").len();
    let found = inside(sandbox, REDIRECT)?;
    kept(&found)?;
    let taken = outside().records.with("/take").split_off(before);
    // The program followed the redirect, which is allowed; the request that arrived has no secret.
    ensure(taken.len() == 2, || format!("{} followed: {found:?}", taken.len()))?;
    for seen in &taken {
        let leak = outside().leak(&seen.text());
        ensure(leak.is_none() && seen.header("authorization").is_empty(), || {
            format!("it went along: {seen:?}")
        })?;
    }
    audited(sandbox, "the request that followed", |event| {
        event["action"] == "egress.allow" && event["host"] == "other.example"
    });
    scrubbed(sandbox, &found)
}

fn redirect_unguarded(_: &Ground) -> Finding {
    let before = outside().records.with("/take").len();
    got(&weakly(REDIRECT)?)?;
    let taken = outside().records.with("/take").split_off(before);
    let carried = taken.iter().filter(|seen| outside().leak(&seen.text()).is_some()).count();
    ensure(carried == 2, || format!("{taken:?}"))?;
    Ok("a program without a guard carries it to the other host".to_owned())
}

/// The host has the secret after the first request. The others are for a path and a host whose rules name no secret.
const STORED: &str = "
ask('store', '/v1/store')
ask('path', '/open/stored/echo', more=b'TE: trailers\\r\\n')
http2('path-h2', 'up.example', path='/open/stored/forms')
ask('host', '/stored/pieces', 'other.example')
ask('range', '/open/stored/range', more=b'Range: bytes=1000-1000\\r\\n')
ask('gzip', '/open/stored/gzip', more=b'Accept-Encoding: gzip\\r\\n')
s, head = web_socket('/stored/socket', 'other.example')
say(s, b'tell')
tell('socket', status(head), hear(s, b'told'))
";

fn stored(sandbox: &Sandbox<'_>) -> Finding {
    let found = inside(sandbox, STORED)?;
    answered(&found, &[101, 200, 502])?;
    kept(&found)?;
    let blots = "*".repeat(outside().secret.len());
    for attempt in &found {
        let compressed = attempt.name == "gzip";
        ensure(compressed == (attempt.status == 502), || format!("compressed or not: {attempt:?}"))?;
        ensure(compressed || attempt.text.contains(&blots), || format!("it was not there: {attempt:?}"))?;
    }
    for host in ["up.example", "other.example"] {
        audited(sandbox, "the alarm", |event| {
            event["action"] == "egress.alarm" && event["secret"] == "bearer" && event["host"] == host
        });
    }
    Ok(format!("{} answers without it, and alarms", found.len()))
}

fn stored_unguarded(_: &Ground) -> Finding {
    got(&weakly(STORED)?)
}

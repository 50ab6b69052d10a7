//! E-T6, E-T8: requests that two parsers could read differently, and smuggled requests.

use super::{answered, audited_times, inside, kept, outside, row, weakly};
use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-T6", "smuggled requests, in every shape", smuggled, smuggled_unguarded),
    row("E-T8", "bytes behind a request for another protocol", behind, behind_unguarded),
];

/// Each shape contains a second request, which only one of two parsers would see.
const SHAPES: &str = r#"
inner = b'GET /v1/t6-inner HTTP/1.1\r\nHost: up.example\r\n\r\n'
chunks = b'0\r\n\r\n' + inner

def shape(name, more, body=b'', line=b'POST /v1/t6-outer HTTP/1.1', ends=b'\r\n'):
    head = line + ends + b'Host: up.example' + ends + own().replace(b'\r\n', ends) + more + ends
    # Without a guard, some are waited for: the host wants more.
    raw(name, head + body, patience=1 if SECRET else 30)

shape('cl-te', b'Content-Length: %d\r\nTransfer-Encoding: chunked\r\n' % len(chunks), chunks)
shape('te-cl', b'Transfer-Encoding: chunked\r\nContent-Length: 4\r\n', chunks)
shape('te-twice', b'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n', chunks)
shape('te-case', b'Transfer-Encoding: xchunked\r\n', chunks)
shape('te-space', b'Transfer-Encoding : chunked\r\n', chunks)
shape('te-list', b'Transfer-Encoding: chunked, identity\r\n', chunks)
shape('te-tab', b'Transfer-Encoding:\tchunked\x0b\r\n', chunks)
shape('cl-twice', b'Content-Length: 5\r\nContent-Length: 0\r\n', chunks)
shape('cl-list', b'Content-Length: 5, 0\r\n', chunks)
shape('cl-plus', b'Content-Length: +5\r\n', chunks)
shape('cl-hex', b'Content-Length: 0x5\r\n', chunks)
shape('cl-minus', b'Content-Length: -1\r\n', chunks)
shape('fold', b'X-A: b\r\n Transfer-Encoding: chunked\r\n', inner)
shape('bare-cr', b'X-A: b\rTransfer-Encoding: chunked\r\n', inner)
shape('bare-lf', b'X-A: b\nX-B: c\n', inner, ends=b'\n')
shape('nul', b'X-A: b\0c\r\n', inner)
shape('name-space', b'X A: b\r\n', inner)
shape('chunk-lf', b'Transfer-Encoding: chunked\r\n', b'5;a=\nb\r\nhello\r\n0\r\n\r\n' + inner)
shape('chunk-size', b'Transfer-Encoding: chunked\r\n', b'0x5\r\nhello\r\n0\r\n\r\n' + inner)
shape('http-1.0', b'Transfer-Encoding: chunked\r\n', chunks, b'POST /v1/t6-outer HTTP/1.0')
"#;

fn smuggled(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.times("t6-inner");
    let found = inside(sandbox, SHAPES)?;
    answered(&found, &[0, 400, 501, 505])?;
    kept(&found)?;
    let after = outside().records.times("t6-inner");
    ensure(after == before, || format!("a smuggled request arrived: {found:?}"))?;
    let told = found.iter().filter(|attempt| attempt.status == 400).count();
    audited_times(sandbox, told, "a refusal", |event| {
        event["action"] == "egress.deny" && event["status"] == 400
    });
    Ok(format!("{} shapes, {told} of them answered with 400; none arrived", found.len()))
}

fn smuggled_unguarded(_: &Ground) -> Finding {
    let before = outside().records.times("t6-outer");
    let found = weakly(SHAPES)?;
    let heard = outside().records.times("t6-outer") - before;
    ensure(heard == found.len(), || format!("{heard} heard of {found:?}"))?;
    Ok(format!("all {heard} are heard where nobody is in between"))
}

/// A host that does not switch protocols would read the following bytes as the next request.
const BEHIND: &str = "
upgrade = b'GET /v1/t8-%s HTTP/1.1\\r\\nHost: up.example\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n' \
    b'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n'
raw('not-switched', upgrade % b'stays' + own() + b'\\r\\n' + request('/v1/t8-behind'))
raw('other', (upgrade % b'other').replace(b'websocket', b'h2c') + own() + b'\\r\\n' + request('/v1/t8-behind'))
";

fn behind(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.times("t8-behind");
    let found = inside(sandbox, BEHIND)?;
    answered(&found, &[200, 400, 403, 501])?;
    kept(&found)?;
    let after = outside().records.times("t8-behind");
    ensure(after == before, || format!("what came behind arrived: {found:?}"))?;
    // Early bytes of the new protocol arrive once the host has switched.
    let early = "
s = tls()
head = request('/v1/socket').replace(b'Connection: close', b'Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n'
    b'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==')
mask = b'mask'
s.sendall(head + b'\\x81\\x85' + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(b'early')))
answer = rest(s, b'early')
tell('early', status(answer), answer)
";
    let good = super::again(sandbox, early)?;
    answered(&good, &[101])?;
    ensure(good[0].text.contains("early"), || format!("{good:?}"))?;
    Ok("what came behind was held, and went nowhere but into the protocol that was asked for".to_owned())
}

fn behind_unguarded(_: &Ground) -> Finding {
    let before = outside().records.with("t8-behind").len();
    let found = weakly(BEHIND)?;
    let after = outside().records.with("t8-behind").len();
    ensure(after == before + found.len(), || format!("{} arrived of {found:?}", after - before))?;
    Ok("the host takes what comes behind for the next request".to_owned())
}

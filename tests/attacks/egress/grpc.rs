//! E-S16: secrets in the metadata of gRPC.

use super::{
    again, answered, apply, audited, begin, ended, inside, kept, outside, row, so_far, usual, weakly,
};
use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, ensure};

pub(crate) const ROWS: &[Row] =
    &[row("E-S16", "gRPC: metadata, trailers, trailers only, long streams", metadata, metadata_unguarded)];

const CALLS: &str = r#"
message = os.path.join(os.path.dirname(os.environ['SSL_CERT_FILE']) if SECRET else '/tmp', 'message')
open(message, 'wb').write(b'\0\0\0\0\x05hello')
def call(name, path, *more, kind='application/grpc', header='x-token: '):
    curl(name, '--http2', '-X', 'POST', '--data-binary', '@' + message, '-H', 'content-type: ' + kind, '-H', 'te: trailers',
        *more, 'https://grpc.example' + path, header=header)
"#;

const GOOD: &str = "
call('unary', '/v1/grpc')
call('only', '/v1/grpc-only')
call('own', '/v1/grpc', '-H', 'x-token: mine-1', '-H', 'authorization: Bearer mine-2')
call('binary', '/bin/grpc', '-H', 'x-token-bin: bWluZS0z', header=None if not SECRET else 'x-token-bin: ')
call('proto', '/v1/grpc', kind='application/grpc+proto')
";

fn metadata(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.seen().len();
    let found = inside(sandbox, &format!("{CALLS}{GOOD}"))?;
    answered(&found, &[200])?;
    kept(&found)?;
    let seen = outside().records.seen().split_off(before);
    ensure(seen.len() == found.len(), || format!("{} arrived of {found:?}", seen.len()))?;
    for seen in &seen {
        let text = seen.text();
        ensure(!text.contains("mine-") && !text.contains("bWluZS0z"), || {
            format!("a credential went along: {text}")
        })?;
        let token = seen.header("x-token") + &seen.header("x-token-bin");
        ensure(outside().leak(&token).is_some(), || format!("without the secret: {text}"))?;
    }
    ensure(found[0].text.contains("grpc-status: 0"), || format!("no trailers: {found:?}"))?;
    let bad = "
call('reflection', '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo')
call('not-grpc', '/v1/grpc', kind='application/json')
";
    let refused = again(sandbox, &format!("{CALLS}{bad}"))?;
    answered(&refused, &[403])?;
    audited(sandbox, "what was taken out", |event| {
        event["action"] == "egress.scrub" && event["secret"] == "metadata"
    });
    revoked(sandbox)?;
    Ok(format!("{} calls with the secret, answered without it; a stream ends with its rule", found.len()))
}

/// A bidirectional stream, until its rule is removed.
fn revoked(sandbox: &Sandbox<'_>) -> Result<(), crate::report::RowFailure> {
    let body = r"
pairs = [(':method', 'POST'), (':scheme', 'https'), (':path', '/v1/grpc'), (':authority', 'grpc.example'),
    ('content-type', 'application/grpc'), ('te', 'trailers')]
s = http2_open('grpc.example', 4, pairs)
seen = b''
for number in range(3):
    s.sendall(frame(0, 0, 1, b'\0\0\0\0\x07hello %d' % number))
    while b'hello %d' % number not in seen:
        kind, _, content = http2_next(s)
        if kind == 0: seen += content
print('it goes on', flush=True)
try:
    while True:
        kind, _, content = http2_next(s)
        if kind == 0: seen += content
except (OSError, EOFError) as error: tell('stream', 0, seen + str(error).encode())
";
    let exec = begin(sandbox, body);
    eventually("the stream to go on", || so_far(sandbox, &exec).contains("it goes on").then_some(()));
    apply(sandbox, &usual()[..4]);
    let found = ended(sandbox, &exec)?;
    kept(&found)
}

fn metadata_unguarded(_: &Ground) -> Finding {
    let found = weakly(&format!("{CALLS}{GOOD}"))?;
    answered(&found, &[200])?;
    super::got(&found)
}

//! P-R13: data that a sandbox stores outside its own disk.

use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[Row {
    id: "P-R13",
    what: "store without end in memory",
    sandbox: &["--disk", "64M"],
    attack: bounded,
    control: unbounded,
}];

/// Stores artifacts of 16 MiB until one is refused, 8 at most; prints how many were stored and the last status.
const STORE: &str = "\
import http.client, os, select
stored, status = 0, 0
for n in range(8):
    data = os.urandom(16 << 20)
    server = http.client.HTTPConnection('10.88.0.1', 7700, timeout=60)
    server.putrequest('PUT', '/v1/memory/self/artifacts/a%d' % n)
    server.putheader('Content-Length', str(len(data)))
    server.endheaders()
    # What is refused by its length is answered before its body is sent.
    try:
        if not select.select([server.sock], [], [], 1)[0]:
            server.send(data)
    except OSError:
        pass
    status = server.getresponse().status
    if status != 201:
        break
    stored += 1
print(stored, status)
";

/// Imports up to 128 MiB of entries in one request; prints the status and the MiB that were sent.
const IMPORT: &str = "\
import http.client, json, select
def ask(method, path, body=None):
    server = http.client.HTTPConnection('10.88.0.1', 7700, timeout=60)
    server.request(method, '/v1/memory/self/' + path, body, {'Content-Type': 'application/json'})
    return server.getresponse().read()
ask('POST', 'entries', json.dumps({'text': 'first'}))
lines = [json.loads(line) for line in ask('GET', 'export').splitlines()]
entry = [line for line in lines if line['line'] == 'entry'][0]
letters = 'abcdefghijklmnopqrstuvwxyz234567'
def line(n):
    tail = ''.join(letters[n // 32 ** k % 32] for k in range(4))
    entry.update(id=entry['id'][:-4] + tail, text=(str(n) + ' ') * 10 + 'x' * 60000)
    return json.dumps(entry).encode() + b'\\n'
server = http.client.HTTPConnection('10.88.0.1', 7700, timeout=120)
server.putrequest('POST', '/v1/memory/self/import')
server.putheader('Transfer-Encoding', 'chunked')
server.endheaders()
sent = 0
try:
    for n in range(2230):
        data = line(n)
        server.send(b'%x\\r\\n' % len(data) + data + b'\\r\\n')
        sent += len(data)
        if select.select([server.sock], [], [], 0)[0]:
            break
    else:
        server.send(b'0\\r\\n\\r\\n')
except OSError:
    pass
print(server.getresponse().status, sent >> 20)
";

/// The status, and how many MiB were sent before it was received.
fn import(sandbox: &Sandbox<'_>) -> Result<(u64, u64), RowFailure> {
    let run = sandbox.run(serde_json::json!({ "argv": ["python3", "-c", IMPORT], "timeout_ms": 180_000 }));
    let mut words = run.out.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next()) {
        (Some(Ok(status)), Some(Ok(mib))) => Ok((status, mib)),
        _ => panic!("the probe said no status: {run:?}"),
    }
}

fn store(sandbox: &Sandbox<'_>) -> String {
    let run = sandbox.run(serde_json::json!({ "argv": ["python3", "-c", STORE], "timeout_ms": 120_000 }));
    run.out.trim().to_owned()
}

fn bounded(sandbox: &Sandbox<'_>) -> Finding {
    let found = store(sandbox);
    ensure(found == "3 507", || format!("stored artifacts and last status: {found:?}"))?;
    // What is left is less than a tenth of what the import has.
    let (status, mib) = import(sandbox)?;
    ensure(status == 507, || format!("an import of {mib} MiB was answered with {status}"))?;
    Ok("48 MiB are stored with a disk limit of 64 MiB, the next 16 MiB refused with 507, and so is an import"
        .to_owned())
}

fn unbounded(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&["--disk", "1G"]);
    let found = store(&sandbox);
    ensure(found == "8 201", || format!("stored artifacts and last status: {found:?}"))?;
    let (status, mib) = import(&sandbox)?;
    ensure(status == 200 && mib >= 100, || format!("an import of {mib} MiB was answered with {status}"))?;
    Ok(format!("with a limit of 1 GiB all of 128 MiB are stored, and an import of {mib} MiB"))
}

//! P-R13: what a sandbox stores outside its own disk.

use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, ensure};

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

fn store(sandbox: &Sandbox<'_>) -> String {
    let run = sandbox.run(serde_json::json!({ "argv": ["python3", "-c", STORE], "timeout_ms": 120_000 }));
    run.out.trim().to_owned()
}

fn bounded(sandbox: &Sandbox<'_>) -> Finding {
    let found = store(sandbox);
    ensure(found == "3 507", || format!("stored artifacts and last status: {found:?}"))?;
    Ok("48 MiB are stored with a disk limit of 64 MiB, the next 16 MiB refused with 507".to_owned())
}

fn unbounded(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&["--disk", "1G"]);
    let found = store(&sandbox);
    ensure(found == "8 201", || format!("stored artifacts and last status: {found:?}"))?;
    Ok("with a limit of 1 GiB all of 128 MiB are stored".to_owned())
}

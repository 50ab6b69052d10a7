//! The library of these rows' probes, and the parser of their output.
//!
//! A probe is the same text inside a sandbox and in the unguarded namespace. There it gets the real secret, like a
//! program without Burrow; inside it has none, and its requests get one on their way, if the rules allow it.

use crate::ground::Run;
use crate::report::{RowFailure, ensure};

/// One attempt of a probe: `= name status`, and everything it received.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) name: String,
    /// 0: no answer.
    pub(crate) status: u16,
    pub(crate) text: String,
}

/// The attempts of a probe, in its order. Fails unless the probe ran to its end.
pub(crate) fn attempts(run: &Run) -> Result<Vec<Attempt>, RowFailure> {
    let mut found: Vec<Attempt> = Vec::new();
    for line in run.out.split_inclusive('\n') {
        let begun = line.strip_prefix("= ").and_then(|rest| rest.trim_end().rsplit_once(' '));
        match (begun, found.last_mut()) {
            (Some((name, status)), _) => {
                let status = status.parse().map_err(|_| RowFailure::Failed(format!("no status: {line}")))?;
                found.push(Attempt { name: name.to_owned(), status, text: String::new() });
            }
            (None, Some(last)) => last.text.push_str(line),
            (None, None) => {}
        }
    }
    ensure(run.ok() && !found.is_empty(), || {
        // The error comes first, because the end of a long reason is cut off.
        format!("the probe did not run: exit {:?}, {}, {}", run.code, run.err, run.out)
    })?;
    Ok(found)
}

pub(crate) const PROBE: &str = r#"
import base64, os, re, socket, ssl, subprocess, sys, threading, time
SECRET, KEY = os.environ.get('SECRET', ''), os.environ.get('API_KEY', '')

telling, contexts = threading.Lock(), {}

def context_of(alpn, trust, roots):
    context = ssl.create_default_context(cafile=roots)
    context.set_alpn_protocols([alpn])
    if not trust:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

def tls(host='up.example', name=None, alpn='http/1.1', trust=True, roots=None):
    # Reading all that is trusted takes longer than all the rest.
    what = (alpn, trust, roots)
    if what not in contexts: contexts[what] = context_of(*what)
    return contexts[what].wrap_socket(socket.create_connection((host, 443), 30), server_hostname=name or host)

def rest(s, until=None):
    data = b''
    try:
        while until is None or until not in data:
            part = s.recv(65536)
            if not part: break
            data += part
    except OSError as error: data += ('<%s>' % error).encode()
    return data

def plain(data):
    head, _, body = data.partition(b'\r\n\r\n')
    if b'transfer-encoding: chunked' not in head.lower(): return data
    whole = b''
    while True:
        size, _, body = body.partition(b'\r\n')
        try: size = int(size.split(b';')[0], 16)
        except ValueError: return head + b'\r\n\r\n' + whole + b'<broken>' + body
        if size == 0: return head + b'\r\n\r\n' + whole + b'\r\n' + body
        whole, body = whole + body[:size], body[size + 2:]

def status(data):
    found = re.match(rb'HTTP/[0-9.]+ ([0-9]{3})', data)
    return int(found.group(1)) if found else 0

def tell(name, code, text=b''):
    if isinstance(text, bytes): text = text.decode('latin-1')
    # In one go: several threads may have something to tell.
    with telling:
        sys.stdout.write('= %s %s\n%s\n' % (name, code, text))
        sys.stdout.flush()

def own(before='Authorization: Bearer '):
    return (before + SECRET + '\r\n').encode() if SECRET else b''

def request(path='/v1/echo', host='up.example', method='GET', more=b'', body=b''):
    head = '%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n' % (method, path, host)
    if body: head += 'Content-Length: %d\r\n' % len(body)
    return head.encode('latin-1') + own() + more + b'\r\n' + body

def raw(name, data, at='up.example', trust=True, patience=30):
    try:
        s = tls(at, trust=trust)
        s.settimeout(patience)
        s.sendall(data)
        answer = rest(s)
        s.close()
    except OSError as error: return tell(name, 0, str(error))
    tell(name, status(answer), plain(answer))

def ask(name, path='/v1/echo', host='up.example', method='GET', more=b'', body=b'', at=None, trust=True):
    raw(name, request(path, host, method, more, body), at or host, trust)

def curl(name, *arguments, header='Authorization: Bearer '):
    line = ['curl', '-sS', '-i', '--max-time', '60']
    if SECRET and header: line += ['-H', header + SECRET]
    run = subprocess.run(line + list(arguments), stdin=subprocess.DEVNULL, capture_output=True)
    tell(name, status(run.stdout), run.stdout + run.stderr)

def web_socket(path='/v1/socket', host='up.example', more=b''):
    s = tls(host)
    head = 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' % (path, host)
    head += 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n'
    s.sendall(head.encode() + own() + more + b'\r\n')
    answer = b''
    while b'\r\n\r\n' not in answer:
        part = s.recv(1)
        if not part: break
        answer += part
    return s, answer

def say(s, text):
    mask = b'mask'
    s.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(text)))

def hear(s, until):
    heard = b''
    try:
        while until not in heard:
            head = rest_exactly(s, 2)
            heard += rest_exactly(s, head[1] & 127)
    except (OSError, EOFError) as error: heard += ('<%s>' % error).encode()
    return heard

def rest_exactly(s, count):
    data = b''
    while len(data) < count:
        part = s.recv(count - len(data))
        if not part: raise EOFError('it ended')
        data += part
    return data

def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + body

def block(pairs):
    def text(value): return bytes([len(value)]) + value.encode()
    return b''.join(b'\0' + text(name) + text(value) for name, value in pairs)

def http2_open(at, flags, pairs):
    s = tls(at, alpn='h2')
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'') + frame(1, flags, 1, block(pairs)))
    return s

def http2_next(s):
    head = rest_exactly(s, 9)
    content = rest_exactly(s, int.from_bytes(head[:3], 'big'))
    if head[3] == 4 and not head[4] & 1: s.sendall(frame(4, 1, 0, b''))
    if head[3] in (3, 7): raise EOFError('reset')
    return head[3], head[4], content

def http2(name, authority, more=(), path='/v1/echo', at='up.example'):
    pairs = [(':method', 'GET'), (':scheme', 'https'), (':path', path)]
    if authority: pairs.append((':authority', authority))
    if SECRET: pairs.append(('authorization', 'Bearer ' + SECRET))
    try:
        s = http2_open(at, 5, pairs + list(more))
        body, code = b'', 0
        while True:
            kind, flags, content = http2_next(s)
            if kind == 0: body += content
            if kind == 1 and content[:1] == b'\x88': code = 200
            if kind in (0, 1) and flags & 1: break
    except (OSError, EOFError) as error: return tell(name, 0, str(error))
    found = re.search(rb'"status":([0-9]+)', body)
    tell(name, int(found.group(1)) if found else code, body)
"#;

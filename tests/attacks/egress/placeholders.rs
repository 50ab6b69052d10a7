//! E-S6, E-S7: a placeholder in wrong positions, and another sandbox's placeholder.

use serde_json::Value;

use super::{
    Attempt, again, answered, apply, audited, audited_times, inside, kept, outside, row, usual, weakly,
};
use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-S6", "a placeholder where it does not belong", misplaced, misplaced_unguarded),
    row("E-S7", "another sandbox's placeholder, and a guessed one", foreign, foreign_unguarded),
];

/// `fake` in every position of a request; the answer shows whether it was allowed.
const PLACES: &str = r#"
def places(tag, fake, path='/v1/placed', host='up.example'):
    def header(name, value): return ('%s: %s\r\n' % (name, value)).encode()
    basic = base64.b64encode(('me:' + fake).encode()).decode()
    ask(tag + 'url', '%s/%s' % (path, fake), host)
    ask(tag + 'query', '%s?key=%s' % (path, fake), host)
    ask(tag + 'escaped', '%s?key=%s' % (path, ''.join('%%%02x' % ord(c) for c in fake)), host)
    ask(tag + 'header', path, host, more=header('X-Other', fake))
    ask(tag + 'name', path, host, more=header('X-' + fake, '1'))
    ask(tag + 'case', path, host, more=header('X-Other', fake.upper()))
    ask(tag + 'basic', path, host, more=header('X-Other', 'Basic ' + basic))
    ask(tag + 'cookie', path, host, more=header('X-Other', 'a=b; key=' + fake))
    ask(tag + 'hex', path, host, more=header('X-Other', fake.encode().hex()))
    ask(tag + 'body', path, host, 'POST', body=('x' * 200 + fake).encode())
    form = '--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n%s\r\n--b--\r\n' % fake
    ask(tag + 'form', path, host, 'POST', header('Content-Type', 'multipart/form-data; boundary=b'), form.encode())
    ask(tag + 'json', path, host, 'POST', body=('{"key": "%s"}' % base64.b64encode(fake.encode()).decode()).encode())
    http2(tag + 'h2', host, [('x-other', fake)], path, host)
    s, head = web_socket(path.replace('placed', 'socket'), host)
    # It is closed on whoever says it, maybe while they still speak.
    try:
        for part in (fake[:len(fake) // 2], fake[len(fake) // 2:], 'over'): say(s, part.encode())
    except OSError: pass
    heard = hear(s, b'over')
    tell(tag + 'socket', 200 if b'over' in heard else 403, heard)
"#;

/// Every attempt was refused and raised an alert; no host received the placeholder.
fn alarmed(sandbox: &Sandbox<'_>, found: &[Attempt], fake: &str, words: &str) -> Result<(), RowFailure> {
    answered(found, &[403])?;
    kept(found)?;
    let alarm = |event: &Value| {
        event["action"] == "egress.alarm"
            && event["outcome"] == "denied"
            && event["reason"].as_str().is_some_and(|reason| reason.contains(words))
    };
    audited_times(sandbox, found.len(), "an alarm", alarm);
    let arrived = outside().records.sent_to(|_| true).contains(fake);
    ensure(!arrived, || format!("the placeholder arrived: {found:?}"))?;
    let log = serde_json::to_string(&super::events(sandbox)).unwrap();
    ensure(!log.contains(&fake[12..]), || "the log holds the placeholder".to_owned())
}

/// The placeholder of a sandbox.
fn placeholder(sandbox: &Sandbox<'_>) -> Result<String, RowFailure> {
    let fake = sandbox.sh("printf %s \"$API_KEY\"").out;
    ensure(fake.starts_with("sk-") && fake.len() > 40, || format!("no placeholder: {fake:?}"))?;
    Ok(fake)
}

/// The placeholder in its own position is replaced by the secret.
fn replaced(sandbox: &Sandbox<'_>, fake: &str) -> Result<(), RowFailure> {
    let found =
        again(sandbox, &format!("ask('good', '/v1/replaced', more=b'Authorization: Bearer {fake}\\r\\n')"))?;
    answered(&found, &[200])?;
    kept(&found)?;
    let sent = outside().records.with("replaced").last().map(|seen| seen.header("authorization"));
    ensure(sent == Some(format!("Bearer {}", outside().secret)), || format!("the host got {sent:?}"))
}

fn misplaced(sandbox: &Sandbox<'_>) -> Finding {
    apply(sandbox, &usual());
    let fake = placeholder(sandbox)?;
    replaced(sandbox, &fake)?;
    let elsewhere = "
ask('elsewhere', '/v1/placed', 'other.example', more=b'Authorization: Bearer %s\\r\\n' % KEY.encode())
ask('beyond', '/v2/placed', more=b'Authorization: Bearer %s\\r\\n' % KEY.encode())
ask('unguarded', '/open/placed', more=b'Authorization: Bearer %s\\r\\n' % KEY.encode())
";
    let found = again(sandbox, &format!("{PLACES}\nplaces('', KEY)\n{elsewhere}"))?;
    alarmed(sandbox, &found, &fake, "a placeholder is in")?;
    replaced(sandbox, &fake)?;
    Ok(format!("{} places, all refused with an alarm; in its own it is replaced", found.len()))
}

fn misplaced_unguarded(_: &Ground) -> Finding {
    heard("places('', KEY)", "sk-fake-0123456789")
}

/// Without a proxy, all positions arrive.
fn heard(body: &str, fake: &str) -> Finding {
    let before = outside().records.heard("", "/v1/placed");
    let found = weakly(&format!("{PLACES}\n{body}"))?;
    let after = outside().records.heard("", "/v1/placed");
    // The socket has another path.
    ensure(after - before == found.len() - 1, || format!("{} arrived of {found:?}", after - before))?;
    answered(&found, &[200])?;
    ensure(outside().records.times(fake) > 4, || "the hosts did not hear it".to_owned())?;
    Ok(format!("all {} are answered where nobody is in between", found.len()))
}

fn foreign(sandbox: &Sandbox<'_>) -> Finding {
    let other = sandbox.ground.sandbox(&[]);
    apply(&other, &usual());
    let theirs = placeholder(&other)?;
    apply(sandbox, &usual());
    let own = placeholder(sandbox)?;
    ensure(own != theirs, || "two lineages have one placeholder".to_owned())?;
    replaced(sandbox, &own)?;
    replaced(&other, &theirs)?;
    other.delete();
    // Also the placeholder of a deleted sandbox, in the position where the sandbox's own would be replaced; and an
    // unknown one.
    let guess = format!("{}{}", &own[..own.len() - 4], "0000");
    let slot = |name: &str, fake: &str| {
        format!("ask('{name}', '/v1/placed', more=b'Authorization: Bearer {fake}\\r\\n')\n")
    };
    let body = format!(
        "{PLACES}\n{}{}{}places('', '{theirs}')",
        slot("in-place", &theirs),
        slot("guess", &guess),
        slot("both", &format!("{own} {theirs}"))
    );
    let found = again(sandbox, &body)?;
    alarmed(sandbox, &found, &theirs, "placeholder")?;
    audited(sandbox, "whose it is not", |event| {
        event["reason"] == "the request contains a placeholder that does not belong to this sandbox"
    });
    replaced(sandbox, &own)?;
    forked(sandbox, &own)?;
    Ok(format!("{} attempts, all refused with an alarm; a fork's means what the fork may do", found.len()))
}

/// A fork has its source's placeholder; the fork's own rules decide what it means there.
fn forked(sandbox: &Sandbox<'_>, own: &str) -> Result<(), RowFailure> {
    let daemon = &sandbox.ground.daemon;
    daemon.ok(&["fork", &sandbox.id, "--name", "fork-of-s7", "--files-only"]);
    let outcome = (|| {
        let rules = [serde_json::json!({ "host": "up.example" })];
        let (status, text) = super::try_apply(sandbox.ground, "fork-of-s7", &rules);
        ensure(status == 200, || text)?;
        let header = format!("Authorization: Bearer {own}");
        let line =
            ["exec", "fork-of-s7", "--", "curl", "-sS", "-i", "-H", &header, "https://up.example/v1/placed"];
        let said = String::from_utf8_lossy(&daemon.cli(&line).stdout).into_owned();
        sandbox.heard(said.as_bytes());
        ensure(said.contains(" 403") && said.contains("placeholder"), || format!("the fork got {said}"))
    })();
    daemon.ok(&["rm", "--purge", "-f", "fork-of-s7"]);
    outcome
}

fn foreign_unguarded(_: &Ground) -> Finding {
    heard("places('', KEY)", "sk-fake-0123456789")
}

/// For rows that only check that a connection is possible.
pub(super) fn works(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let found = inside(sandbox, "ask('good', '/v1/works')")?;
    answered(&found, &[200])?;
    kept(&found)
}

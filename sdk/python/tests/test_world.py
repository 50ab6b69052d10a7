"""Network in both directions: egress, ports, services and keys."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import httpx
import pytest
from daemon import Daemon, eventually

from burrow_sandbox import (
    Client,
    ConnectError,
    ForbiddenError,
    NotFoundError,
    Sandbox,
    UnauthorizedError,
    UnavailableError,
)


def test_pip_installs_the_package_that_the_daemon_serves(sandbox: Sandbox, tmp_path: Path) -> None:
    # Offline: building it needs no other package.
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
        "--no-cache-dir",
        "--target",
        str(tmp_path),
    ]
    address = f"{sandbox.client.url}/sdk/python"
    subprocess.run([sys.executable, "-m", "pip", "install", *options, address], check=True)
    installed, sources = tmp_path / "burrow_sandbox", Path(__file__).parents[1] / "src" / "burrow_sandbox"
    names = {str(path.relative_to(sources)) for path in sources.rglob("*.py")}
    assert names
    assert names == {str(path.relative_to(installed)) for path in installed.rglob("*.py")}
    assert (installed / "py.typed").exists()


def test_what_listens_is_reached(sandbox: Sandbox) -> None:
    sandbox.files.write("/srv/www/page", "hello from inside")
    sandbox.services.set("web", "cd /srv/www && exec python3 -m http.server 8000", restart="always")
    port = sandbox.ports.wait(8000, timeout=180)
    assert (port.process or "").startswith("python3")
    with sandbox.ports.http(8000) as http:
        assert http.get("/page").text == "hello from inside"
    url = httpx.URL(sandbox.get_url(8000, expires=600))
    # Browsers and curl resolve names below `localhost` to this machine; Python uses the system resolver.
    request = urllib.request.Request(str(url.copy_with(host="127.0.0.1", path="/page")))
    request.add_header("Host", url.netloc.decode())
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"hello from inside"
    path = f"{sandbox.client.url}/p/{sandbox.id}/8000/page"
    assert not httpx.get(path).is_success
    sandbox.ports.publish(8000)
    assert httpx.get(path).text == "hello from inside"
    assert [port.published for port in sandbox.ports.list()] == [True]
    sandbox.ports.unpublish(8000)
    assert not httpx.get(path).is_success
    before = sandbox.services.list()[0]
    sandbox.services.restart("web")
    eventually("another exec", lambda: sandbox.services.list()[0].exec_id != before.exec_id)
    sandbox.services.remove("web")
    assert sandbox.services.list() == []
    with pytest.raises(UnavailableError, match="nothing listens on port 9"):
        sandbox.ports.wait(9, timeout=0)


def test_nothing_is_reached_until_it_is_allowed(sandbox: Sandbox) -> None:
    denied = sandbox.run("python3 -c 'import urllib.request as u; u.urlopen(\"https://example.com\")'")
    assert denied.exit_code == 1
    assert "example.com" in [refusal.host for refusal in denied.egress_denied]
    eventually("an entry in the log", lambda: [entry.host for entry in sandbox.egress.log(denied=True)])
    with sandbox.egress.follow(denied=True, since=0) as log:
        assert next(log).host == "example.com"
    network = sandbox.egress.allow("example.com", "tcp://db.example.com:5432")
    assert network.allow == ["example.com", "tcp://db.example.com:5432"]
    assert sandbox.egress.explain("https://example.com/").allowed
    network = sandbox.egress.deny("example.com")
    assert network.allow == ["tcp://db.example.com:5432"]
    explained = sandbox.egress.explain("https://example.com/")
    assert not explained.allowed
    assert explained.hint
    assert sandbox.egress.set_mode("none").mode == "none"
    applied = sandbox.egress.apply({"egress": {"default": "deny", "allow": ["example.org"]}})
    assert applied.allow == ["example.org"]
    assert [rule.rule for rule in sandbox.egress.status().rules] == ["example.org"]
    assert sandbox.egress.approvals() == []
    with pytest.raises(NotFoundError):
        sandbox.egress.approve(7)


def test_secrets_are_used_and_never_read(sandbox: Sandbox) -> None:
    secrets = sandbox.secrets
    scope: list[str] = ["api.example.com"]
    secrets.set("openai", "sk-0123456789", allow=scope, header="Authorization: Bearer {}")
    sandbox.egress.allow("api.example.com", secret="openai", methods=["GET"], paths=["/v1/**"])
    explained = sandbox.egress.explain("https://api.example.com/v1/models", method="GET")
    assert explained.request is not None
    assert explained.request.secret == "openai"
    known = secrets.get("openai")
    assert known.used_by[0].id == sandbox.id
    assert "sk-0123456789" not in repr(known)
    assert secrets.rotate("openai", b"sk-9876543210").version == known.version + 1
    secrets.remove("openai", force=True)
    assert secrets.list() == []


def test_keys_reach_as_far_as_their_scope(client: Client, shared: Sandbox) -> None:
    made = client.create_key("reader", "read")
    with Client(client.url, made.secret) as reader:
        assert Sandbox.connect("shared", client=reader).id == shared.id
        with pytest.raises(ForbiddenError, match="hint: "):
            Sandbox.connect("shared", client=reader).run("true")
    client.revoke_key(made.key.id)
    with Client(client.url, made.secret) as reader, pytest.raises(UnauthorizedError):
        reader.host()


def test_the_host_and_its_images(client: Client) -> None:
    assert client.version().version
    assert client.host().sandboxes >= 0
    image = client.images.get("debian")
    assert image.history
    with pytest.raises(NotFoundError):
        client.images.get("no-such-image")


def test_everything_works_over_tls_for_whoever_trusts_the_certificate(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=burrow test", "-addext", "subjectAltName=IP:127.0.0.1"]
    extensions = ["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"]
    subprocess.run([*new, *names, *extensions, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    daemon = Daemon(f'tls.cert = "{certificate}"\ntls.key = "{key}"')
    try:
        daemon.start()
        url = daemon.url.replace("http:", "https:")
        with Client(url, daemon.key, ca_file=certificate) as client, Sandbox.create(client=client) as sandbox:
            assert len(sandbox.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000
            process = sandbox.spawn("cat", stdin=True)
            process.write("both ways", close=True)
            assert process.wait().stdout == "both ways"
        with Client(url, daemon.key) as stranger, pytest.raises(ConnectError, match="ca_file"):
            stranger.version()
    finally:
        daemon.remove()

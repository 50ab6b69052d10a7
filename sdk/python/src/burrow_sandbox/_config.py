"""Finds the daemon's address and API key: arguments, then the environment, then the files that the CLI reads."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from .errors import BurrowError

URL_DEFAULT = "http://127.0.0.1:7700"
ADMIN_KEY = Path("/etc/burrow/admin.key")


def find_url(url: str | None) -> str:
    """The daemon's address, without a trailing slash."""
    url = url or os.environ.get("BURROW_URL") or URL_DEFAULT
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BurrowError(
            f"`{url}` is not an http or https address",
            hint="use the form `http://host:7700` or `https://host:7700`",
        )
    return url.rstrip("/")


def find_key(api_key: str | None, url: str) -> str | None:
    """The first of: the argument, BURROW_API_KEY, ~/.config/burrow/key and, for loopback addresses, the admin key file."""
    key = api_key or os.environ.get("BURROW_API_KEY", "")
    if key.strip():
        return key.strip()
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    # The admin key of this host is never sent to another host.
    files = [folder / "burrow" / "key", *([ADMIN_KEY] if is_loopback(url) else [])]
    for file in files:
        try:
            text = file.read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if text:
            return text
    return None


def is_loopback(url: str) -> bool:
    """Whether an address is a loopback address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def connect_hint(url: str, cause: str) -> str:
    """The hint for a failed connection."""
    if "CERTIFICATE" in cause.upper():
        return "pass the CA of the certificate as `ca_file` (BURROW_CA_FILE), and use a host name of the certificate"
    if is_loopback(url):
        return "is the daemon running? try `burrow up`"
    return "check that the daemon is running on that host and that BURROW_URL is correct"

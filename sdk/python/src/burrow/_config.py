"""Where the daemon is, and which key opens it: arguments, then the environment, then the files the command line reads."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from .errors import BurrowError

URL_DEFAULT = "http://127.0.0.1:7700"
ADMIN_KEY = Path("/etc/burrow/admin.key")


def find_url(url: str | None) -> str:
    """The address without a final slash."""
    url = url or os.environ.get("BURROW_URL") or URL_DEFAULT
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BurrowError(
            f"`{url}` is not an http or https address",
            hint="give it as `http://host:7700` or `https://host:7700`",
        )
    return url.rstrip("/")


def find_key(api_key: str | None, url: str) -> str | None:
    """The first of the argument, BURROW_API_KEY, ~/.config/burrow/key and, for this host only, the daemon's own file."""
    key = api_key or os.environ.get("BURROW_API_KEY", "")
    if key.strip():
        return key.strip()
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    # The host's own key never goes to another host.
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
    """Whether an address leads to this very host."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def connect_hint(url: str, cause: str) -> str:
    """What to do when nobody answers."""
    if "CERTIFICATE" in cause.upper():
        return "trust the CA that signed it with `ca_file` (BURROW_CA_FILE), or use the name it was made for"
    if is_loopback(url):
        return "is the daemon running? try `burrow up`"
    return "is the daemon running there, and is BURROW_URL right?"

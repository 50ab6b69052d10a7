"""e2b-desktop: an XFCE desktop with its mouse, its keyboard, its screen and its stream.

    desktop.py [SCREENSHOT]      also keeps the last screenshot
"""

import io
import os
import sys
import time

import httpx
from e2b import CommandExitException
from e2b_desktop import Sandbox
from PIL import Image


def until(what, look):
    """Calls `look` until it returns a result: programs on the desktop start slowly."""
    for _ in range(600):
        try:
            found = look()
        except CommandExitException:
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"timed out waiting for {what}")


def picture(desktop):
    return Image.open(io.BytesIO(bytes(desktop.screenshot()))).convert("RGB")


def mouse(desktop):
    for place in ((300, 200), (700, 500)):
        desktop.move_mouse(*place)
        assert desktop.get_cursor_position() == place
    desktop.drag((300, 200), (320, 240))
    assert desktop.get_cursor_position() == (320, 240)
    desktop.right_click(900, 400)
    desktop.press("escape")


def program(desktop):
    """Launches a terminal, types a command, and checks its effect."""
    desktop.launch("xfce4-terminal")
    window = until("the terminal", lambda: [name for name in desktop.get_application_windows("xfce4-terminal") if name])[0]
    until("its focus", lambda: desktop.get_current_window_id() == window)
    assert "Terminal" in desktop.get_window_title(window)
    desktop.write("echo 'typed, ä' > typed")
    desktop.press("enter")
    until("what was typed", lambda: desktop.commands.run("cat typed").stdout == "typed, ä\n")
    after = picture(desktop)
    assert after.size == (1024, 768)
    # The terminal is dark and covers most of the screen.
    small = after.convert("L").resize((64, 48)).tobytes()
    dark = sum(1 for brightness in small if brightness < 16)
    assert dark > len(small) / 4, dark
    return after


def stream(desktop):
    desktop.stream.start(require_auth=True)
    url = desktop.stream.get_url(auth_key=desktop.stream.get_auth_key())
    assert url.startswith(f"https://{desktop.get_host(6080)}/vnc.html?") and "password=" in url, url
    # The daemon of the tests has no domain: requests go to its port with the host name of the URL.
    daemon = os.environ["BURROW_URL"]
    page = httpx.get(f"{daemon}/vnc.html", headers={"host": desktop.get_host(6080)})
    assert page.status_code == 200 and "noVNC" in page.text, (page.status_code, page.text[:200])
    upgrade = {
        "host": desktop.get_host(6080),
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": "binary",
    }
    with httpx.stream("GET", f"{daemon}/websockify", headers=upgrade, timeout=60) as answer:
        assert answer.status_code == 101, answer.status_code
        screen = answer.extensions["network_stream"].read(64, timeout=60)
        assert b"RFB 003" in screen, screen
    desktop.stream.stop()


# The URL of a stream is opened by a browser, which has no token.
desktop = Sandbox.create(timeout=600, network={"allow_public_traffic": True})
try:
    assert desktop.get_screen_size() == (1024, 768)
    mouse(desktop)
    last = program(desktop)
    if len(sys.argv) > 1:
        last.save(sys.argv[1])
    stream(desktop)
finally:
    desktop.kill()
print("ok e2b-desktop")

#!/usr/bin/env python3
"""Runs the commands of a file against the local daemon and draws the session as an SVG.

    scripts/record-session.py scripts/session.txt docs/images/session.svg

Empty lines and lines that start with `#` are skipped. A line that starts with `!` runs without being shown, for set-up and clean-up. The
recording fails if a command does. Ids, which change with each run, stay as they were printed.
"""

import html
import os
import re
import subprocess
import sys

COLUMNS = 96
LINE_HEIGHT, CHARACTER_WIDTH, MARGIN, BAR_HEIGHT = 19, 8.4, 16, 34
BACKGROUND, TEXT, PROMPT, COMMAND = "#16181d", "#c8ccd4", "#7ec699", "#ffffff"


def run(command):
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        sys.exit(f"`{command}` failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def record(path):
    lines = []
    with open(path, encoding="utf-8") as script:
        for line in map(str.rstrip, script):
            if not line or line.startswith("#"):
                continue
            if line.startswith("!"):
                run(line[1:])
                continue
            lines.append([(PROMPT, "$ "), (COMMAND, line)])
            output = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", run(line))
            lines += [[(TEXT, text.rstrip()[:COLUMNS])] for text in output.splitlines()]
    return lines


def draw(lines):
    width = MARGIN * 2 + COLUMNS * CHARACTER_WIDTH
    height = BAR_HEIGHT + MARGIN + len(lines) * LINE_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}" '
        'role="img" aria-label="A terminal session">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        *[f'<circle cx="{20 + 20 * at}" cy="17" r="6" fill="{color}"/>' for at, color in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))],
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        y = BAR_HEIGHT + 14 + number * LINE_HEIGHT
        spans = "".join(f'<tspan fill="{color}">{html.escape(text)}</tspan>' for color, text in line)
        parts.append(f'<text x="{MARGIN}" y="{y}">{spans}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main():
    script, picture = sys.argv[1:]
    drawn = draw(record(script))
    with open(picture, "w", encoding="utf-8") as file:
        file.write(drawn)


main()

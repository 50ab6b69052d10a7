"""A data analyst: a loop with the `anthropic` client whose tool is a notebook, and which sees the plots it makes.

    pip install burrow-sdk anthropic
    burrow image build --ready python-interpreter
    export ANTHROPIC_API_KEY=...
    python data_analyst.py sales.csv "in which month did we sell the most? show me a plot"

The sandbox is called `data-analyst`. Its variables are those of the last question: a table that was loaded once stays loaded,
also while the sandbox sleeps. Plots are written to the folder you call it from.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

from anthropic import Anthropic

from burrow import CodeRun, Sandbox

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
IMAGE = os.environ.get("IMAGE", "python-interpreter")
INSTRUCTIONS = (
    "You answer questions about data with Python: pandas and matplotlib are there, and variables stay from one call to the "
    "next. Plots that you show are shown to you. Answer in a line or two."
)
RUN_CODE = {
    "name": "run_code",
    "description": "Runs Python as a cell of a notebook would; answers with output, errors, and what was shown.",
    "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}
# What a model is shown of an output, and how often it may use the tool before it has to come to an end.
SHOWN = 10_000
TURNS_MAX = 30


def shown(run: CodeRun) -> list[dict[str, Any]]:
    """What the tool answers. Code that fails is something to learn from, not an error of ours."""
    texts = [run.stdout, run.stderr, *(result.text or "" for result in run.results)]
    texts += [run.error.traceback] if run.error else []
    said = "\n".join(text[-SHOWN:] for text in texts if text)
    content: list[dict[str, Any]] = [{"type": "text", "text": said or f"nothing was shown: {run.status}"}]
    for result in run.results:
        if result.png:
            source = {"type": "base64", "media_type": "image/png", "data": result.png}
            content.append({"type": "image", "source": source})
    return content


def keep(run: CodeRun, number: int) -> int:
    """Writes its plots to where we are, and answers the number of the next."""
    for result in run.results:
        if result.png:
            Path(f"plot-{number}.png").write_bytes(base64.b64decode(result.png))
            print(f"wrote plot-{number}.png")
            number += 1
    return number


def ask(sandbox: Sandbox, question: str) -> str:
    """One question, with as many turns as it takes."""
    client, plots = Anthropic(), 1
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(TURNS_MAX):
        reply = client.messages.create(
            model=MODEL, max_tokens=4000, system=INSTRUCTIONS, tools=[RUN_CODE], messages=messages
        )
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        results = []
        for block in reply.content:
            if block.type == "tool_use":
                run = sandbox.run_code(block.input["code"], timeout=300)
                plots = keep(run, plots)
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": shown(run)})
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": results})
    return "(gave up: too many turns)"


def main(file: str, question: str) -> None:
    """Puts the file where the analyst finds it, and asks."""
    sandbox = Sandbox.get_or_create("data-analyst", IMAGE)
    place = f"/srv/data/{Path(file).name}"
    sandbox.files.upload(file, place)
    print(ask(sandbox, f"{question}\n\nThe data is in {place}."))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], " ".join(sys.argv[2:]))

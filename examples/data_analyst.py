"""A data analyst: a loop with the `anthropic` client and a notebook as its tool. The model sees the plots it creates.

    pip install http://localhost:7700/sdk/python anthropic
    burrow image build --ready python-interpreter
    export ANTHROPIC_API_KEY=...
    python data_analyst.py sales.csv "in which month did we sell the most? show me a plot"

The sandbox is called `data-analyst`. Variables persist between questions: a table that was loaded stays loaded, even if
the sandbox sleeps in between. Plots are written to the current directory.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

from anthropic import Anthropic

from burrow_sandbox import CodeRun, Sandbox

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
# How many characters of an output the model receives, and the maximum number of turns.
SHOWN = 10_000
TURNS_MAX = 30


def shown(run: CodeRun) -> list[dict[str, Any]]:
    """The result of the tool. Code that fails is a result for the model, not an error of this program."""
    texts = [run.stdout, run.stderr, *(result.text or "" for result in run.results)]
    texts += [run.error.traceback] if run.error else []
    said = "\n".join(text[-SHOWN:] for text in texts if text)
    content: list[dict[str, Any]] = [{"type": "text", "text": said or f"no output: {run.status}"}]
    for result in run.results:
        if result.png:
            source = {"type": "base64", "media_type": "image/png", "data": result.png}
            content.append({"type": "image", "source": source})
    return content


def keep(run: CodeRun, number: int) -> int:
    """Writes the plots of a run to the current directory, and returns the number of the next plot."""
    for result in run.results:
        if result.png:
            Path(f"plot-{number}.png").write_bytes(base64.b64decode(result.png))
            print(f"wrote plot-{number}.png")
            number += 1
    return number


def ask(sandbox: Sandbox, question: str) -> str:
    """Answers one question in a loop of model calls and tool calls."""
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
    """Uploads the file and asks the question."""
    sandbox = Sandbox.get_or_create("data-analyst", IMAGE)
    place = f"/srv/data/{Path(file).name}"
    sandbox.files.upload(file, place)
    print(ask(sandbox, f"{question}\n\nThe data is in {place}."))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], " ".join(sys.argv[2:]))

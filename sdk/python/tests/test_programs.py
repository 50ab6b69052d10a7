"""Runs the programs of `examples/` against a real daemon and a fake endpoint for the model APIs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import PATIENCE, Daemon
from model import Message, Model, call, said, text_of

from burrow_sandbox import Client, Sandbox

EXAMPLES = Path(__file__).parents[3] / "examples"
FACT = "the deploy host is called walrus-7"


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.close()


def environment(daemon: Daemon, model: Model) -> dict[str, str]:
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "BURROW_API_KEY": daemon.key}
    urls = {"ANTHROPIC_BASE_URL": model.root, "OPENAI_BASE_URL": model.url, "BURROW_URL": daemon.url}
    return {**os.environ, **keys, **urls, "PYTHONUNBUFFERED": "1"}


def program(daemon: Daemon, model: Model, name: str, *arguments: str, folder: Path | None = None) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    env = environment(daemon, model)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["plain_loop.py", "langgraph_agent.py", "openai_agents_sdk.py"])
def test_a_loop_uses_its_sandbox_and_remembers(daemon: Daemon, client: Client, model: Model, name: str) -> None:
    assert FACT in program(daemon, model, name, f"run echo {FACT} | tee /srv/note")
    found = program(daemon, model, name, "which host is the deploy host?")
    assert "walrus-7" in found, "another process, another conversation"
    (sandbox,) = [
        one for one in Sandbox.list(client=client) if (one.name or "x") in name.replace("_", "-") + "openai-agent"
    ]
    assert sandbox.run("cat /srv/note").stdout == f"{FACT}\n"
    sandbox.delete(snapshots=True)


class Analyst:
    """Loads the data, makes a mistake, stores a fact about it, plots, and repeats the last tool result."""

    CELLS = (
        "import pandas as pd; sales = pd.read_csv('/srv/data/sales.csv'); len(sales)",
        "sales['mont']",
        "import matplotlib.pyplot as plt; plt.bar(sales['month'], sales['sold']); plt.show()",
        "sales.loc[sales['sold'].idxmax(), 'month']",
    )

    def __call__(self, messages: list[Message], tools: list[str]) -> Message:
        results = [text_of(message) for message in messages if message["role"] == "tool"]
        assert tools == ["run_code"]
        if len(results) == 2:
            assert "KeyError" in results[1], results
        if len(results) == 3:
            pictures = [part for part in messages[-1]["content"] if part["type"] == "image"]
            assert len(pictures) == 1, "it sees what it drew"
        return call("run_code", code=self.CELLS[len(results)]) if len(results) < 4 else said(f"it was {results[-1]}")


def test_an_analyst_has_a_notebook(daemon: Daemon, client: Client, interpreter: str, tmp_path: Path) -> None:
    model = Model(Analyst())
    (tmp_path / "sales.csv").write_text("month,sold\nMay,3\nJune,9\nJuly,4\n")
    try:
        arguments = ("sales.csv", "which month was the best?")
        assert "it was June" in program(daemon, model, "data_analyst.py", *arguments, folder=tmp_path)
    finally:
        model.close()
    assert (tmp_path / "plot-1.png").read_bytes().startswith(b"\x89PNG")
    analyst = Sandbox.connect("data-analyst", client=client)
    assert analyst.run_code("len(sales)", check=True).text == "3", "the table is still loaded"
    analyst.delete()


class Coder:
    """Answers three attempts: the first is wrong, the second correct, the third correct but longer."""

    RIGHT = "def slug(text):\n    return '-'.join(text.lower().split())\n"
    ANSWERS = ("def slug(text):\n    return text.lower()\n", RIGHT, "import re\n\n\n# At length.\n" + RIGHT)

    def __init__(self, interrupt: threading.Event | None = None) -> None:
        self.interrupt = interrupt
        self.lock = threading.Lock()
        self.done = 0

    def __call__(self, messages: list[Message], tools: list[str]) -> Message:
        task = next(text_of(message) for message in messages if message["role"] == "user")
        attempt = int(task.partition("(attempt ")[2][0]) - 1
        results = [text_of(message) for message in messages if message["role"] == "tool"]
        with self.lock:
            self.done += 1
            if self.done == 5 and self.interrupt:
                self.interrupt.set()
        match results:
            case []:
                return call("run", command="python3 -m unittest -q")
            case [failed]:
                assert "AssertionError" in failed, failed
                return call("write", path="/srv/project/slug.py", content=self.ANSWERS[attempt])
            case [_, "written"]:
                return call("run", command="python3 -m unittest -q")
            case [*_, last]:
                return said("slug joins lower-case words with dashes" if "exit code 0" in last else "could not do it")
        raise AssertionError(results)


def test_a_coding_agent_survives_the_daemon_and_brings_its_best_attempt_home(tmp_path: Path) -> None:
    daemon = Daemon()
    interrupt = threading.Event()
    model = Model(Coder(interrupt))
    try:
        daemon.start()
        command = [sys.executable, str(EXAMPLES / "coding_agent.py")]
        with open(tmp_path / "out", "w+") as out:
            agent = subprocess.Popen(command, env=environment(daemon, model), stdout=out, stderr=out)
            # The daemon is killed and restarted while attempts are running.
            assert interrupt.wait(PATIENCE), (tmp_path / "out").read_text()
            daemon.end(signal.SIGKILL)
            daemon.start()
            code = agent.wait(PATIENCE)
        shown = (tmp_path / "out").read_text()
        assert code == 0, shown
        assert "attempt 1: failed" in shown, shown
        assert "attempt 2: passed" in shown, shown
        with Client(daemon.url, daemon.key) as client:
            coder = Sandbox.connect("coder", client=client)
            assert coder.files.read("/srv/project/slug.py") == Coder.RIGHT, shown
            assert [one.name for one in Sandbox.list(client=client)] == ["coder"], "the attempts are gone"
            best = coder.memory.retrieve("how are slugs made?", n_results=3)
            assert any("joins lower-case words" in hit.entry.text for hit in best), best
        # The next task recalls the facts of this one and uses the same sandbox.
        assert "joins lower-case words" in program_again(daemon)
    finally:
        model.close()
        with Client(daemon.url, daemon.key) as client:
            for sandbox in Sandbox.list(client=client):
                sandbox.delete(snapshots=True)
        daemon.remove()


def program_again(daemon: Daemon) -> str:
    model = Model(lambda _messages, _tools: said("nothing to do"))
    try:
        return program(daemon, model, "coding_agent.py", "make the tests of the slugs pass")
    finally:
        model.close()

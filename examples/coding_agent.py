"""A persistent coding agent: it forks into attempts, keeps the best one, and remembers what it learned.

    pip install http://localhost:7700/sdk/python anthropic
    export ANTHROPIC_API_KEY=...
    python coding_agent.py                                                # a small project of its own, with a bug
    python coding_agent.py --project ./app --test "npm test" "make the tests pass"

The project is in a persistent sandbox called `coder`. Each attempt is a fork of it, with the same files, processes and
memory, and isolated from the other attempts. The best one is merged, the others are deleted. The daemon and this program
may be restarted at any moment: the state of the work is stored in the sandbox, and the next run continues from there.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from anthropic import Anthropic

from burrow_sandbox import NotFoundError, Sandbox
from burrow_sandbox.agents import AgentMemory

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
PROJECT = "/srv/project"
ATTEMPTS = 3
TURNS_MAX = 40
SHOWN = 10_000
# Keys in the sandbox's memory that store the state of the work.
JOB, VERDICT = "coder/job", "coder/verdict"

STYLES = ["make the smallest change that works", "read everything first, then change it", "do it as a purist would"]
INSTRUCTIONS = f"You are a programmer. The project is in {PROJECT}. Run its tests, change its files, and say in one line what it took."
TOOLS = [
    {
        "name": "run",
        "description": f"Runs a shell command in {PROJECT}.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
    {
        "name": "write",
        "description": "Writes a whole file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    },
]

SAMPLE = {
    "slug.py": "def slug(text):\n    return text.replace(' ', '-')\n",
    "test_slug.py": "import unittest\n\nfrom slug import slug\n\n\nclass Slugs(unittest.TestCase):\n"
    "    def test_words(self):\n        self.assertEqual(slug('Hello  big World'), 'hello-big-world')\n",
}


@dataclass
class Attempt:
    """The outcome of one fork."""

    child: Sandbox
    passed: bool
    lines: int
    said: str


def main() -> int:
    """One task: fork, try, judge, merge, remember."""
    parser = argparse.ArgumentParser(description="A persistent coding agent.")
    parser.add_argument("task", nargs="?", default="make the tests pass")
    parser.add_argument("--project", help="a folder to work on; defaults to a small project with a bug")
    parser.add_argument("--test", default="python3 -m unittest -q", help="a command that exits with 0 on success")
    given = parser.parse_args()

    sandbox = Sandbox.get_or_create("coder")
    prepare(sandbox, given.project)
    known = sandbox.memory.format_for_context(given.task, max_memories=5)
    if known:
        print("remembered:", known, sep="\n")
    children = forks(sandbox, given.task)
    with ThreadPoolExecutor(len(children)) as pool:
        attempts = list(
            pool.map(lambda at: attempt(sandbox, children[at], at, given.task, given.test), range(len(children)))
        )
    for number, one in enumerate(attempts):
        print(f"attempt {number + 1}: {'passed' if one.passed else 'failed'}, {one.lines} lines: {one.said}")
    good = [one for one in attempts if one.passed]
    if good:
        bring_home(sandbox, min(good, key=lambda one: one.lines), given.task)
    sandbox.memory.kv.delete(JOB)
    for one in attempts:
        one.child.delete()
    return 0 if good else 1


def prepare(sandbox: Sandbox, folder: str | None) -> None:
    """Uploads the project, unless an earlier run did."""
    if sandbox.files.exists(PROJECT):
        return
    if folder:
        sandbox.files.upload(folder, PROJECT)
        return
    for name, text in SAMPLE.items():
        sandbox.files.write(f"{PROJECT}/{name}", text)


def forks(sandbox: Sandbox, task: str) -> list[Sandbox]:
    """Returns the unfinished attempts of an earlier run, or creates new ones."""
    job = sandbox.memory.kv.get(JOB)
    if job and job["task"] == task:
        try:
            found = [Sandbox.connect(child) for child in job["children"]]
            print(f"continuing with {len(found)} attempts")
            return found
        except NotFoundError:
            print("the attempts of the last run no longer exist; starting again")
    children = sandbox.fork(ATTEMPTS)
    sandbox.memory.kv.set(JOB, {"task": task, "children": [child.id for child in children]})
    return children


def attempt(sandbox: Sandbox, child: Sandbox, number: int, task: str, test: str) -> Attempt:
    """Runs the agent in one fork until it has finished, then runs the tests."""
    said = child.memory.kv.get(VERDICT)
    if said is None:
        said = work(child, f"{task}\n(attempt {number + 1}: {STYLES[number % len(STYLES)]})")
        child.memory.kv.set(VERDICT, said)
    passed = child.run(test, workdir=PROJECT, timeout=600).ok
    diff = child.diff(sandbox, globs=[f"{PROJECT}/**"], content=True)
    lines = sum(entry.lines.added + entry.lines.removed for entry in diff.entries if entry.lines)
    return Attempt(child, passed, lines, said)


def work(child: Sandbox, task: str) -> str:
    """The agent loop: recall, call the model, store, run the tools."""
    client, memory = Anthropic(), AgentMemory(child)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    for _ in range(TURNS_MAX):
        system = f"{INSTRUCTIONS}\n\n{memory.block(messages)}"
        reply = client.messages.create(model=MODEL, max_tokens=8000, system=system, tools=TOOLS, messages=messages)
        memory.after(messages, reply)
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": use(child, block.name, block.input)}
            for block in reply.content
            if block.type == "tool_use"
        ]
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": results})
    return "gave up: too many turns"


def use(child: Sandbox, tool: str, given: dict[str, Any]) -> str:
    """Runs a tool and returns its result."""
    if tool == "write":
        child.files.write(given["path"], given["content"])
        return "written"
    result = child.run(given["command"], workdir=PROJECT, timeout=600)
    return f"exit code {result.exit_code}\n{result.stdout[-SHOWN:]}{result.stderr[-SHOWN:]}"


def bring_home(sandbox: Sandbox, best: Attempt, task: str) -> None:
    """Merges the best attempt, including its memory, and stores the lesson."""
    merged = sandbox.merge(best.child, policies={"**/__pycache__/**": "theirs"})
    lesson = f"{task}: {best.said}"
    sandbox.memory.store(lesson, kind="fact", importance=0.9)
    print(f"merged {best.child.id}; learned: {lesson}")
    if merged.undo:
        print(f"to undo the merge: burrow snapshot restore {merged.undo.id} --in-place coder")


if __name__ == "__main__":
    sys.exit(main())

"""Runs the examples of the guides and of every docstring of both interfaces against a real daemon."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import os
import pkgutil
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from daemon import Daemon

import burrow_sandbox
import burrow_sandbox._async
import burrow_sandbox._sync
from burrow_sandbox import AsyncClient, AsyncSandbox, Client, Sandbox

SDK = Path(__file__).parent.parent
GUIDES = [SDK / "README.md", SDK.parent.parent / "docs" / "sdk-python.md"]
# Examples that run code need another image than the rest.
ABOUT_CODE = ("run_code", ".contexts.")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for package in (burrow_sandbox._async, burrow_sandbox._sync):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            for test in finder.find(importlib.import_module(found.name)):
                if test.examples:
                    yield test


EXAMPLES = list(_examples())


class Runner:
    """Runs the examples of one docstring, with top-level `await` allowed, and compares their output."""

    def __init__(self, names: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.names = names
        self.loop = loop
        self.checker = doctest.OutputChecker()

    def run(self, test: doctest.DocTest) -> None:
        for example in test.examples:
            printed = self._printed(example, f"{test.name}, line {(test.lineno or 0) + example.lineno + 1}")
            if not self.checker.check_output(example.want, printed, FLAGS):
                difference = self.checker.output_difference(example, printed, FLAGS)
                pytest.fail(f"{test.name}: {example.source}{difference}", pytrace=False)

    def _printed(self, example: doctest.Example, where: str) -> str:
        out = io.StringIO()
        code = compile(example.source, f"<{where}>", "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            result = eval(code, self.names)
            if inspect.iscoroutine(result):
                self.loop.run_until_complete(cast(Awaitable[None], result))
        return out.getvalue()


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def stage(daemon: Daemon, loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[bool], dict[str, Any]]]:
    """The variables of examples: `client` and `sandbox`, of either interface."""
    os.environ["BURROW_URL"], os.environ["BURROW_API_KEY"] = daemon.url, daemon.key
    os.chdir(SDK)
    client = Client()
    # Not the shared sandbox: examples put this one to sleep, which processes of other tests could prevent.
    sandbox = Sandbox.create(client=client)

    async def asynchronous() -> tuple[AsyncClient, AsyncSandbox]:
        client = AsyncClient()
        return client, await AsyncSandbox.create(client=client)

    async_client, async_sandbox = loop.run_until_complete(asynchronous())

    def names(is_async: bool) -> dict[str, Any]:
        public = {name: getattr(burrow_sandbox, name) for name in burrow_sandbox.__all__}
        if is_async:
            return {**public, "client": async_client, "sandbox": async_sandbox}
        return {**public, "client": client, "sandbox": sandbox}

    yield names
    sandbox.delete(snapshots=True)
    loop.run_until_complete(async_sandbox.delete(snapshots=True))
    loop.run_until_complete(async_client.aclose())
    client.close()


def test_there_are_examples_of_both_faces() -> None:
    faces = [test.name.split(".")[1] for test in EXAMPLES]
    assert faces.count("_async") == faces.count("_sync") >= 20


@pytest.fixture
def code_stage(
    stage: Callable[[bool], dict[str, Any]], loop: asyncio.AbstractEventLoop, interpreter: str
) -> Iterator[Callable[[bool], dict[str, Any]]]:
    """The same variables, where `sandbox` can run code."""
    made: list[Sandbox] = []

    def names(is_async: bool) -> dict[str, Any]:
        sandbox = Sandbox.create(interpreter, client=stage(False)["client"])
        made.append(sandbox)
        if not is_async:
            return {**stage(False), "sandbox": sandbox}
        found = stage(True)
        connecting = AsyncSandbox.connect(sandbox.id, client=found["client"])
        return {**found, "sandbox": loop.run_until_complete(connecting)}

    yield names
    for sandbox in made:
        sandbox.delete()


def is_about_code(test: doctest.DocTest) -> bool:
    return any(word in example.source for word in ABOUT_CODE for example in test.examples)


@pytest.mark.parametrize("test", EXAMPLES, ids=lambda test: test.name.removeprefix("burrow_sandbox."))
def test_example(test: doctest.DocTest, request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    names = request.getfixturevalue("code_stage" if is_about_code(test) else "stage")
    Runner(names("._async." in test.name), loop).run(test)


def session(guide: Path, fence: str) -> doctest.DocTest:
    """Runs the Python blocks of a guide in order, as one session."""
    blocks = re.findall(rf"^```{fence}\n(.*?)^```$", guide.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert blocks, "a guide shows how"
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, guide.name, str(guide), 0)
    assert len(test.examples) >= len(blocks), "a block that is no session is not tested"
    return test


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_guide(
    guide: Path, stage: Callable[[bool], dict[str, Any]], loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    Runner(stage(False), loop).run(session(guide, "python"))


def test_guide_of_code(code_stage: Callable[[bool], dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
    Runner(code_stage(False), loop).run(session(GUIDES[-1], "python interpreter"))

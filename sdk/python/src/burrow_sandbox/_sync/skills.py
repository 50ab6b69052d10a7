# Generated from _async/skills.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Skills of a memory: reusable procedures, with a record of their outcomes."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from .. import params, types
from .._decode import decode
from .._wire import given, path
from .transport import Transport


class Skills:
    """Skills: steps with parameters, and a record of successful and failed runs.

    >>> _ = sandbox.memory.skills.add("greet", "says hello", ["echo hello {{who}}"], parameters=["who"])
    >>> done = sandbox.memory.skills.run("greet", {"who": "world"})
    >>> done.ok, done.steps[0].stdout
    (True, 'hello world\\n')
    """

    def __init__(self, transport: Transport, of: str) -> None:
        self._transport = transport
        self._of = of

    def add(
        self,
        name: str,
        description: str,
        steps: Sequence[str | params.SkillStep],
        *,
        when_to_use: str | None = None,
        parameters: Sequence[str | params.SkillParameter] | None = None,
        source: str | None = None,
        space: str | None = None,
    ) -> types.Skill:
        """Adds a skill, or a new version of it. A step that is a string is a shell command line; `{{name}}` is a parameter."""
        body = given(
            name=name,
            description=description,
            steps=[{"kind": "command", "run": step} if isinstance(step, str) else step for step in steps],
            when_to_use=when_to_use,
            parameters=[{"name": one, "required": True} if isinstance(one, str) else one for one in parameters or []],
            source=source,
        )
        return self._transport.send(types.Skill, "POST", self._path(), body, space=space)

    def promote(
        self,
        name: str,
        first: str,
        last: str | None = None,
        *,
        description: str | None = None,
        when_to_use: str | None = None,
        parameters: Mapping[str, str] | None = None,
        sandbox: str | None = None,
        include_failed: bool = False,
        space: str | None = None,
    ) -> types.Skill:
        """Creates a skill from the execs `first` to `last`, given by id. Values of `parameters` are replaced by their names."""
        body = given(
            name=name,
            first=first,
            last=last,
            description=description,
            when_to_use=when_to_use,
            parameters=dict(parameters) if parameters else None,
            sandbox=sandbox,
            include_failed=include_failed or None,
        )
        return self._transport.send(types.Skill, "POST", self._path("promote"), body, space=space)

    def search(
        self, query: str, n_results: int | None = None, *, as_of: str | int | None = None
    ) -> builtins.list[types.FoundSkill]:
        """Skills that match a query. Successful ones are ranked before failed ones."""
        found = self._transport.send(
            types.FoundSkills,
            "POST",
            self._path("search"),
            given(query=query, limit=n_results),
            repeat=True,
            as_of=as_of,
        )
        return found.hits

    def run(
        self,
        name: str,
        parameters: Mapping[str, str] | None = None,
        *,
        version: int | None = None,
        sandbox: str | None = None,
        user: str | None = None,
        space: str | None = None,
    ) -> types.SkillRun:
        """Runs the steps in the sandbox until one fails, and records the outcome."""
        body = given(parameters=dict(parameters or {}), version=version, sandbox=sandbox, user=user)
        return self._transport.send(types.SkillRun, "POST", self._path(name, "run"), body, space=space)

    def get(
        self, name: str, *, version: int | None = None, as_of: str | int | None = None, space: str | None = None
    ) -> types.Skill:
        """A skill, by name."""
        return self._transport.get(types.Skill, self._path(name), version=version, as_of=as_of, space=space)

    def list(self, *, as_of: str | int | None = None, space: str | None = None) -> builtins.list[types.Skill]:
        """All skills."""
        return self._transport.all(types.Skill, self._path(), as_of=as_of, space=space)

    def versions(self, name: str, *, space: str | None = None) -> builtins.list[types.Skill]:
        """All versions of a skill."""
        rows = self._transport.json("GET", self._path(name, "versions"), params={"space": space}, repeat=True)
        return [decode(types.Skill, row) for row in rows]

    def record(
        self,
        name: str,
        ok: bool,
        *,
        detail: str | None = None,
        exit_code: int | None = None,
        version: int | None = None,
        space: str | None = None,
    ) -> types.Skill:
        """Records the outcome of a skill whose steps were run by the caller."""
        body = given(ok=ok, detail=detail, exit_code=exit_code)
        return self._transport.send(
            types.Skill, "POST", self._path(name, "outcome"), body, version=version, space=space
        )

    def remove(self, name: str, *, space: str | None = None) -> None:
        """Removes a skill."""
        self._transport.nothing("DELETE", self._path(name), repeat=True, space=space)

    def _path(self, *rest: str) -> str:
        return path("memory", self._of, "skills", *rest)

# Generated from _async/memory.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""The memory of an agent: entries, keys, skills and artifacts."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import params, types
from .._decode import decode
from .._wire import Duration, dump, given, new_key, path, seconds
from .artifacts import Artifacts
from .kv import Kv
from .skills import Skills
from .transport import Transport

RESULTS_DEFAULT = 5


class Memory:
    """The memory of a sandbox or of a named space.

    >>> _ = sandbox.memory.store("the staging database is db-2", kind="fact")
    >>> hits = sandbox.memory.retrieve("where is staging's data?", n_results=1)
    >>> hits[0].entry.text
    'the staging database is db-2'
    """

    def __init__(self, transport: Transport, of: str) -> None:
        self._transport = transport
        self._of = of
        self.kv = Kv(transport, of)
        self.skills = Skills(transport, of)
        self.artifacts = Artifacts(transport, of)

    def store(
        self,
        text: str,
        *,
        kind: str = "note",
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        session: str | None = None,
        source: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        supersedes: Sequence[str] | None = None,
        links: Sequence[str] | None = None,
        artifacts: Sequence[str] | None = None,
        at_ms: int | None = None,
        valid_from_ms: int | None = None,
        valid_to_ms: int | None = None,
        key: str | None = None,
        space: str | None = None,
    ) -> str:
        """Stores a text verbatim and returns the id of its entry.

        `kind` is any lower-case word: `note`, `fact`, `decision`, ... Storing the same `key` again stores nothing new.
        """
        entry = given(
            text=text,
            kind=kind,
            metadata=dict(metadata) if metadata is not None else None,
            importance=importance,
            session=session,
            source=source,
            user=user,
            agent=agent,
            supersedes=list(supersedes) if supersedes else None,
            links=list(links) if links else None,
            artifacts=list(artifacts) if artifacts else None,
            at_ms=at_ms,
            valid_from_ms=valid_from_ms,
            valid_to_ms=valid_to_ms,
            # With a unique key, the request can be retried when the connection breaks.
            key=key or new_key(),
        )
        added = self._transport.send(types.AddedEntries, "POST", self._path("entries"), entry, repeat=True, space=space)
        return added.entries[0].id

    def store_many(
        self, entries: Iterable[params.NewEntry], *, space: str | None = None
    ) -> builtins.list[types.AddedEntry]:
        """Stores up to a thousand texts atomically."""
        rows = [{"key": new_key(), **entry} for entry in entries]
        added = self._transport.send(
            types.AddedEntries, "POST", self._path("entries"), {"entries": rows}, repeat=True, space=space
        )
        return added.entries

    def retrieve(
        self,
        query: str,
        n_results: int = RESULTS_DEFAULT,
        memory_type: str | Sequence[str] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        session: str | None = None,
        min_score: float | None = None,
        half_life: Duration | None = None,
        include_cold: bool = False,
        filter: params.EntryFilter | None = None,
        spaces: Sequence[str] | None = None,
        as_of: str | int | None = None,
    ) -> builtins.list[types.MemoryHit]:
        """The entries that match a query best, best first.

        `memory_type` is one kind or several; `metadata` must be equal; `as_of` is a sequence number, a time or a snapshot.
        """
        found = self.search(
            given(
                query=query,
                limit=n_results,
                filter=_filter(memory_type, metadata, session, filter),
                min_score=min_score,
                half_life_seconds=seconds(half_life),
                include_cold=include_cold or None,
                spaces=list(spaces) if spaces else None,
            ),
            as_of=as_of,
        )
        return found.hits

    def search(
        self, request: params.SearchMemory | dict[str, Any], *, as_of: str | int | None = None
    ) -> types.SearchResult:
        """The complete result of a search: hits, the search methods used, and the duration."""
        return self._transport.send(types.SearchResult, "POST", self._path("search"), request, repeat=True, as_of=as_of)

    def format_for_context(
        self,
        query: str | None = None,
        max_memories: int | None = None,
        *,
        budget_tokens: int | None = None,
        memory_type: str | Sequence[str] | None = None,
        session: str | None = None,
        spaces: Sequence[str] | None = None,
        as_of: str | int | None = None,
    ) -> str:
        """A memory block for a prompt: entries with dates and ids, marked as data so that they are not read as instructions.

        Without a query, it covers the last session, open work and recent failures. Empty if nothing was found.

        >>> _ = sandbox.memory.store("deploys need VPN profile `blue`", kind="fact")
        >>> block = sandbox.memory.format_for_context("how do I deploy?", max_memories=3)
        >>> "VPN profile" in block
        True
        """
        chosen = _filter(memory_type, None, None, None)
        if query is not None and max_memories is not None:
            hits = self.retrieve(query, max_memories, memory_type, spaces=spaces, as_of=as_of)
            if not hits:
                return ""
            chosen = {**(chosen or {}), "ids": [hit.entry.id for hit in hits]}
        block = self.context(
            given(
                query=query,
                filter=chosen,
                budget_tokens=budget_tokens,
                session=session,
                spaces=list(spaces) if spaces else None,
            ),
            as_of=as_of,
        )
        return block.text if block.ids or query is None else ""

    def context(
        self, request: params.ContextRequest | dict[str, Any], *, as_of: str | int | None = None
    ) -> types.ContextBlock:
        """The complete context block: text, ids, tokens used."""
        return self._transport.send(
            types.ContextBlock, "POST", self._path("context"), request, repeat=True, as_of=as_of
        )

    def recall(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        budget_tokens: int | None = None,
        session: str | None = None,
        as_of: str | int | None = None,
    ) -> types.ContextBlock:
        """Recalls the memory related to a conversation, before a turn of an agent loop."""
        body = given(messages=[dict(message) for message in messages], budget_tokens=budget_tokens, session=session)
        return self._transport.send(types.ContextBlock, "POST", self._path("recall"), body, repeat=True, as_of=as_of)

    def store_turn(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        session: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        space: str | None = None,
    ) -> types.StoredTurn:
        """Stores the messages of a turn of an agent loop, in the format of model APIs. Stored messages are not stored again."""
        body = given(messages=[dict(message) for message in messages], session=session, user=user, agent=agent)
        return self._transport.send(types.StoredTurn, "POST", self._path("turns"), body, repeat=True, space=space)

    def get(self, id: str, *, as_of: str | int | None = None, space: str | None = None) -> types.MemoryEntry:
        """An entry, by id."""
        return self._transport.get(types.MemoryEntry, self._path("entries", id), as_of=as_of, space=space)

    def list(
        self,
        memory_type: str | None = None,
        *,
        session: str | None = None,
        include_cold: bool = False,
        include_superseded: bool = False,
        as_of: str | int | None = None,
        space: str | None = None,
    ) -> builtins.list[types.MemoryEntry]:
        """All entries, newest first."""
        return self._transport.all(
            types.MemoryEntry,
            self._path("entries"),
            kind=memory_type,
            session=session,
            include_cold=include_cold,
            include_superseded=include_superseded,
            as_of=as_of,
            space=space,
        )

    def update(
        self, id: str, change: params.UpdateEntry | dict[str, Any], *, space: str | None = None
    ) -> types.MemoryEntry:
        """Creates a new version of an entry. With `if_version`, a concurrent change raises `ConflictError`."""
        return self._transport.send(types.MemoryEntry, "PATCH", self._path("entries", id), change, space=space)

    def history(self, id: str, *, space: str | None = None) -> builtins.list[types.MemoryVersion]:
        """All versions of an entry."""
        rows = self._transport.json("GET", self._path("entries", id, "history"), params={"space": space}, repeat=True)
        return [decode(types.MemoryVersion, row) for row in rows]

    def forget(
        self,
        *ids: str,
        filter: params.EntryFilter | None = None,
        older_than: Duration | None = None,
        dry_run: bool = False,
        space: str | None = None,
    ) -> types.ForgottenEntries:
        """Hides entries from now on. Reads with an earlier `as_of` still return them."""
        body = given(
            ids=list(ids) or None, filter=filter, older_than_seconds=seconds(older_than), dry_run=dry_run or None
        )
        return self._transport.send(types.ForgottenEntries, "POST", self._path("forget"), body, space=space)

    def erase(
        self,
        *ids: str,
        filter: params.EntryFilter | None = None,
        older_than: Duration | None = None,
        dry_run: bool = False,
        space: str | None = None,
    ) -> types.ErasedEntries:
        """Removes entries permanently, from every branch and every snapshot."""
        body = given(
            ids=list(ids) or None, filter=filter, older_than_seconds=seconds(older_than), dry_run=dry_run or None
        )
        return self._transport.send(types.ErasedEntries, "POST", self._path("erase"), body, space=space)

    def merge(
        self,
        source: str,
        *,
        entries: params.EntryPolicy | None = None,
        kv: params.KvPolicy | None = None,
        dry_run: bool = False,
    ) -> types.MergedMemory:
        """Merges the memory of a fork. Entries that both sides changed are listed, and kept unless a policy resolves them."""
        body = given(entries=entries, kv=kv, dry_run=dry_run or None)
        body["from"] = source
        return self._transport.send(types.MergedMemory, "POST", self._path("merge"), body)

    def sessions(self, *, space: str | None = None) -> builtins.list[types.MemorySession]:
        """The sessions of the memory."""
        return self._transport.all(types.MemorySession, self._path("sessions"), space=space)

    def stats(self, *, as_of: str | int | None = None, space: str | None = None) -> types.MemoryStats:
        """Statistics of the memory."""
        return self._transport.get(types.MemoryStats, self._path(), as_of=as_of, space=space)

    def consolidate(
        self, request: params.ConsolidateMemory | None = None, *, space: str | None = None
    ) -> types.ConsolidatedMemory:
        """Reduces old memory: merges duplicates and summarizes old sessions. Summaries cite their sources."""
        return self._transport.send(
            types.ConsolidatedMemory, "POST", self._path("consolidate"), request or {}, space=space
        )

    def check(self, *, space: str | None = None) -> types.MemoryCheck:
        """Checks that log, indices and artifacts are consistent."""
        return self._transport.send(types.MemoryCheck, "POST", self._path("check"), repeat=True, space=space)

    def export(self, *, as_of: str | int | None = None, space: str | None = None) -> Iterator[dict[str, Any]]:
        """Exports all entries, one item each, for `import_lines`."""
        response = self._transport.open("GET", self._path("export"), as_of=as_of, space=space)
        for line in self._transport.lines(response):
            yield line

    def import_lines(self, lines: Iterable[Mapping[str, Any]], *, space: str | None = None) -> types.ImportedMemory:
        """Imports exported lines. Ids are kept, so importing twice stores each entry once."""
        content = b"".join(dump(dict(line)) + b"\n" for line in lines)
        answer = self._transport.upload(
            "POST",
            self._path("import"),
            content,
            headers={"content-type": "application/x-ndjson"},
            repeat=True,
            space=space,
        )
        return decode(types.ImportedMemory, answer)

    def _path(self, *rest: str) -> str:
        return path("memory", self._of, *rest)


def _filter(
    memory_type: str | Sequence[str] | None,
    metadata: Mapping[str, Any] | None,
    session: str | None,
    more: params.EntryFilter | None,
) -> dict[str, Any] | None:
    chosen: dict[str, Any] = dict(more or {})
    if memory_type is not None:
        chosen["kinds"] = [memory_type] if isinstance(memory_type, str) else list(memory_type)
    if metadata:
        tests = [{"path": key, "operator": "eq", "value": value} for key, value in metadata.items()]
        chosen["metadata"] = [*chosen.get("metadata", []), *tests]
    if session is not None:
        chosen["session"] = session
    return chosen or None

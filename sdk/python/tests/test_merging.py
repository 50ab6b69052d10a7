"""Diffs, merges and races, and exporting and importing snapshots."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from test_repeating import HANG_UP, SANDBOX, Serve, serve

from burrow_sandbox import MergeError, NotFoundError, Sandbox
from burrow_sandbox.merges import (
    Diff,
    DiffEntry,
    DiffLines,
    DiffNode,
    DiffNoise,
    Merged,
    MergeOpenFile,
    MovedFile,
    Race,
    RaceAttempt,
    RaceMerged,
)

__all__ = ["serve"]

OPENAPI = Path(__file__).parents[3] / "docs" / "openapi.json"
DOCUMENT = json.loads(OPENAPI.read_text(encoding="utf-8"))
PATHS = DOCUMENT["paths"]
documented = pytest.mark.skipif("/v1/diff" not in PATHS, reason="the daemon has no merges yet")


# === Requests and responses ===

NODE = {"kind": "file", "size": 5, "mode": "0644", "uid": 0, "gid": 0, "target": None}
DIFF: dict[str, Any] = {
    "from": {"kind": "snapshot", "id": "snp1"},
    "to": {"kind": "sandbox", "id": "sbx1"},
    "base": None,
    "entries": [
        {"path": "/a", "change": "added", "what": [], "old": None, "new": NODE},
        {
            "path": "/b",
            "change": "changed",
            "what": ["content"],
            "old": NODE,
            "new": NODE,
            "lines": {"added": 1, "removed": 1, "hunks": "@@ -1 +1 @@\n-x\n+y\n", "cut": False},
        },
    ],
    "added": 1,
    "changed": 1,
    "deleted": 0,
    "old_bytes": 5,
    "new_bytes": 10,
    "noise": [{"what": "caches", "count": 3}],
    "cut": False,
}
MERGED: dict[str, Any] = {
    "id": None,
    "parent": "sbx1",
    "child": "sbx2",
    "base": "snp1",
    "dry_run": False,
    "applied": False,
    "undo": None,
    "changes": {"added": ["/a"]},
    "moved": [{"from": "/x", "to": "/y"}],
    "total": 1,
    "cut": False,
    "conflicts": [{"path": "/b", "kind": "both-changed", "base": NODE, "ours": NODE, "theirs": NODE}],
    "open": [],
    "noise": [],
    "memory": None,
    "pause_us": 0,
}


def test_a_diff_asks_for_two_trees(serve: Serve) -> None:
    server, client = serve([(200, SANDBOX), (200, DIFF), (200, DIFF)])
    sandbox = Sandbox.connect("x", client=client)
    diff = sandbox.diff("before", globs=["*.py"], content=True)
    assert json.loads(server.requests[1][2]) == {
        "from": "before",
        "to": "sandbox:sbx1",
        "globs": ["*.py"],
        "content": True,
    }
    assert (diff.from_.id, diff.paths("added"), diff.paths("changed")) == ("snp1", ["/a"], ["/b"])
    assert diff.entries[1].lines is not None
    assert diff.entries[1].lines.hunks.endswith("+y\n")
    sandbox.diff()
    assert json.loads(server.requests[2][2]) == {"from": "image:img1", "to": "sandbox:sbx1"}


def test_conflicts_raise_and_a_dry_run_tells(serve: Serve) -> None:
    done = {**MERGED, "applied": True, "conflicts": []}
    server, client = serve([(200, SANDBOX), (200, MERGED), (200, {**MERGED, "dry_run": True}), (200, done)])
    sandbox = Sandbox.connect("x", client=client)
    with pytest.raises(MergeError, match=r"nothing was merged: conflicts in `/b` \(both-changed\)\nhint: ") as caught:
        sandbox.merge("child")
    assert caught.value.merged.moved[0].to == "/y"
    assert sandbox.merge("child", dry_run=True).conflicts
    assert sandbox.merge(sandbox, policies={"*.md": "union", "/srv/**": "theirs"}, memory="both").applied
    assert json.loads(server.requests[1][2]) == {"child": "child", "policy": "fail", "memory": "list"}
    assert json.loads(server.requests[3][2]) == {
        "child": "sbx1",
        "policy": "fail",
        "memory": "both",
        "policies": [{"glob": "*.md", "policy": "union"}, {"glob": "/srv/**", "policy": "theirs"}],
    }


def test_a_race_is_followed_to_its_end(serve: Serve) -> None:
    race = {
        "id": "rac1",
        "parent": "sbx1",
        "stage": "running",
        "run": ["x"],
        "attempts": [],
        "created_ms": 1,
        "version": 7,
    }
    over = {**race, "stage": "done", "winner": 2, "version": 9}
    server, client = serve([(200, SANDBOX), (201, race), (200, over)])
    seen: list[Race] = []
    sandbox = Sandbox.connect("x", client=client)
    assert sandbox.race("make", 2, judge=["score"], timeout=60, on_change=seen.append).winner == 2
    assert [one.stage for one in seen] == ["running"]
    assert json.loads(server.requests[1][2]) == {
        "parent": "sbx1",
        "attempts": 2,
        "run": ["/bin/sh", "-c", "make"],
        "judge": ["score"],
        "timeout_seconds": 60,
    }
    assert "after=7" in server.requests[2][0]


def test_an_export_is_a_whole_file_or_none(serve: Serve, tmp_path: Path) -> None:
    refused = (404, {"error": {"code": "not_found", "message": "no"}})
    server, client = serve([(200, b"a snapshot"), refused, HANG_UP])
    client.snapshots.export("snp1", tmp_path / "file", since="snp0", files_only=True)
    assert (tmp_path / "file").read_bytes() == b"a snapshot"
    assert "/v1/snapshots/snp1/export?since=snp0&files_only=true" in server.requests[0][0]
    with pytest.raises(NotFoundError):
        client.snapshots.export("snp1", tmp_path / "other")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@documented
@pytest.mark.parametrize(
    "kind",
    [Diff, DiffEntry, DiffNode, DiffLines, DiffNoise, Merged, MovedFile, MergeOpenFile, Race, RaceAttempt, RaceMerged],
)
def test_types_written_by_hand_are_those_of_the_document(kind: type) -> None:
    documented = DOCUMENT["components"]["schemas"][kind.__name__]["properties"]
    ours = {field.name.removesuffix("_") for field in dataclasses.fields(kind)}
    assert ours == set(documented)


# === Against a real daemon ===


@documented
def test_the_work_of_a_fork_comes_home(sandbox: Sandbox) -> None:
    sandbox.run("mkdir /srv/app; seq 20 > /srv/app/lines; echo base > /srv/app/both", check=True)
    child = sandbox.fork(files_only=True)[0]
    child.run("echo new > /srv/app/new; sed -i s/^19$/nineteen/ /srv/app/lines", check=True)
    sandbox.run("sed -i s/^2$/two/ /srv/app/lines", check=True)
    child.memory.store("the port is 8080", kind="fact")
    diff = child.diff(sandbox, globs=["/srv/**"], content=True)
    assert diff.paths("added") == ["/srv/app/new"]
    assert "/srv/app/lines" in diff.paths("changed")
    foreseen = sandbox.merge(child, policies={"/srv/app/lines": "text"}, dry_run=True)
    assert not foreseen.applied
    assert not foreseen.conflicts
    merged = sandbox.merge(child, policies={"/srv/app/lines": "text"})
    assert merged.applied
    assert sandbox.files.read("/srv/app/new") == "new\n"
    lines = sandbox.files.read("/srv/app/lines").split()
    assert (lines[1], lines[18]) == ("two", "nineteen")
    assert [entry.text for entry in sandbox.memory.list("fact")] == ["the port is 8080"]
    assert merged.undo is not None
    sandbox.restore(merged.undo.id)
    assert not sandbox.files.exists("/srv/app/new")
    child.delete()


@documented
def test_what_both_changed_is_refused_until_somebody_decides(sandbox: Sandbox) -> None:
    sandbox.files.write("/srv/both", "base\n")
    child = sandbox.fork(files_only=True)[0]
    child.files.write("/srv/both", "theirs\n")
    sandbox.files.write("/srv/both", "ours\n")
    with pytest.raises(MergeError) as caught:
        sandbox.merge(child)
    assert [conflict.path for conflict in caught.value.merged.conflicts] == ["/srv/both"]
    assert sandbox.files.read("/srv/both") == "ours\n"
    assert sandbox.merge(child, policy="theirs").applied
    assert sandbox.files.read("/srv/both") == "theirs\n"
    child.delete()


@documented
def test_the_best_attempt_wins(sandbox: Sandbox) -> None:
    race = sandbox.race(
        "echo $BURROW_ATTEMPT > /srv/attempt", 3, judge="cat /srv/attempt", files_only=True, merge_winner=True
    )
    assert race.winner == 3
    assert race.merged is not None
    assert race.merged.applied
    assert sandbox.files.read("/srv/attempt") == "3\n"


@documented
def test_a_checkpoint_looks_past_snapshots_of_others(sandbox: Sandbox) -> None:
    first = sandbox.checkpoint_state(files_only=True)
    sandbox.files.write("/srv/early", "")
    sandbox.snapshot(files_only=True)
    sandbox.files.write("/srv/late", "")
    second = sandbox.checkpoint_state(files_only=True)
    assert second.since == first.snapshot.id
    assert {"/srv/early", "/srv/late"} <= set(second.added)

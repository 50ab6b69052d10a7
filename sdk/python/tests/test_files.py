"""Files: reads, writes, copies of trees, watches."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from burrow_sandbox import NotFoundError, Sandbox, tarballs


def test_text_and_bytes_come_back_as_they_were(shared: Sandbox) -> None:
    for data in ("grüße\n", b"\x00\xff" * 70_000, ""):
        entry = shared.files.write("/tmp/deep/down/file", data)
        raw = data.encode() if isinstance(data, str) else data
        assert entry.size == len(raw)
        assert shared.files.read_bytes("/tmp/deep/down/file") == raw
    assert shared.files.read("/tmp/deep/down/file") == ""


def test_parts_of_a_file(shared: Sandbox) -> None:
    shared.files.write("/tmp/digits", "0123456789")
    assert shared.files.read_bytes("/tmp/digits", start=7) == b"789"
    assert shared.files.read_bytes("/tmp/digits", end=2) == b"01"
    shared.files.write_at("/tmp/digits", 3, b"xyz")
    assert shared.files.read("/tmp/digits") == "012xyz6789"


def test_open_files_are_streamed(shared: Sandbox, tmp_path: Path) -> None:
    local = tmp_path / "large"
    local.write_bytes(os.urandom(3 << 20))
    with open(local, "rb") as file:
        shared.files.write("/tmp/large", file)
    assert b"".join(shared.files.read_stream("/tmp/large")) == local.read_bytes()
    shared.files.download("/tmp/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == local.read_bytes()


def test_modes_owners_and_what_is_there(shared: Sandbox) -> None:
    entry = shared.files.write("/tmp/tool", "#!/bin/sh\necho works\n", mode="0755", user="user")
    assert (entry.kind, entry.mode, entry.user) == ("file", "0755", "user")
    assert shared.run("/tmp/tool").stdout == "works\n"
    assert shared.files.chmod("/tmp/tool", "0600").mode == "0600"
    shared.files.mkdir("/tmp/box/inner")
    moved = shared.files.move("/tmp/tool", "/tmp/box/inner/tool")
    assert moved.path == "/tmp/box/inner/tool"
    shared.run("ln -s inner/tool /tmp/box/link")
    assert shared.files.stat("/tmp/box/link").kind == "symlink"
    assert shared.files.stat("/tmp/box/link", follow=True).kind == "file"
    assert {entry.name for entry in shared.files.list("/tmp/box")} == {"inner", "link"}
    assert len(shared.files.list("/tmp/box", depth=2)) == 3
    shared.files.remove("/tmp/box", recursive=True)
    assert not shared.files.exists("/tmp/box")
    with pytest.raises(NotFoundError):
        shared.files.read("/tmp/box/link")


def test_trees_go_both_ways(shared: Sandbox, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a.txt").write_text("a")
    (tree / "sub" / "run.sh").write_text("echo ran")
    (tree / "sub" / "run.sh").chmod(0o755)
    shared.files.upload(tree, "/srv/tree")
    assert shared.run("/srv/tree/sub/run.sh").stdout == "ran\n"
    assert shared.files.stat("/srv/tree/a.txt").uid == 0
    back = tmp_path / "back"
    shared.files.download("/srv/tree", back)
    found = {str(path.relative_to(back)) for path in back.rglob("*")}
    assert found == {"a.txt", "sub", "sub/run.sh"}
    assert os.access(back / "sub" / "run.sh", os.X_OK)
    (tree / "one.sh").write_text("echo one")
    (tree / "one.sh").chmod(0o700)
    shared.files.upload(tree / "one.sh", "/srv/one.sh")
    assert shared.files.stat("/srv/one.sh").mode == "0700"


def test_an_archive_that_leaves_its_folder_is_refused_here(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("../outside")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(tarfile.OutsideDestinationError):
        tarballs.unpack(archive, tmp_path / "inside")
    assert not (tmp_path / "outside").exists()


def test_a_watch_tells_what_happens_from_its_return_on(shared: Sandbox) -> None:
    shared.files.mkdir("/srv/watched/sub")
    with shared.files.watch("/srv/watched", recursive=True) as changes:
        shared.files.write("/srv/watched/sub/file", "x")
        for change in changes:
            if change.path == "/srv/watched/sub/file":
                break
        shared.files.remove("/srv/watched/sub/file")
        for change in changes:
            if change.kind == "removed":
                assert change.path == "/srv/watched/sub/file"
                break
    with pytest.raises(NotFoundError):
        shared.files.watch("/srv/no-such-directory")

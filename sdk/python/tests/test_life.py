"""The lifecycle of sandboxes: create, find, sleep, snapshot, fork, delete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from burrow_sandbox import Client, ConflictError, NotFoundError, Sandbox


def test_the_end_of_a_with_block_deletes_what_has_no_name(client: Client) -> None:
    with Sandbox.create(client=client) as unnamed:
        assert unnamed.state == "running"
    with pytest.raises(NotFoundError):
        unnamed.refresh()
    with Sandbox.create(name="stays", client=client) as named:
        pass
    assert named.refresh().state == "running"
    with Sandbox.create(name="goes", keep=False, client=client):
        pass
    assert {sandbox.name for sandbox in Sandbox.list(client=client)} & {"stays", "goes"} == {"stays"}
    named.delete()
    with pytest.raises(NotFoundError):
        Sandbox.connect("stays", client=client)


def test_a_with_block_does_not_mind_what_is_gone_already(client: Client) -> None:
    with Sandbox.create(client=client) as sandbox:
        sandbox.delete()


def test_the_environment_says_where_the_daemon_is(environment: None) -> None:
    with Sandbox.create() as sandbox:
        assert Sandbox.connect(sandbox.id).id == sandbox.id


def test_what_is_asked_for_is_what_one_gets(client: Client) -> None:
    with Sandbox.create(
        "debian",
        env={"STAGE": "test"},
        labels={"team": "infra"},
        limits={"ram_mib": 300, "pids": 64},
        allow=["example.com"],
        workdir="/tmp",
        client=client,
    ) as sandbox:
        info = sandbox.info
        assert (info.limits.ram_mib, info.limits.pids) == (300, 64)
        assert info.network is not None
        assert (info.network.mode, info.network.allow) == ("allowlist", ["example.com"])
        assert sandbox.run("echo $STAGE; pwd").stdout == "test\n/tmp\n"
        found = Sandbox.list(labels={"team": "infra"}, client=client)
        assert [one.id for one in found] == [sandbox.id]
        changed = sandbox.update({"labels": {"team": "web"}, "env": {"STAGE": None}})
        assert changed.labels == {"team": "web"}
        assert sandbox.run("echo -$STAGE-").stdout == "--\n"
        assert Sandbox.list(labels={"team": "infra"}, client=client) == []
        assert sandbox.stats().ram_limit_bytes == 300 << 20


def test_many_who_ask_for_one_name_get_one_sandbox(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Sandbox.get_or_create("meeting", client=client), range(8)))
    assert len({sandbox.id for sandbox in found}) == 1
    with pytest.raises(ConflictError) as caught:
        Sandbox.create(name="meeting", client=client)
    assert caught.value.code == "conflict"
    assert caught.value.request_id
    found[0].delete()


def test_processes_survive_sleep_and_any_use_wakes(sandbox: Sandbox) -> None:
    counter = sandbox.spawn("i=0; while :; do i=$((i+1)); echo $i > /tmp/i; sleep 0.01; done")
    sandbox.run("until [ -s /tmp/i ]; do sleep 0.01; done", timeout=180, check=True)
    for sleep, state in ((sandbox.pause, "paused"), (sandbox.sleep, "hibernated")):
        assert sleep().state == state
        before = int(sandbox.files.read("/tmp/i") or 0)
        sandbox.run(f"while [ $(cat /tmp/i) -le {before} ]; do sleep 0.01; done", timeout=180, check=True)
        assert sandbox.refresh().state == "running"
    assert counter.refresh().state == "running"
    assert sandbox.pause().state == "paused"
    assert sandbox.resume().state == "running"
    assert sandbox.stop(grace=0.1).state == "stopped"
    assert sandbox.start().state == "running"
    assert sandbox.stop().state == "stopped"
    assert sandbox.wake().state == "running"


def test_back_to_a_snapshot_and_back_again(sandbox: Sandbox) -> None:
    sandbox.files.write("/srv/version", "1")
    first = sandbox.snapshot("first", description="one", labels={"ci": "yes"})
    assert first.processes
    sandbox.files.write("/srv/version", "2")
    undo = sandbox.restore("first")
    assert sandbox.files.read("/srv/version") == "1"
    sandbox.restore(undo.id)
    assert sandbox.files.read("/srv/version") == "2"
    assert [snapshot.name for snapshot in sandbox.snapshots.list(labels={"ci": "yes"})] == ["first"]
    assert sandbox.snapshots.get("first").id == first.id
    with Sandbox.from_snapshot(first.id, files_only=True, client=sandbox.client) as other:
        assert other.files.read("/srv/version") == "1"
        assert other.info.origin is not None
        assert other.info.origin.snapshot == first.id
    sandbox.snapshots.delete(first.id)
    with pytest.raises(NotFoundError):
        sandbox.snapshots.get("first")


def test_children_go_on_from_the_same_instant_each_on_its_own(sandbox: Sandbox) -> None:
    process = sandbox.spawn("read answer; echo $answer > /tmp/answer", stdin=True)
    sandbox.files.write("/tmp/base", "common")
    children = sandbox.fork(3)
    for number, child in enumerate(children):
        assert child.files.read("/tmp/base") == "common"
        same = child.process(process.id)
        same.write(f"answer {number}\n")
        assert same.wait_exit(timeout=180) == 0
    assert [child.files.read("/tmp/answer") for child in children] == [f"answer {n}\n" for n in range(3)]
    assert not sandbox.files.exists("/tmp/answer")
    assert process.refresh().state == "running"
    nodes = {node.id: node for node in sandbox.client.tree()}
    assert all(nodes[child.id].parent is not None for child in children)
    for child in children:
        child.delete()
    with sandbox.fork(names=["twig"], files_only=True)[0] as twig:
        assert twig.name == "twig"
    assert twig.refresh().state == "running"
    twig.delete()


def test_a_checkpoint_tells_what_changed_since_the_last(sandbox: Sandbox) -> None:
    first = sandbox.checkpoint_state(files_only=True)
    assert first.since is None
    sandbox.run("echo 1 > /srv/new; echo x >> /etc/profile; rm /etc/issue", check=True)
    second = sandbox.checkpoint_state(files_only=True)
    assert second.since == first.snapshot.id
    assert "/srv/new" in second.added
    assert "/etc/profile" in second.changed
    assert "/etc/issue" in second.deleted
    assert second
    third = sandbox.checkpoint_state(files_only=True, keep=2)
    assert third.total == 0
    assert not third
    kept = {snapshot.id for snapshot in sandbox.snapshots.list()}
    assert kept == {second.snapshot.id, third.snapshot.id}


def test_events_tell_of_it(sandbox: Sandbox) -> None:
    kinds = [event.kind for event in sandbox.client.events(sandbox=sandbox.id)]
    assert any("create" in kind for kind in kinds), kinds


def test_many_at_once(client: Client) -> None:
    def life(number: int) -> str:
        with Client(client.url, client.transport.api_key) as own, Sandbox.create(client=own) as sandbox:
            return sandbox.run(f"echo {number}", check=True).stdout

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(life, range(16))) == [f"{number}\n" for number in range(16)]

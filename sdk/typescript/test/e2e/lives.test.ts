import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, NotFoundError, Sandbox } from "../../src/index.js";

test("a snapshot is restored, and the restore is undone", async () => {
  await using s = await Sandbox.create();
  await s.files.write("/srv/n", "1");
  const before = await s.snapshot({ filesOnly: true, description: "one", labels: { some_label: "x" } });
  assert.deepEqual([before.kind, before.processes, before.labels], ["manual", false, { some_label: "x" }]);
  await s.files.write("/srv/n", "2");
  const undo = await s.restore(before, { filesOnly: true });
  assert.equal(await s.files.read("/srv/n"), "1");
  await s.restore(undo.id, { filesOnly: true });
  assert.equal(await s.files.read("/srv/n"), "2");
  assert.ok((await s.snapshots.list({ label: ["some_label=x"] })).some(({ id }) => id === before.id));
  await using other = await Sandbox.fromSnapshot(before.id, { filesOnly: true });
  assert.equal(await other.files.read("/srv/n"), "1");
  assert.equal(other.info.origin?.snapshot, before.id);
  await s.delete({ snapshots: true });
  await assert.rejects(new Client().snapshots.get(before.id), NotFoundError);
});

test("a checkpoint reports the changes since the last one, and old checkpoints are deleted", async () => {
  await using s = await Sandbox.create();
  await s.files.write("/srv/kept", "1");
  await s.checkpointState({ filesOnly: true });
  await s.run("echo 2 > /srv/kept; echo 1 > /srv/new; rm /etc/issue", { check: true });
  const second = await s.checkpointState({ filesOnly: true, keep: 1 });
  assert.ok(second.added.includes("/srv/new"), JSON.stringify(second));
  assert.ok(second.changed.includes("/srv/kept"), JSON.stringify(second));
  assert.ok(second.deleted.includes("/etc/issue"), JSON.stringify(second));
  assert.deepEqual((await s.snapshots.list()).map(({ id }) => id), [second.snapshot.id]);
  await s.delete({ snapshots: true });
});

test("children continue from the state of the parent, independently of each other", async () => {
  await using s = await Sandbox.create();
  await s.files.write("/srv/n", "parent");
  const children = await s.fork(3, { filesOnly: true });
  assert.equal(new Set(children.map(({ id }) => id)).size, 3);
  await Promise.all(children.map((child, at) => child.files.write("/srv/n", `child ${at}`)));
  assert.deepEqual(await Promise.all(children.map((child) => child.files.read("/srv/n"))), ["child 0", "child 1", "child 2"]);
  assert.equal(await s.files.read("/srv/n"), "parent");
  await Promise.all(children.map((child) => child.delete()));
});

test("a sandbox sleeps with its processes, and use wakes it", async (t) => {
  await using s = await Sandbox.create();
  const process = await s.spawn("i=0; while read line; do i=$((i+1)); echo $i $line; done", { stdin: true });
  await process.write("before\n");
  assert.equal((await s.pause()).state, "paused");
  assert.equal((await s.resume()).state, "running");
  const abilities = await new Client().host();
  if (!abilities.drivers.some(({ hibernate }) => hibernate.yes)) {
    t.skip("this host cannot hibernate");
    return;
  }
  assert.equal((await s.sleep()).state, "hibernated");
  await process.write("after\n", { close: true });
  assert.equal((await process.wait()).stdout, "1 before\n2 after\n");
  assert.equal((await s.refresh()).state, "running");
});

test("a stream ends when its sandbox is put to sleep, and does not wake it", async (t) => {
  if (!(await new Client().host()).drivers.some(({ hibernate }) => hibernate.yes)) {
    t.skip("this host cannot hibernate");
    return;
  }
  await using s = await Sandbox.create();
  const process = await s.spawn("echo up; exec sleep 600");
  let slept = false;
  await assert.rejects(async () => {
    for await (const event of process) {
      if (event.kind !== "stdout" || slept) continue;
      slept = true;
      await s.sleep();
    }
  }, { code: "sandbox_asleep" });
  assert.equal((await s.refresh()).state, "hibernated");
});

test("rollbackOnFailure rolls back the changes of a failed command", async () => {
  await using s = await Sandbox.create();
  await s.files.write("/srv/n", "1");
  const result = await s.run("echo 2 > /srv/n; exit 3", { rollbackOnFailure: true });
  assert.equal(result.exitCode, 3);
  assert.equal(result.exec.rollback?.state, "done", JSON.stringify(result.exec.rollback));
  assert.equal(await s.files.read("/srv/n"), "1");
});

test("a stopped sandbox keeps its files and services, and starts again", async () => {
  await using s = await Sandbox.create({ services: { ticker: { command: "exec sleep 1000", restart: "always" } } });
  await s.services.set("second", ["sleep", "1000"], { restart: "never" });
  assert.deepEqual((await s.services.list()).map(({ name }) => name).sort(), ["second", "ticker"]);
  await s.services.remove("second");
  await s.files.write("/srv/n", "1");
  assert.equal((await s.stop({ graceMs: 0 })).state, "stopped");
  assert.equal((await s.start()).state, "running");
  assert.equal(await s.files.read("/srv/n"), "1");
  assert.deepEqual((await s.services.list()).map(({ name }) => name), ["ticker"]);
  const updated = await s.update({ labels: { a_b: "c" }, limits: { ramMib: 300 } });
  assert.deepEqual([updated.labels, updated.limits.ramMib], [{ a_b: "c" }, 300]);
  assert.ok((await s.stats()).ramLimitBytes > 0);
});

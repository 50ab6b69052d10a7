import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ConflictError, NotFoundError, Sandbox } from "../../src/index.js";

test("stored entries are found by meaning, kind and metadata", async () => {
  await using s = await Sandbox.create();
  const { memory } = s;
  const added = await memory.store("the deploy key is on db-2", { memoryType: "fact", importance: 0.9, metadata: { snake_case: { inner_key: 1 } } });
  await memory.storeMany([{ text: "tests need LANG=C" }, { text: "chose Postgres 16", memoryType: "decision" }]);
  const [hit] = await memory.retrieve("where is the deploy key", { nResults: 1, memoryType: "fact" });
  assert.deepEqual([hit?.entry.id, hit?.entry.kind, hit?.entry.metadata], [added.id, "fact", { snake_case: { inner_key: 1 } }]);
  assert.equal((await memory.retrieve("Postgres", { memoryType: "fact" })).some(({ entry }) => entry.kind !== "fact"), false);
  const tests = { metadata: [{ path: "snake_case.inner_key", operator: "eq" as const, value: 1 }] };
  assert.deepEqual((await memory.retrieve("key", { filter: tests })).map(({ entry }) => entry.id), [added.id]);
  const block = await memory.formatForContext("deploy key, tests, Postgres", { maxMemories: 2 });
  assert.equal(["db-2", "LANG=C", "Postgres 16"].filter((part) => block.includes(part)).length, 2, block);
  assert.equal(await memory.formatForContext("deploy", { maxMemories: 0 }), "");
  const updated = await memory.update(added.id, { text: "the deploy key is on db-3" });
  assert.equal(updated.text, "the deploy key is on db-3");
  assert.equal((await memory.history(added.id)).length, 2);
  assert.equal((await memory.asOf(added.seq).get(added.id)).text, "the deploy key is on db-2");
  const listed: string[] = [];
  for await (const entry of memory.list()) listed.push(entry.text);
  assert.deepEqual(listed.sort(), ["chose Postgres 16", "tests need LANG=C", "the deploy key is on db-3"]);
  const lines: string[] = [];
  for await (const line of memory.export()) lines.push(line);
  assert.equal(lines.filter((line) => line.includes('"text"')).length, 3);
  assert.equal((await memory.import(lines.join("\n"))).added, 0);
  assert.equal(await memory.forget(added.id), 1);
  await assert.rejects(memory.get(added.id), NotFoundError);
  const stats = await memory.stats();
  assert.equal(stats.entries, 2);
  assert.equal((await memory.check()).ok, true);
});

test("storing twice under one key stores one entry", async () => {
  await using s = await Sandbox.create();
  const first = await s.memory.store("once", { key: "k" });
  const again = await s.memory.store("once more", { key: "k" });
  assert.deepEqual([again.id, again.existed], [first.id, true]);
});

test("keys have versions, conditions, counters, batches, history and watchers", async () => {
  await using s = await Sandbox.create();
  const { kv } = s.memory;
  assert.equal(await kv.get("plan/step"), undefined);
  const first = await kv.set("plan/step", { some_key: [1, null, "x"] });
  assert.deepEqual(await kv.get("plan/step"), { some_key: [1, null, "x"] });
  await assert.rejects(kv.set("plan/step", 2, { ifAbsent: true }), ConflictError);
  const second = await kv.set("plan/step", 2, { ifVersion: first.version });
  await assert.rejects(kv.set("plan/step", 3, { ifVersion: first.version }), ConflictError);
  assert.deepEqual([await kv.increment("count"), await kv.increment("count", 4)], [1, 5]);
  await kv.batch([{ op: "set", key: "plan/a", value: true }, { op: "delete", key: "count" }]);
  assert.deepEqual((await kv.list("plan/")).map(({ key }) => key), ["plan/a", "plan/step"]);
  assert.equal((await kv.history("plan/step")).length, 2);
  const seen: string[] = [];
  for await (const event of kv.watch("plan/", { since: second.version - 1 })) {
    seen.push(event.kind === "set" ? `${event.item.key}=${JSON.stringify(event.item.value)}` : event.kind);
    if (seen.length === 2) break;
  }
  assert.deepEqual(seen, ["plan/step=2", "plan/a=true"]);
  await kv.delete("plan/step");
  await kv.delete("plan/step");
  await assert.rejects(new Client().memory("no-such-sandbox").kv.get("x"), NotFoundError);
});

test("a skill is stored, found and run, and its outcome is recorded", async () => {
  await using s = await Sandbox.create();
  const { skills } = s.memory;
  await skills.add({
    name: "greet",
    description: "greets somebody by name",
    parameters: [{ name: "who", required: true }],
    steps: ["echo hello {{who}}", { kind: "command", run: "true" }],
  });
  assert.equal((await skills.search("say hello to a person"))[0]?.skill.name, "greet");
  const run = await skills.run("greet", { who: "it's; exit 9" });
  assert.deepEqual([run.ok, run.steps[0]?.stdout], [true, "hello it's; exit 9\n"]);
  const kinds: string[] = [];
  for await (const step of skills.runSteps("greet", { who: "x" })) kinds.push(step.kind);
  assert.deepEqual(kinds, ["start", "step", "start", "step", "end"]);
  assert.equal((await skills.record("greet", { ok: false, detail: "by hand" })).failures, 1);
  assert.equal((await skills.get("greet")).successes, 2);
  await skills.remove("greet");
  assert.deepEqual(await skills.list(), []);
});

test("artifacts have versions and metadata of any script", async () => {
  await using s = await Sandbox.create();
  const { artifacts } = s.memory;
  const metadata = { title: "Über 漢字 🦊", some_key: 1 };
  const first = await artifacts.put("reports/q3.txt", "one", { mediaType: "text/plain", metadata });
  assert.deepEqual([first.metadata, first.mediaType], [metadata, "text/plain"]);
  const second = await artifacts.put("reports/q3.txt", Buffer.from("two"));
  assert.equal(await artifacts.getText("reports/q3.txt"), "two");
  assert.equal(await artifacts.getText("reports/q3.txt", { version: first.version }), "one");
  const pieces: Uint8Array[] = [];
  for await (const piece of artifacts.getStream("reports/q3.txt")) pieces.push(piece);
  assert.equal(Buffer.concat(pieces).toString(), "two");
  assert.deepEqual((await artifacts.list("reports/")).map(({ version }) => version), [second.version]);
  assert.equal((await artifacts.versions("reports/q3.txt")).length, 2);
  await artifacts.remove("reports/q3.txt");
  await assert.rejects(artifacts.get("reports/q3.txt"), NotFoundError);
});

test("a space outlives sandboxes, and the memory of a fork is merged", async () => {
  const { spaces } = new Client();
  await spaces.getOrCreate("sdk-ops");
  assert.equal((await spaces.getOrCreate("sdk-ops")).name, "sdk-ops");
  {
    await using s = await Sandbox.create({ memory: { space: "sdk-ops" } });
    await s.memory.store("kept for others");
  }
  assert.equal((await spaces.memory("sdk-ops").retrieve("kept"))[0]?.entry.text, "kept for others");
  await spaces.delete("sdk-ops");
  await using parent = await Sandbox.create();
  await parent.memory.store("known before");
  const [child] = await parent.fork(1, { filesOnly: true });
  await child!.memory.store("learned by the child");
  const merged = await parent.memory.merge(child!.id);
  assert.equal(merged.added, 1);
  assert.equal((await parent.memory.retrieve("learned"))[0]?.entry.text, "learned by the child");
  await child!.delete();
});

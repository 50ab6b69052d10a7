import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, CommandError, ConnectError, InvalidRequestError, NotExecutableError, NotFoundError, Sandbox, UnauthorizedError } from "../../src/index.js";

test("`await using` deletes a sandbox without a name and keeps one with a name", async () => {
  let id: string;
  {
    await using s = await Sandbox.create();
    id = s.id;
    assert.equal(s.info.state, "running");
  }
  await assert.rejects(Sandbox.connect(id), NotFoundError);
  {
    await using s = await Sandbox.create({ name: "stays", labels: { snake_case: "kept" }, env: { SOME_name: "a_b" } });
    assert.equal(s.name, "stays");
  }
  const again = await Sandbox.getOrCreate("stays");
  assert.deepEqual(again.info.labels, { snake_case: "kept" });
  assert.equal((await again.run("echo $SOME_name")).stdout, "a_b\n");
  assert.deepEqual((await Sandbox.list({ label: ["snake_case=kept"] })).map((s) => s.id), [again.id]);
  assert.equal((await Sandbox.list({ label: ["snake_case=other"] })).length, 0);
  await again.delete();
  await assert.rejects(again.refresh(), NotFoundError);
});

test("concurrent callers of getOrCreate with one name get the same sandbox", async () => {
  const all = await Promise.all(Array.from({ length: 5 }, () => Sandbox.getOrCreate("shared")));
  assert.equal(new Set(all.map((s) => s.id)).size, 1);
  await all[0]!.delete();
});

test("the result of a command has its exit code, signal and output", async () => {
  await using s = await Sandbox.create();
  const failed = await s.run("echo out; echo err >&2; exit 3");
  assert.deepEqual([failed.exitCode, failed.ok, failed.stdout, failed.stderr, failed.truncated], [3, false, "out\n", "err\n", false]);
  assert.equal((await s.run(["printf", "%s|", "a b", "$HOME"])).stdout, "a b|$HOME|");
  assert.equal((await s.run("pwd", { workdir: "/tmp" })).stdout, "/tmp\n");
  assert.equal((await s.run("id -un", { user: "user" })).stdout, "user\n");
  assert.equal((await s.run("echo $A$B", { env: { A: "x", B: "y" } })).stdout, "xy\n");
  assert.equal((await s.run("kill -9 $$")).exitCode, 137);
  assert.equal((await s.run("cat", { input: "in\n" })).stdout, "in\n");
  const late = await s.run("sleep 600", { timeoutMs: 200 });
  assert.deepEqual([late.exitCode, late.timedOut], [124, true]);
  await assert.rejects(s.run("echo why >&2; exit 2", { check: true }), (error: CommandError) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.result.exitCode, 2);
    assert.match(error.message, /exited with 2: why/);
    return true;
  });
  await assert.rejects(s.run(["no-such-program"]), NotExecutableError);
});

test("ten mebibytes of output and of input are transferred without loss", async () => {
  await using s = await Sandbox.create();
  const big = 10 << 20;
  const result = await s.run(`head -c ${big} /dev/zero | tr '\\0' x`);
  assert.deepEqual([result.stdoutBytes.length, result.truncated], [big, false]);
  const input = Buffer.alloc(big, "0123456789abcdef");
  const sum = await s.run("sha256sum", { input });
  const { createHash } = await import("node:crypto");
  assert.equal(sum.stdout.split(" ")[0], createHash("sha256").update(input).digest("hex"));
});

test("a character that is split between two pieces is decoded correctly", async () => {
  await using s = await Sandbox.create();
  let text = "";
  const script = `printf 'caf\\303'; sync; printf '\\251 ok'`;
  const result = await s.run(script, { onStdout: (piece) => (text += piece) });
  assert.deepEqual([text, result.stdout], ["café ok", "café ok"]);
});

test("a background process reads input and can be found by id, awaited and killed", async () => {
  await using s = await Sandbox.create();
  const cat = await s.spawn("while read line; do echo got $line; done; exit 5", { stdin: true });
  await cat.write("one\n");
  const same = await s.process(cat.id);
  await same.write("two\n", { close: true });
  const ended = await cat.wait();
  assert.deepEqual([ended.exitCode, ended.stdout], [5, "got one\ngot two\n"]);
  assert.equal(await cat.logs(), "got one\ngot two\n");
  const sleeper = await s.spawn(["sleep", "600"]);
  await assert.rejects(sleeper.wait({ timeoutMs: 50 }), { code: "timeout" });
  assert.ok((await s.processes()).some((one) => one.id === sleeper.id && one.exitCode === undefined));
  await sleeper.signal("TERM");
  assert.equal((await sleeper.wait()).signal, "SIGTERM");
  assert.deepEqual([sleeper.exitCode, await sleeper.kill()], [143, false]);
});

test("an aborted command is killed", async () => {
  await using s = await Sandbox.create();
  const stop = new AbortController();
  const running = s.run("echo started; exec sleep 600", { signal: stop.signal, onStdout: () => stop.abort() });
  await assert.rejects(running, { code: "aborted" });
  const [process] = await s.processes();
  const ended = await process!.wait();
  assert.equal(ended.signal, "SIGKILL");
});

test("a process of pty has a terminal of the given size", async () => {
  await using s = await Sandbox.create();
  const pty = await s.pty({ columns: 100, rows: 30, command: ["bash", "--norc"] });
  await pty.resize(120, 40);
  await pty.write("tty; stty size; exit 7\n");
  const ended = await pty.wait();
  assert.equal(ended.exitCode, 7);
  assert.match(ended.stdout, /\/dev\/pts\/\d/);
  assert.match(ended.stdout, /40 120/);
});

test("errors have a class, a code, a hint and a request id", async () => {
  await assert.rejects(Sandbox.connect("no-such-box"), (error: NotFoundError) => {
    assert.ok(error instanceof NotFoundError);
    assert.deepEqual([error.code, error.status], ["not_found", 404]);
    assert.match(error.message, /no-such-box/);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(Sandbox.list({ apiKey: "e2b_" + "0".repeat(40) }), (error: UnauthorizedError) => {
    assert.ok(error instanceof UnauthorizedError);
    assert.ok(error.hint);
    return true;
  });
  await assert.rejects(Sandbox.list({ url: "http://127.0.0.1:1" }), (error: ConnectError) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(error.code, "unreachable");
    assert.match(error.hint ?? "", /burrow up/);
    return true;
  });
  await assert.rejects(Sandbox.create({ name: "Not A Name" }), InvalidRequestError);
});

test("every route can be called with types", async () => {
  const client = new Client();
  await using s = await client.create({ limits: { ramMib: 256 } });
  const info = await client.call("GET /v1/sandboxes/{sandbox}", { path: { sandbox: s.id } });
  assert.equal(info.limits.ramMib, 256);
  const stop = new AbortController();
  const kinds: string[] = [];
  for await (const event of client.events({ sandbox: s.id, signal: stop.signal })) {
    kinds.push(event.kind);
    stop.abort();
  }
  assert.equal(kinds.length, 1);
  client.close();
});

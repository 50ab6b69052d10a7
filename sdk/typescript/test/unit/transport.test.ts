import assert from "node:assert/strict";
import { test } from "node:test";
import { BurrowError, BusyError, Client, ConflictError, CommandResult, MergeError, NotFoundError, Sandbox } from "../../src/index.js";
import { ascii } from "../../src/memory/artifacts.js";
import { Collected } from "../../src/result.js";
import { answering, json, refused } from "../support/server.js";

test("a call has the key and the path prefix, and path parameters are escaped", async () => {
  await using daemon = await answering((_, response) => json(response, 200, { key: "a/b", value: { snake_case: 1 }, version: 1, created_ms: 1, updated_ms: 1 }));
  assert.deepEqual(await daemon.client.memory("web").kv.get("a/b ?#é"), { snake_case: 1 });
  const [request] = daemon.requests;
  assert.equal(request!.url, "/prefix/v1/memory/web/kv/a%2Fb%20%3F%23%C3%A9");
  assert.equal(request!.headers["x-api-key"], "e2b_key");
  await daemon.client.memory("..").kv.get("..");
  assert.equal(daemon.requests[1]!.url, "/prefix/v1/memory/%2E%2E/kv/%2E%2E");
  await assert.rejects(daemon.client.connect(""), { code: "invalid_request" });
});

test("an error response becomes an error of its class with code, hint, status and request id", async () => {
  const answers: [number, string, typeof BurrowError][] = [
    [404, "not_found", NotFoundError],
    [409, "conflict", ConflictError],
    [418, "a_code_of_next_year", BurrowError],
  ];
  for (const [status, code, kind] of answers) {
    await using daemon = await answering((_, response) => json(response, status, refused(code, "do this"), { "x-request-id": "abc" }));
    await assert.rejects(daemon.client.host(), (error: BurrowError) => {
      assert.ok(error instanceof kind);
      assert.deepEqual([error.code, error.message, error.hint, error.status, error.requestId], [code, `it is ${code}`, "do this", status, "abc"]);
      assert.match(String(error), /hint: do this/);
      return true;
    });
    assert.equal(daemon.requests.length, 1, "a refusal is not repeated");
  }
  await using other = await answering((_, response) => response.writeHead(502).end("<html>"));
  await assert.rejects(other.client.host(), { code: "not_burrow", status: 502 });
});

test("a create is repeated with the same idempotency key until it is answered", async () => {
  const keys: unknown[] = [];
  await using daemon = await answering((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    if (keys.length === 1) request.socket.destroy();
    else if (keys.length === 2) json(response, 409, refused("idempotency_in_flight"));
    else if (keys.length === 3) json(response, 429, refused("busy"), { "retry-after": "0" });
    else json(response, 201, { id: "sbx1", state: "running" });
  });
  const sandbox = await daemon.client.create({ ttlSeconds: 5 });
  assert.equal(sandbox.id, "sbx1");
  assert.equal(keys.length, 4);
  assert.ok(keys[0]);
  assert.equal(new Set(keys).size, 1);
});

test("requests that are not safe to repeat are not repeated", async () => {
  await using daemon = await answering((request) => request.socket.destroy());
  await assert.rejects(daemon.client.memory("web").kv.increment("n"), { code: "broken" });
  await assert.rejects(daemon.client.memory("web").kv.set("n", 1, { ifVersion: 3 }), { code: "broken" });
  await assert.rejects(daemon.client.memory("web").artifacts.put("a", "b"), { code: "broken" });
  assert.equal(daemon.requests.length, 3);
});

test("the number of retries is limited", async () => {
  await using daemon = await answering((_, response) => json(response, 429, refused("busy")));
  const { port } = new URL(daemon.client.transport.config.url);
  const impatient = new Client({ url: `http://127.0.0.1:${port}`, retries: 2 });
  await assert.rejects(impatient.host(), BusyError);
  assert.equal(daemon.requests.length, 3);
  impatient.close();
});

test("lists are read to their last page", async () => {
  await using daemon = await answering((request, response) => {
    const cursor = new URL(request.url!, "http://x").searchParams.get("cursor");
    json(response, 200, cursor === null ? { items: [{ name: "a" }], next_cursor: "2" } : { items: [{ name: "b" }] });
  });
  assert.deepEqual((await daemon.client.secrets.list()).map(({ name }) => name), ["a", "b"]);
});

test("an aborted call ends at once", async () => {
  await using daemon = await answering(() => undefined);
  const stop = new AbortController();
  const call = daemon.client.call("GET /v1/host", { signal: stop.signal });
  stop.abort();
  await assert.rejects(call, { code: "aborted" });
});

test("invalid and unreachable addresses are errors", async () => {
  assert.throws(() => new Client({ url: "localhost:7700" }), { code: "invalid_request" });
  await assert.rejects(Sandbox.list({ url: "http://127.0.0.1:1", apiKey: "x" }), { code: "unreachable" });
});

test("exit codes are those that a shell reports", () => {
  const outcome = { cpuUs: 0, killedFromOutside: false, ramMaxBytes: 0, timedOut: false, wallUs: 1500 };
  const result = (more: object) =>
    new CommandResult("x", { id: "exe1", state: "ended", outcome: { ...outcome, ...more } } as never, new Collected(10));
  assert.equal(result({ exitCode: 3 }).exitCode, 3);
  assert.equal(result({ signal: "SIGKILL" }).exitCode, 137);
  assert.equal(result({ signal: "SIGTERM", timedOut: true }).exitCode, 124);
  assert.equal(result({ exitCode: 0 }).durationMs, 1.5);
  assert.throws(() => new CommandResult("x", { id: "exe1", state: "lost" } as never, new Collected(10)), { code: "lost" });
});

test("output beyond the limit is dropped and marked as truncated", () => {
  const output = new Collected(4);
  output.stdout.push(Buffer.from("abc"));
  output.stdout.push(Buffer.from("def"));
  assert.deepEqual([Buffer.from(output.stdout.bytes()).toString(), output.truncated], ["abcd", true]);
});

test("metadata is encoded in ASCII and keeps its value", () => {
  const metadata = { title: "Über 漢字 🦊\u007f\n" };
  const header = ascii(metadata);
  assert.match(header, /^[\x20-\x7e]*$/);
  assert.deepEqual(JSON.parse(header), metadata);
});

test("diffs, merges and races use the wire format of the daemon", async () => {
  const sent: { url: string; body: unknown }[] = [];
  const answers: Record<string, unknown> = {
    "POST /prefix/v1/sandboxes": { id: "sbx1", image_id: "img1", state: "running" },
    "POST /prefix/v1/diff": { from: { kind: "image", id: "img1" }, to: { kind: "sandbox", id: "sbx1" }, entries: [], old_bytes: 1, new_bytes: 2 },
    "POST /prefix/v1/sandboxes/sbx1/merge": { applied: false, dry_run: false, conflicts: [{ path: "/srv/a", kind: "both-changed" }], pause_us: 7 },
    "POST /prefix/v1/races": { id: "rac1", stage: "running", version: 3, attempts: [] },
    "GET /prefix/v1/races/rac1?after=3&wait_ms=30000": { id: "rac1", stage: "done", version: 4, winner: 2, attempts: [{ number: 2, exit_code: 0, took_ms: 5 }] },
  };
  await using daemon = await answering((request, response, body) => {
    sent.push({ url: `${request.method} ${request.url}`, body: body === "" ? undefined : JSON.parse(body) });
    json(response, 200, answers[`${request.method} ${request.url}`]);
  });
  const sandbox = await daemon.client.create();
  assert.deepEqual((({ oldBytes, newBytes }) => [oldBytes, newBytes])(await sandbox.diff(undefined, { globs: ["*.py"] })), [1, 2]);
  assert.deepEqual(sent.at(-1)!.body, { from: "image:img1", to: "sandbox:sbx1", globs: ["*.py"] });
  await sandbox.diff(sandbox);
  assert.deepEqual(sent.at(-1)!.body, { from: "sandbox:sbx1", to: "sandbox:sbx1" });
  await assert.rejects(sandbox.merge("child", { policy: "text", policies: { "*.md": "union" } }), (error: MergeError) => {
    assert.ok(error instanceof MergeError);
    assert.match(error.message, /`\/srv\/a`/);
    return true;
  });
  assert.deepEqual(sent.at(-1)!.body, { child: "child", policy: "text", policies: [{ glob: "*.md", policy: "union" }] });
  assert.equal((await sandbox.merge("child", { dryRun: true })).pauseUs, 7);
  const stages: string[] = [];
  const race = await sandbox.race("make", 2, { judge: ["./score"], mergeWinner: true, onChange: ({ stage }) => stages.push(stage) });
  assert.deepEqual([race.winner, race.attempts[0]?.exitCode, stages], [2, 0, ["running"]]);
  const started = sent.find(({ url }) => url.endsWith("/v1/races"))!;
  assert.deepEqual(started.body, { parent: "sbx1", attempts: 2, run: ["/bin/sh", "-c", "make"], judge: ["./score"], merge_winner: true });
});

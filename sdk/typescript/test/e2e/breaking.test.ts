import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { BrokenError, Client } from "../../src/index.js";
import { Daemon } from "../support/daemon.js";
import { type Proxy, proxied } from "../support/proxy.js";

const sha = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex");

test("output arrives completely, once and in order when connections break", async () => {
  await using proxy = await proxied(process.env["BURROW_URL"]!);
  const client = new Client({ url: proxy.url });
  await using s = await client.create();
  const expected = (await s.run("seq 1 130000")).stdout;
  // Every connection now breaks after a limit. The output fits into the buffer, so the process continues without a client.
  proxy.cutAfter(32 << 10);
  client.close();
  const connections = proxy.connections;
  const result = await s.run("seq 1 130000");
  assert.ok(proxy.connections - connections >= 3, "it was cut");
  assert.deepEqual([result.exitCode, result.truncated, result.stdout.length], [0, false, expected.length]);
  assert.equal(sha(result.stdout), sha(expected));
  proxy.cutAfter(undefined);
  client.close();
});

test("a download resumes after a broken connection, unless the file changed", async () => {
  await using proxy = await proxied(process.env["BURROW_URL"]!);
  const client = new Client({ url: proxy.url });
  await using s = await client.create();
  const content = Buffer.alloc(3 << 20, "0123456789abcdefg");
  await s.files.write("/srv/large", content);
  proxy.cutAfter(256 << 10);
  client.close();
  const pieces: Uint8Array[] = [];
  for await (const piece of s.files.readStream("/srv/large")) pieces.push(piece);
  assert.equal(sha(Buffer.concat(pieces)), sha(content));
  proxy.cutAfter(256 << 10);
  client.close();
  await assert.rejects(async () => {
    let changed = false;
    for await (const piece of s.files.readStream("/srv/large")) {
      if (!changed && piece.length > 0) await new Client().connect(s.id).then((same) => same.files.write("/srv/large", "other"));
      changed = true;
    }
  }, { code: "conflict" });
  proxy.cutAfter(undefined);
  client.close();
});

test("a create whose response was lost creates one sandbox, and a delete whose response was lost succeeds", async () => {
  await using proxy = await proxied(process.env["BURROW_URL"]!);
  const client = new Client({ url: proxy.url });
  await client.version();
  client.close();
  // The connection breaks before a byte of the response arrives; the next attempt succeeds.
  proxy.cutAfter(0);
  setImmediateOnConnection(proxy, () => proxy.cutAfter(undefined));
  const s = await client.create({ labels: { made: "once" } });
  assert.deepEqual((await client.list({ label: ["made=once"] })).map(({ id }) => id), [s.id]);
  client.close();
  proxy.cutAfter(0);
  setImmediateOnConnection(proxy, () => proxy.cutAfter(undefined));
  await s.delete();
  client.close();
  // A request that is not safe to repeat is not repeated.
  await using other = await client.create();
  client.close();
  proxy.cutAfter(0);
  await assert.rejects(other.memory.kv.increment("n"), BrokenError);
  proxy.cutAfter(undefined);
  client.close();
  assert.equal(await other.memory.kv.get("n"), 1, "it was done, and once");
});

/** Waits for the next connection. */
function setImmediateOnConnection(proxy: Proxy, then: () => void): void {
  const known = proxy.connections;
  const timer = setInterval(() => {
    if (proxy.connections === known) return;
    clearInterval(timer);
    then();
  }, 1);
}

let own: Daemon;
before(async () => {
  own = await Daemon.start();
});
after(() => own.remove());

test("calls, command output and watches continue after a restart of the daemon", async () => {
  // On a busy machine a start takes longer than the default retries.
  const client = new Client({ url: own.url, apiKey: own.key, retries: 100 });
  const s = await client.create();
  const seen: unknown[] = [];
  const stop = new AbortController();
  const first = await s.memory.kv.set("watched", 0);
  const watching = (async () => {
    for await (const event of s.memory.kv.watch("", { since: first.version - 1, signal: stop.signal })) {
      if (event.kind === "set") seen.push(event.item.value);
      if (seen.length === 2) return;
    }
  })();
  const process = await s.spawn("echo one; while [ ! -e /srv/go ]; do sleep 0.05; done; echo two; exit 6");
  const output = process.wait();
  const restarted = own.restart();
  const during = s.files.write("/srv/during", "written while it was away");
  await restarted;
  await during;
  await s.memory.kv.set("watched", 1);
  await s.files.write("/srv/go", "");
  const ended = await output;
  assert.deepEqual([ended.exitCode, ended.stdout], [6, "one\ntwo\n"]);
  assert.equal(await s.files.read("/srv/during"), "written while it was away");
  await watching;
  stop.abort();
  assert.deepEqual(seen, [0, 1]);
  await s.delete();
  client.close();
});

import assert from "node:assert/strict";
import { lstat, mkdir, mkdtemp, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { NotFoundError, Sandbox } from "../../src/index.js";

async function scratch(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "burrow-files-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

test("files are written, read, listed, moved and removed", async () => {
  await using s = await Sandbox.create();
  const written = await s.files.write("/srv/a/b/text", "grüße\n", { mode: "0600" });
  assert.deepEqual([written.path, written.size, written.mode], ["/srv/a/b/text", 8, "0600"]);
  assert.equal(await s.files.read("/srv/a/b/text"), "grüße\n");
  await s.files.write("/srv/bytes", new Uint8Array([0, 255, 128]));
  assert.deepEqual([...(await s.files.readBytes("/srv/bytes"))], [0, 255, 128]);
  await s.files.write("/srv/bytes", Buffer.from([7]), { offset: 1 });
  assert.deepEqual([...(await s.files.readBytes("/srv/bytes"))], [0, 7, 128]);
  assert.deepEqual((await s.files.list("/srv")).map(({ name }) => name).sort(), ["a", "bytes"]);
  assert.ok((await s.files.list("/srv", { depth: 3 })).some(({ path }) => path === "/srv/a/b/text"));
  await s.files.move("/srv/bytes", "/srv/moved");
  assert.deepEqual([await s.files.exists("/srv/bytes"), await s.files.exists("/srv/moved")], [false, true]);
  assert.equal((await s.files.chmod("/srv/moved", "0755")).mode, "0755");
  assert.equal((await s.files.mkdir("/srv/x/y")).kind, "directory");
  await assert.rejects(s.files.remove("/srv/a"), { code: "conflict" });
  await s.files.remove("/srv/a", { recursive: true });
  await assert.rejects(s.files.read("/srv/a/b/text"), NotFoundError);
  await assert.rejects(s.files.stat("/srv/a"), NotFoundError);
});

test("small and large files are streamed in both directions", async () => {
  await using s = await Sandbox.create();
  await using folder = await scratch();
  async function* pieces() {
    for (let at = 0; at < 64; at++) yield Buffer.alloc(256 << 10, at);
  }
  const entry = await s.files.write("/srv/large", pieces());
  assert.equal(entry.size, 16 << 20);
  await s.files.download("/srv/large", join(folder.path, "large"));
  const local = await readFile(join(folder.path, "large"));
  assert.deepEqual([local.length, local[0], local.at(-1)], [16 << 20, 0, 63]);
  await s.files.upload(join(folder.path, "large"), "/srv/copy");
  assert.equal((await s.run("cmp /srv/large /srv/copy")).exitCode, 0);
  await s.files.write("/srv/empty", "");
  await s.files.download("/srv/empty", join(folder.path, "empty"));
  assert.equal((await readFile(join(folder.path, "empty"))).length, 0);
});

test("directories are uploaded and downloaded with links, modes and long names", async () => {
  await using s = await Sandbox.create();
  await using folder = await scratch();
  const source = join(folder.path, "source");
  const long = "n".repeat(120);
  await mkdir(join(source, "deep", long), { recursive: true });
  await writeFile(join(source, "deep", long, "é"), "inner\n");
  await writeFile(join(source, "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  await symlink("deep", join(source, "link"));
  await s.files.upload(source, "/srv/tree");
  assert.equal(await s.files.read(`/srv/tree/deep/${long}/é`), "inner\n");
  assert.equal((await s.files.stat("/srv/tree/run.sh")).mode, "0755");
  assert.equal((await s.files.stat("/srv/tree/link")).target, "deep");
  await s.run("ln /srv/tree/run.sh /srv/tree/twin", { check: true });
  const back = join(folder.path, "back");
  await s.files.download("/srv/tree", back);
  assert.equal(await readFile(join(back, "deep", long, "é"), "utf8"), "inner\n");
  assert.equal(await readlink(join(back, "link")), "deep");
  assert.equal((await lstat(join(back, "run.sh"))).mode & 0o777, 0o755);
  assert.equal((await lstat(join(back, "run.sh"))).ino, (await lstat(join(back, "twin"))).ino);
});

test("a directory whose links lead out of it is not unpacked", async () => {
  await using s = await Sandbox.create();
  await using folder = await scratch();
  await s.run("mkdir -p /srv/bad && ln -s /etc /srv/bad/a", { check: true });
  await assert.rejects(s.files.download("/srv/bad", join(folder.path, "bad")), { code: "unprocessable" });
  await s.run("ln -sfn ../.. /srv/bad/a", { check: true });
  await assert.rejects(s.files.download("/srv/bad", join(folder.path, "bad")), { code: "unprocessable" });
});

test("a watch reports all changes after it was started", async () => {
  await using s = await Sandbox.create();
  await s.files.mkdir("/srv/watched");
  const stop = new AbortController();
  const watch = await s.files.watch("/srv/watched", { recursive: true, signal: stop.signal });
  await s.files.write("/srv/watched/new", "x");
  for await (const event of watch) {
    if (event.path === "/srv/watched/new") stop.abort();
  }
  assert.ok(stop.signal.aborted);
});

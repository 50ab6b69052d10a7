import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pack, unpack } from "../../src/tar.js";

async function scratch(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "burrow-tar-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function packed(folder: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of pack(folder)) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** The same bytes in pieces of different sizes. */
async function* pieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

test("a packed directory can be unpacked from pieces of any size", async () => {
  await using folder = await scratch();
  const source = join(folder.path, "source");
  const long = join(source, "d".repeat(90), "e".repeat(90));
  await mkdir(long, { recursive: true });
  await writeFile(join(long, "file"), Buffer.alloc(1500, 7), { mode: 0o640 });
  await writeFile(join(source, "empty"), "");
  await symlink(`${"d".repeat(90)}/${"e".repeat(90)}/file`, join(source, "link"));
  const archive = await packed(source);
  assert.equal(archive.length % 512, 0);
  for (const size of [1, 511, 512, 513, 1 << 20]) {
    const target = join(folder.path, `target-${size}`);
    await unpack(pieces(archive, size), target);
    assert.deepEqual(await readFile(join(target, "link")), Buffer.alloc(1500, 7));
    assert.equal((await stat(join(target, "link"))).mode & 0o777, 0o640);
    assert.deepEqual((await readdir(target)).sort(), ["d".repeat(90), "empty", "link"]);
  }
});

test("damaged and truncated archives are refused", async () => {
  await using folder = await scratch();
  await writeFile(join(folder.path, "file"), Buffer.alloc(2000, 7));
  const archive = await packed(folder.path);
  const target = join(folder.path, "target");
  await assert.rejects(unpack(pieces(archive.subarray(0, 1000), 512), target), { code: "damaged" });
  const bent = Buffer.from(archive);
  bent[0] = 0x41;
  await assert.rejects(unpack(pieces(bent, 512), target), { code: "damaged" });
});

/** An archive of one entry, with a correct checksum. */
function entry(name: string, kind: string, link = ""): Buffer {
  const bytes = Buffer.alloc(512 * 3);
  bytes.write(name, 0);
  bytes.write("0000777\0", 100);
  bytes.write("00000000000\0", 124);
  bytes.write("        ", 148);
  bytes.write(kind, 156);
  bytes.write(link, 157);
  bytes.write("ustar\0", 257, "latin1");
  const sum = bytes.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}

test("nothing is written outside of the folder", async () => {
  await using folder = await scratch();
  await mkdir(join(folder.path, "in"));
  await writeFile(join(folder.path, "outside"), "safe");
  const hostile: [string, Buffer[]][] = [
    ["a name that goes up", [entry("../outside", "0")]],
    ["a name in the middle that goes up", [entry("a/../../outside", "0")]],
    ["an absolute name", [entry("/tmp/outside", "0")]],
    ["an absolute link", [entry("link", "2", "/etc")]],
    ["a link that goes up", [entry("link", "2", "../outside")]],
    ["a hard link to what is outside", [entry("link", "1", "../outside")]],
    ["a file through a link", [entry("sub/", "5"), entry("link", "2", "sub"), entry("link/file", "0")]],
    ["a device", [entry("null", "3")]],
    ["a pipe", [entry("pipe", "6")]],
  ];
  for (const [what, entries] of hostile) {
    const archive = Buffer.concat([...entries.map((bytes) => bytes.subarray(0, 512)), Buffer.alloc(1024)]);
    await assert.rejects(unpack(pieces(archive, 512), join(folder.path, "in")), { code: "unprocessable" }, what);
    await rm(join(folder.path, "in"), { recursive: true });
  }
  assert.equal(await readFile(join(folder.path, "outside"), "utf8"), "safe");
  assert.deepEqual(await readdir(folder.path), ["outside"]);
});

test("set-user-id and set-group-id bits are dropped", async () => {
  await using folder = await scratch();
  const archive = entry("tool", "0");
  archive.write("0006755\0", 100);
  archive.write("        ", 148);
  const sum = archive.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  archive.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  await unpack(pieces(archive, 512), folder.path);
  assert.equal((await stat(join(folder.path, "tool"))).mode & 0o7000, 0);
});

/**
 * Directories as tar archives: packs local directories for uploads and unpacks downloads.
 *
 * An archive from a sandbox is untrusted input. Nothing is written outside the target directory: names that lead out of it
 * or pass through a symbolic link are refused, and so are links that lead out of it, devices, and everything else that is
 * not a file, directory or link. The set-user-id, set-group-id and sticky bits are dropped.
 */
import { createReadStream, createWriteStream } from "node:fs";
import { chmod, link, lstat, mkdir, readdir, readlink, symlink, unlink } from "node:fs/promises";
import { dirname, join, normalize, relative, resolve, sep } from "node:path";
import { finished } from "node:stream/promises";
import { errorOf } from "./errors.js";

const BLOCK = 512;
/** Maximum size of an extended header. */
const NAME_BYTES_MAX = 64 << 10;
const ZERO = Buffer.alloc(BLOCK);

// === pack ===

/**
 * Packs the contents of a directory, with relative names. Contains files, directories and symbolic links; other kinds
 * are skipped.
 */
export async function* pack(folder: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield* packed(folder, folder);
  yield Buffer.concat([ZERO, ZERO]);
}

async function* packed(root: string, folder: string): AsyncGenerator<Uint8Array, void, undefined> {
  for (const name of (await readdir(folder)).sort()) {
    const path = join(folder, name);
    const shown = relative(root, path).split(sep).join("/");
    const found = await lstat(path);
    const common = { mode: found.mode & 0o777, modifiedS: Math.floor(found.mtimeMs / 1000) };
    if (found.isSymbolicLink()) {
      yield* header({ name: shown, kind: "2", size: 0, link: await readlink(path), ...common });
    } else if (found.isDirectory()) {
      yield* header({ name: `${shown}/`, kind: "5", size: 0, link: "", ...common });
      yield* packed(root, path);
    } else if (found.isFile()) {
      yield* header({ name: shown, kind: "0", size: found.size, link: "", ...common });
      yield* content(path, found.size);
    }
  }
}

/**
 * Reads exactly `size` bytes. A file that grows or shrinks while it is read would otherwise shift the rest of the
 * archive.
 */
async function* content(path: string, size: number): AsyncGenerator<Uint8Array, void, undefined> {
  let left = size;
  if (size > 0) {
    for await (const piece of createReadStream(path, { end: size - 1 })) {
      left -= (piece as Buffer).length;
      yield piece as Buffer;
    }
  }
  if (left > 0) throw errorOf({ code: "conflict", message: `\`${path}\` was truncated while it was read` });
  yield padding(size);
}

interface Entry {
  name: string;
  kind: string;
  size: number;
  link: string;
  mode: number;
  modifiedS: number;
}

function header(entry: Entry): Uint8Array[] {
  const records: [string, string][] = [];
  if (Buffer.byteLength(entry.name) > 100) records.push(["path", entry.name]);
  if (Buffer.byteLength(entry.link) > 100) records.push(["linkpath", entry.link]);
  if (entry.size > 0o77777777777) records.push(["size", String(entry.size)]);
  const main = block(entry);
  if (records.length === 0) return [main];
  const text = Buffer.from(records.map(([key, value]) => record(key, value)).join(""));
  const extended = block({ name: "extended", kind: "x", size: text.length, link: "", mode: 0o644, modifiedS: 0 });
  return [extended, text, padding(text.length), main];
}

/** A record begins with its length, which includes the digits of the length itself. */
function record(key: string, value: string): string {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + String(rest).length;
  if (rest + String(length).length > length) length += 1;
  return `${length} ${key}=${value}\n`;
}

function block(entry: Entry): Buffer {
  const bytes = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number) =>
    bytes.write(Math.min(value, 8 ** (width - 1) - 1).toString(8).padStart(width - 1, "0"), at);
  Buffer.from(entry.name).copy(bytes, 0, 0, 100);
  octal(entry.mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(entry.size, 124, 12);
  octal(Math.max(0, entry.modifiedS), 136, 12);
  bytes.write(" ".repeat(8), 148);
  bytes.write(entry.kind, 156);
  Buffer.from(entry.link).copy(bytes, 157, 0, 100);
  bytes.write("ustar\x0000", 257, "latin1");
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  bytes.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return bytes;
}

function padding(size: number): Uint8Array {
  return ZERO.subarray(0, (BLOCK - (size % BLOCK)) % BLOCK);
}

// === unpack ===

/** Unpacks an archive of relative names into `folder`. */
export async function unpack(archive: AsyncIterable<Uint8Array>, folder: string): Promise<void> {
  const root = resolve(folder);
  await mkdir(root, { recursive: true });
  const source = new Source(archive);
  try {
    await unpacked(root, source);
  } finally {
    await source.close();
  }
}

async function unpacked(root: string, source: Source): Promise<void> {
  let named: Partial<Entry> = {};
  for (;;) {
    const bytes = await source.take(BLOCK);
    if (bytes.every((byte) => byte === 0)) break;
    const entry = { ...parsed(bytes), ...named };
    if (entry.kind === "x" || entry.kind === "L" || entry.kind === "K" || entry.kind === "g") {
      if (entry.size > NAME_BYTES_MAX) throw refused(entry.name, `its extended header is larger than ${NAME_BYTES_MAX} bytes`);
      const data = await source.take(entry.size);
      await source.take(padding(entry.size).length);
      if (entry.kind !== "g") named = { ...named, ...extended(entry.kind, data) };
      continue;
    }
    named = {};
    await place(root, entry, source);
  }
  await source.drain();
}

async function place(root: string, entry: Entry, source: Source): Promise<void> {
  const inner = insideOf(entry.name);
  const target = join(root, inner);
  if (inner !== ".") await safeParents(root, inner, entry.name);
  const mode = entry.mode & 0o777;
  switch (entry.kind) {
    case "5":
      await mkdir(target, { recursive: true });
      // The owner needs all rights, because the following entries are written into the directory.
      await chmod(target, mode | 0o700);
      break;
    case "2":
      leadsOut(inner, entry);
      await clear(target);
      await symlink(entry.link, target);
      break;
    case "1":
      await clear(target);
      await linked(root, entry, target);
      break;
    case "0":
    case "\0":
      await clear(target);
      await written(target, mode, entry, source);
      return;
    default:
      throw refused(entry.name, "it is not a file, directory or symbolic link");
  }
  await source.skip(entry.size + padding(entry.size).length);
}

/** Creates a hard link to a file of the same archive. */
async function linked(root: string, entry: Entry, target: string): Promise<void> {
  const first = insideOf(entry.link);
  await safeParents(root, first, entry.name);
  const found = await lstat(join(root, first)).catch(() => undefined);
  if (!found?.isFile()) throw refused(entry.name, `it is a hard link to \`${entry.link}\`, which is not a file of the archive`);
  await link(join(root, first), target);
}

async function written(target: string, mode: number, entry: Entry, source: Source): Promise<void> {
  const file = createWriteStream(target, { flags: "wx", mode });
  const done = finished(file);
  // Awaited below. Until then, a failure must not count as an unhandled rejection.
  done.catch(() => undefined);
  let left = entry.size;
  while (left > 0) {
    const piece = await source.some(left);
    left -= piece.length;
    if (!file.write(piece)) await Promise.race([new Promise<void>((drained) => file.once("drain", drained)), done]);
  }
  file.end();
  await done;
  await source.take(padding(entry.size).length);
}

/** Normalizes a name below the folder; `.` is the folder itself. */
function insideOf(name: string): string {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (name.startsWith("/") || parts.includes("..") || name.includes("\0")) throw refused(name, "its name leads out of the target directory");
  return parts.join("/") || ".";
}

function leadsOut(inner: string, entry: Entry): void {
  const target = normalize(join(dirname(inner), entry.link));
  if (entry.link.startsWith("/") || target === ".." || target.startsWith(`..${sep}`)) {
    throw refused(entry.name, `it is a link to \`${entry.link}\`, which leads out of the target directory`);
  }
}

async function safeParents(root: string, inner: string, name: string): Promise<void> {
  let at = root;
  for (const part of inner.split("/").slice(0, -1)) {
    at = join(at, part);
    const found = await lstat(at).catch(() => undefined);
    if (found === undefined) await mkdir(at);
    else if (!found.isDirectory()) throw refused(name, `the parent \`${part}\` is not a directory`);
  }
}

/** Removes an existing file or link. The target of a link is not changed. */
async function clear(target: string): Promise<void> {
  const found = await lstat(target).catch(() => undefined);
  if (found && !found.isDirectory()) await unlink(target);
}

function parsed(bytes: Buffer): Entry {
  const text = (at: number, width: number) => {
    const field = bytes.subarray(at, at + width);
    const end = field.indexOf(0);
    return field.subarray(0, end < 0 ? width : end).toString("utf8");
  };
  const number = (at: number, width: number) => {
    // Larger numbers are stored in binary, with the first bit set.
    if (bytes[at]! & 0x80) return Number(bytes.readBigUInt64BE(at + width - 8));
    return Number.parseInt(text(at, width).trim() || "0", 8);
  };
  const stored = number(148, 8);
  const sum = bytes.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
  if (stored !== sum) throw errorOf({ code: "damaged", message: "the archive is damaged: a header checksum does not match" });
  const prefix = text(257, 6).startsWith("ustar") && bytes[262] === 0 ? text(345, 155) : "";
  const name = text(0, 100);
  return {
    name: prefix ? `${prefix}/${name}` : name,
    mode: number(100, 8),
    size: number(124, 12),
    modifiedS: number(136, 12),
    kind: String.fromCharCode(bytes[156]!),
    link: text(157, 100),
  };
}

/** Parses an extended header: the fields that it sets for the following entry. */
function extended(kind: string, data: Buffer): Partial<Entry> {
  if (kind !== "x") {
    const text = data.toString("utf8").replace(/\0+$/, "");
    return kind === "L" ? { name: text } : { link: text };
  }
  const said: Partial<Entry> = {};
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(32, at);
    const length = Number.parseInt(data.subarray(at, space).toString("latin1"), 10);
    if (space < 0 || !(length > space - at)) throw errorOf({ code: "damaged", message: "the archive is damaged: an extended header is invalid" });
    const [key, ...value] = data.subarray(space + 1, at + length - 1).toString("utf8").split("=");
    if (key === "path") said.name = value.join("=");
    if (key === "linkpath") said.link = value.join("=");
    if (key === "size") said.size = Number(value.join("="));
    at += length;
  }
  return said;
}

function refused(name: string, why: string): Error {
  return errorOf({ code: "unprocessable", message: `refused to unpack \`${name}\` from the archive: ${why}` });
}

/** Reads a stream in requested amounts. */
class Source {
  readonly #pieces: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** Returns at least one byte, and `max` at most. */
  async some(max: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const next = await this.#pieces.next();
      if (next.done) throw errorOf({ code: "damaged", message: "the archive is damaged: it ends in the middle of an entry" });
      this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.length);
    }
    const piece = this.#rest.subarray(0, max);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  async take(count: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = count; left > 0; ) {
      const piece = await this.some(left);
      left -= piece.length;
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0; ) left -= (await this.some(left)).length;
  }

  /** Reads to the end, so that the connection can be reused. */
  async drain(): Promise<void> {
    while (!(await this.#pieces.next()).done);
  }

  /** Closes the stream. If it was not read to its end, this closes the connection. */
  async close(): Promise<void> {
    await this.#pieces.return?.();
  }
}

/** Files of a sandbox. Paths are absolute inside it. */
import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { BurrowError, errorOf, isTransient } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { followed, values } from "./ndjson.js";
import { pack, unpack } from "./tar.js";
import { type Payload, type Transport, chunks } from "./transport.js";

/** A download that broke is taken up again so often without a byte in between. */
const RESUMES_MAX = 8;
const RESUME_PAUSE_MS = 250;

export type FileEntry = Schemas["FileEntry"];
export type WatchEvent = Schemas["WatchEvent"];

export interface WriteOptions {
  /** Octal permission bits; an existing file's own, else `0644`. */
  mode?: string;
  /** Owner; an existing file's own, else root. */
  user?: string;
  /** Make missing directories above it; true unless given. */
  parents?: boolean;
  /** Write at this offset of the existing file instead of replacing it as a whole. */
  offset?: number;
  /** On disk before the call returns. */
  sync?: boolean;
}

export class Files {
  readonly #transport: Transport;
  readonly #path: { sandbox: string };

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#path = { sandbox };
  }

  /** A text file, all of it. */
  async read(path: string): Promise<string> {
    return Buffer.from(await this.readBytes(path)).toString("utf8");
  }

  async readBytes(path: string): Promise<Uint8Array> {
    return this.#transport.bytes("GET /v1/sandboxes/{sandbox}/files", { path: this.#path, query: { path } });
  }

  /**
   * A file of any size, as it comes. When the connection breaks it goes on where it was, as long as the file is still
   * the same.
   */
  async *readStream(path: string): AsyncGenerator<Uint8Array, void, undefined> {
    const before = await this.stat(path, { follow: true });
    let offset = 0;
    let failures = 0;
    while (offset < before.size || offset === 0) {
      try {
        const headers: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
        const reply = await this.#transport.open("GET /v1/sandboxes/{sandbox}/files", { path: this.#path, query: { path }, headers });
        for await (const piece of chunks(reply)) {
          offset += piece.length;
          failures = 0;
          yield piece;
        }
        return;
      } catch (error) {
        failures += 1;
        if (!isTransient(error) || failures > RESUMES_MAX) throw error;
        await sleep(RESUME_PAUSE_MS * failures);
        const now = await this.stat(path, { follow: true });
        if (now.size !== before.size || now.modifiedMs !== before.modifiedMs) {
          throw errorOf({ code: "conflict", message: `\`${path}\` changed while it was read`, cause: error });
        }
      }
    }
  }

  /** Replaces a file as a whole: readers see the old one or the new one. Missing directories above it are made. */
  async write(path: string, data: Payload, options: WriteOptions = {}): Promise<FileEntry> {
    const query = { parents: true, ...options, path };
    return this.#transport.call("PUT /v1/sandboxes/{sandbox}/files", { path: this.#path, query, payload: data });
  }

  /** What is in a directory; `depth` 1 is its own entries. */
  async list(path: string, options: { depth?: number } = {}): Promise<FileEntry[]> {
    const query = { ...options, path };
    return (await this.#transport.call("GET /v1/sandboxes/{sandbox}/files/list", { path: this.#path, query })).entries;
  }

  /** Of a symbolic link: of the link itself, or with `follow` of what it points to. */
  async stat(path: string, options: { follow?: boolean } = {}): Promise<FileEntry> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/files/stat", { path: this.#path, query: { ...options, path } });
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      // A sandbox that is not there is no file that is not there.
      if (!(error instanceof BurrowError) || error.code !== "not_found") throw error;
      await this.#transport.call("GET /v1/sandboxes/{sandbox}", { path: this.#path });
      return false;
    }
  }

  async mkdir(path: string, options: { parents?: boolean; mode?: string; user?: string } = {}): Promise<FileEntry> {
    const body = { parents: true, ...options, path };
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/files/mkdir", { path: this.#path, body });
  }

  async move(from: string, to: string): Promise<FileEntry> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/files/move", { path: this.#path, body: { from, to } });
  }

  /** A directory with all it holds only if `recursive` is given. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/files", { path: this.#path, query: { ...options, path } });
  }

  /** Octal permission bits. */
  async chmod(path: string, mode: string): Promise<FileEntry> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/files/chmod", { path: this.#path, body: { path, mode }, repeat: "safe" });
  }

  /** A local file or directory to `path`. Of a directory, what is in it comes to lie in `path`. */
  async upload(local: string, path: string, options: { user?: string } = {}): Promise<void> {
    if ((await stat(local)).isDirectory()) {
      await this.uploadTar(pack(local), path, options);
    } else {
      await this.write(path, createReadStream(local), options);
    }
  }

  /** A file or directory to a local path. Of a directory, what is in it comes to lie in `local`. */
  async download(path: string, local: string): Promise<void> {
    const entry = await this.stat(path, { follow: true });
    if (entry.kind === "directory") {
      await unpack(this.downloadTar(path), local);
    } else {
      await pipeline(Readable.from(this.readStream(path)), createWriteStream(local));
    }
  }

  /** Unpacks a tar archive in a directory, there or to be made. */
  async uploadTar(archive: Payload, path: string, options: { user?: string } = {}): Promise<Schemas["TarSummary"]> {
    return this.#transport.call("PUT /v1/sandboxes/{sandbox}/files/tar", {
      path: this.#path,
      query: { ...options, path },
      payload: archive,
      contentType: "application/x-tar",
    });
  }

  /** A file or directory as a tar archive. What comes is a stranger's: unpack it with care. */
  async *downloadTar(path: string): AsyncGenerator<Uint8Array, void, undefined> {
    yield* chunks(await this.#transport.open("GET /v1/sandboxes/{sandbox}/files/tar", { path: this.#path, query: { path } }));
  }

  /**
   * Changes below a path as they happen, from the moment this returns. After a broken connection an `overflow` says
   * that some may have been missed.
   */
  async watch(path: string, options: { recursive?: boolean; signal?: AbortSignal } = {}): Promise<AsyncIterable<WatchEvent>> {
    const { signal, ...rest } = options;
    const open = async () => {
      const query = { ...rest, path };
      const reply = await this.#transport.open("GET /v1/sandboxes/{sandbox}/files/watch", { path: this.#path, query, signal });
      const events = values<WatchEvent>(reply);
      // The first says that the watch is in place.
      await events.next();
      return events;
    };
    let first: AsyncIterable<WatchEvent> | undefined = await open();
    return followed<WatchEvent>(async () => {
      const ready = first;
      first = undefined;
      return ready ?? prefixed({ kind: "overflow", path }, await open());
    }, signal);
  }
}

async function* prefixed<T>(first: T, rest: AsyncIterable<T>): AsyncGenerator<T, void, undefined> {
  yield first;
  yield* rest;
}

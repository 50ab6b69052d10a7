/** Files of a sandbox. Paths are absolute paths inside the sandbox. */
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

/** Maximum number of consecutive attempts to resume a download without receiving a byte. */
const RESUMES_MAX = 8;
const RESUME_PAUSE_MS = 250;

export type FileEntry = Schemas["FileEntry"];
export type WatchEvent = Schemas["WatchEvent"];

export interface WriteOptions {
  /** Octal permission bits. Defaults to those of the existing file, else `0644`. */
  mode?: string;
  /** Owner. Defaults to that of the existing file, else root. */
  user?: string;
  /** Create missing parent directories. Defaults to true. */
  parents?: boolean;
  /** Write at this offset of the existing file instead of replacing it as a whole. */
  offset?: number;
  /** Sync the file to disk before the call returns. */
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

  /** Reads a whole text file. */
  async read(path: string): Promise<string> {
    return Buffer.from(await this.readBytes(path)).toString("utf8");
  }

  async readBytes(path: string): Promise<Uint8Array> {
    return this.#transport.bytes("GET /v1/sandboxes/{sandbox}/files", { path: this.#path, query: { path } });
  }

  /**
   * Streams a file of any size. When the connection breaks, the download resumes where it stopped, unless the file has
   * changed.
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

  /** Replaces a whole file atomically: readers see the old or the new file. Creates missing parent directories. */
  async write(path: string, data: Payload, options: WriteOptions = {}): Promise<FileEntry> {
    const query = { parents: true, ...options, path };
    return this.#transport.call("PUT /v1/sandboxes/{sandbox}/files", { path: this.#path, query, payload: data });
  }

  /** Lists a directory. `depth` 1 returns its direct entries only. */
  async list(path: string, options: { depth?: number } = {}): Promise<FileEntry[]> {
    const query = { ...options, path };
    return (await this.#transport.call("GET /v1/sandboxes/{sandbox}/files/list", { path: this.#path, query })).entries;
  }

  /** Returns the metadata of a file. For a symbolic link, that of the link, or with `follow` that of its target. */
  async stat(path: string, options: { follow?: boolean } = {}): Promise<FileEntry> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/files/stat", { path: this.#path, query: { ...options, path } });
  }

  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      // Distinguish a missing file from a missing sandbox, which is an error.
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

  /** Removes a file or an empty directory, or with `recursive` a directory and its contents. */
  async remove(path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/files", { path: this.#path, query: { ...options, path } });
  }

  /** Sets the permission bits, in octal. */
  async chmod(path: string, mode: string): Promise<FileEntry> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/files/chmod", { path: this.#path, body: { path, mode }, repeat: "safe" });
  }

  /** Uploads a local file to `path`, or the contents of a local directory into the directory `path`. */
  async upload(local: string, path: string, options: { user?: string } = {}): Promise<void> {
    if ((await stat(local)).isDirectory()) {
      await this.uploadTar(pack(local), path, options);
    } else {
      await this.write(path, createReadStream(local), options);
    }
  }

  /** Downloads a file to `local`, or the contents of a directory into the directory `local`. */
  async download(path: string, local: string): Promise<void> {
    const entry = await this.stat(path, { follow: true });
    if (entry.kind === "directory") {
      await unpack(this.downloadTar(path), local);
    } else {
      await pipeline(Readable.from(this.readStream(path)), createWriteStream(local));
    }
  }

  /** Unpacks a tar archive into a directory, which is created if it is missing. */
  async uploadTar(archive: Payload, path: string, options: { user?: string } = {}): Promise<Schemas["TarSummary"]> {
    return this.#transport.call("PUT /v1/sandboxes/{sandbox}/files/tar", {
      path: this.#path,
      query: { ...options, path },
      payload: archive,
      contentType: "application/x-tar",
    });
  }

  /** Downloads a file or directory as a tar archive. The archive is untrusted input: unpack it with care. */
  async *downloadTar(path: string): AsyncGenerator<Uint8Array, void, undefined> {
    yield* chunks(await this.#transport.open("GET /v1/sandboxes/{sandbox}/files/tar", { path: this.#path, query: { path } }));
  }

  /**
   * Watches the changes below a path, from the moment this call returns. After a broken connection an `overflow` event
   * reports that changes may have been missed.
   */
  async watch(path: string, options: { recursive?: boolean; signal?: AbortSignal } = {}): Promise<AsyncIterable<WatchEvent>> {
    const { signal, ...rest } = options;
    const open = async () => {
      const query = { ...rest, path };
      const reply = await this.#transport.open("GET /v1/sandboxes/{sandbox}/files/watch", { path: this.#path, query, signal });
      const events = values<WatchEvent>(reply);
      // The first event confirms that the watch is active.
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

/** Artifacts: named blobs with versions. */
import type { Schemas } from "../generated/api.js";
import { type Payload, chunks } from "../transport.js";
import type { Scope } from "./scope.js";

export type Artifact = Schemas["Artifact"];

export class Artifacts {
  readonly #scope: Scope;

  /** @internal */
  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Stores an artifact, or a new version of an existing one. */
  put(name: string, data: Payload, options: { mediaType?: string; metadata?: Record<string, unknown> } = {}): Promise<Artifact> {
    const headers: Record<string, string> = options.metadata ? { "x-burrow-metadata": ascii(options.metadata) } : {};
    return this.#scope.transport.call("PUT /v1/memory/{of}/artifacts/{name}", {
      path: this.#scope.path({ name }),
      query: this.#scope.writing(),
      payload: data,
      headers,
      ...(options.mediaType === undefined ? {} : { contentType: options.mediaType }),
      // A repeat of a request that took effect would store another version.
      repeat: "never",
    });
  }

  /** Reads a whole artifact. Defaults to the newest version. */
  async get(name: string, options: { version?: number } = {}): Promise<Uint8Array> {
    const query = { ...this.#scope.reading(), ...options };
    return this.#scope.transport.bytes("GET /v1/memory/{of}/artifacts/{name}", { path: this.#scope.path({ name }), query });
  }

  async getText(name: string, options: { version?: number } = {}): Promise<string> {
    return Buffer.from(await this.get(name, options)).toString("utf8");
  }

  /** Streams an artifact. Defaults to the newest version. */
  async *getStream(name: string, options: { version?: number } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const query = { ...this.#scope.reading(), ...options };
    yield* chunks(await this.#scope.transport.open("GET /v1/memory/{of}/artifacts/{name}", { path: this.#scope.path({ name }), query }));
  }

  /** Lists the newest version of each artifact whose name begins with `prefix`. */
  list(prefix = ""): Promise<Artifact[]> {
    const query = { ...this.#scope.reading(), ...(prefix ? { prefix } : {}) };
    return this.#scope.transport.list("GET /v1/memory/{of}/artifacts", { path: this.#scope.path(), query });
  }

  /** All versions, oldest first. */
  versions(name: string): Promise<Artifact[]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/artifact-versions/{name}", { path: this.#scope.path({ name }), query: this.#scope.reading() });
  }

  async remove(name: string): Promise<void> {
    await this.#scope.transport.call("DELETE /v1/memory/{of}/artifacts/{name}", { path: this.#scope.path({ name }), query: this.#scope.writing() });
  }
}

/** Encodes a value as ASCII JSON for a header. Non-ASCII characters occur only in strings, where they can be escaped. */
export function ascii(value: unknown): string {
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

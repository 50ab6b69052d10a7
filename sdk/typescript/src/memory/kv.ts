/** The key-value store: plans, counters, locks. A value is any JSON value. */
import { BurrowError, errorOf } from "../errors.js";
import type { Schemas } from "../generated/api.js";
import { followed, values } from "../ndjson.js";
import type { Scope } from "./scope.js";

export type KvItem = Schemas["KvItem"];
export type KvEvent = Exclude<Schemas["KvEvent"], { kind: "error" } | { kind: "heartbeat" }>;

export interface KvSetOptions {
  /** Expire the key after this time. */
  ttlSeconds?: number;
  /** Write only if the key does not exist; otherwise throw a ConflictError. */
  ifAbsent?: boolean;
  /** Write only if the key still has this version; otherwise throw a ConflictError. */
  ifVersion?: number;
}

export class Kv {
  readonly #scope: Scope;

  /** @internal */
  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Returns the value, or `undefined` if the key does not exist. */
  async get<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.item(key))?.value as T | undefined;
  }

  /** Returns the value with its version and times, or `undefined` if the key does not exist. */
  async item(key: string): Promise<KvItem | undefined> {
    try {
      return await this.#scope.transport.call("GET /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query: this.#scope.reading() });
    } catch (error) {
      if (!(error instanceof BurrowError) || error.code !== "not_found") throw error;
      // Distinguish a missing key from a missing sandbox, which is an error.
      const query = { ...this.#scope.reading(), limit: 1 };
      await this.#scope.transport.call("GET /v1/memory/{of}/kv", { path: this.#scope.path(), query });
      return undefined;
    }
  }

  set(key: string, value: unknown, options: KvSetOptions = {}): Promise<KvItem> {
    // A repeat of a conditional write that took effect would report a conflict with itself.
    const repeat = options.ifAbsent || options.ifVersion !== undefined ? "never" : "safe";
    const body = { ...options, value };
    return this.#scope.transport.call("PUT /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query: this.#scope.writing(), body, repeat });
  }

  /** Deletes a key. A missing key is not an error. */
  async delete(key: string, options: { ifVersion?: number } = {}): Promise<void> {
    const query = { ...this.#scope.writing(), ...options };
    await this.#scope.transport.call("DELETE /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query });
  }

  /** Lists the keys that begin with `prefix`, sorted by key. */
  list(prefix = ""): Promise<KvItem[]> {
    const query = { ...this.#scope.reading(), ...(prefix ? { prefix } : {}) };
    return this.#scope.transport.list("GET /v1/memory/{of}/kv", { path: this.#scope.path(), query });
  }

  /** Adds to a number and returns the sum. Never repeated automatically. */
  async increment(key: string, by = 1, options: { ttlSeconds?: number } = {}): Promise<number> {
    const body = { ...options, key, by };
    const item = await this.#scope.transport.call("POST /v1/memory/{of}/kv-increment", { path: this.#scope.path(), query: this.#scope.writing(), body });
    return item.value as number;
  }

  /** Applies all operations atomically, or none. */
  async batch(ops: Schemas["KvOperation"][]): Promise<(KvItem | null)[]> {
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/kv-batch", { path: this.#scope.path(), query: this.#scope.writing(), body: { ops } });
    return answer.items;
  }

  /** Every version of a key, oldest first. */
  history(key: string): Promise<Schemas["KvVersion"][]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/kv-history/{key}", { path: this.#scope.path({ key }), query: this.#scope.reading() });
  }

  /**
   * Watches the changes of the keys that begin with `prefix`: after version `since`, or from now on. No change is missed
   * when the connection breaks.
   */
  async *watch(prefix = "", options: { since?: number; signal?: AbortSignal } = {}): AsyncGenerator<KvEvent, void, undefined> {
    let { since } = options;
    const open = async () => {
      const query = { ...this.#scope.writing(), ...(prefix ? { prefix } : {}), ...(since === undefined ? {} : { since }) };
      const reply = await this.#scope.transport.open("GET /v1/memory/{of}/kv-watch", { path: this.#scope.path(), query, signal: options.signal });
      return checked(values<Schemas["KvEvent"]>(reply));
    };
    for await (const event of followed(open, options.signal)) {
      // Numbers before a reset belong to another log.
      since = event.kind === "reset" ? event.seq : Math.max(event.seq, since ?? 0);
      if (event.kind !== "heartbeat") yield event;
    }
  }
}

/** Throws an error event of the stream as an error. */
async function* checked(events: AsyncIterable<Schemas["KvEvent"]>): AsyncGenerator<Exclude<Schemas["KvEvent"], { kind: "error" }>, void, undefined> {
  for await (const event of events) {
    if (event.kind === "error") throw errorOf(event.error);
    yield event;
  }
}

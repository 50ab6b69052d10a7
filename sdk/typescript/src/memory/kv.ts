/** Keys and values: plans, counters, locks. Values are anything that JSON can say. */
import { BurrowError, errorOf } from "../errors.js";
import type { Schemas } from "../generated/api.js";
import { followed, values } from "../ndjson.js";
import type { Scope } from "./scope.js";

export type KvItem = Schemas["KvItem"];
export type KvEvent = Exclude<Schemas["KvEvent"], { kind: "error" } | { kind: "heartbeat" }>;

export interface KvSetOptions {
  /** Gone after this time. */
  ttlSeconds?: number;
  /** Only if there is no such key; else a ConflictError. */
  ifAbsent?: boolean;
  /** Only if it still has this version; else a ConflictError. */
  ifVersion?: number;
}

export class Kv {
  readonly #scope: Scope;

  /** @internal */
  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** The value; `undefined` where there is no such key. */
  async get<T = unknown>(key: string): Promise<T | undefined> {
    return (await this.item(key))?.value as T | undefined;
  }

  /** The value with its version and times. */
  async item(key: string): Promise<KvItem | undefined> {
    try {
      return await this.#scope.transport.call("GET /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query: this.#scope.reading() });
    } catch (error) {
      if (!(error instanceof BurrowError) || error.code !== "not_found") throw error;
      // A sandbox that does not exist is no key that does not exist.
      const query = { ...this.#scope.reading(), limit: 1 };
      await this.#scope.transport.call("GET /v1/memory/{of}/kv", { path: this.#scope.path(), query });
      return undefined;
    }
  }

  set(key: string, value: unknown, options: KvSetOptions = {}): Promise<KvItem> {
    // Repeated after it took effect, a conditional write would report a conflict with itself.
    const repeat = options.ifAbsent || options.ifVersion !== undefined ? "never" : "safe";
    const body = { ...options, value };
    return this.#scope.transport.call("PUT /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query: this.#scope.writing(), body, repeat });
  }

  /** What is not there is no error. */
  async delete(key: string, options: { ifVersion?: number } = {}): Promise<void> {
    const query = { ...this.#scope.writing(), ...options };
    await this.#scope.transport.call("DELETE /v1/memory/{of}/kv/{key}", { path: this.#scope.path({ key }), query });
  }

  /** Keys that begin with `prefix`, by key. */
  list(prefix = ""): Promise<KvItem[]> {
    const query = { ...this.#scope.reading(), ...(prefix ? { prefix } : {}) };
    return this.#scope.transport.list("GET /v1/memory/{of}/kv", { path: this.#scope.path(), query });
  }

  /** Adds to a number, 1 unless given, and answers the sum. Never repeated by itself. */
  async increment(key: string, by = 1, options: { ttlSeconds?: number } = {}): Promise<number> {
    const body = { ...options, key, by };
    const item = await this.#scope.transport.call("POST /v1/memory/{of}/kv-increment", { path: this.#scope.path(), query: this.#scope.writing(), body });
    return item.value as number;
  }

  /** All of it, or nothing. */
  async batch(ops: Schemas["KvOperation"][]): Promise<(KvItem | null)[]> {
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/kv-batch", { path: this.#scope.path(), query: this.#scope.writing(), body: { ops } });
    return answer.items;
  }

  /** Every version of a key, oldest first. */
  history(key: string): Promise<Schemas["KvVersion"][]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/kv-history/{key}", { path: this.#scope.path({ key }), query: this.#scope.reading() });
  }

  /**
   * Changes of the keys that begin with `prefix`: after version `since`, or from now on. None is missed when the connection
   * breaks.
   */
  async *watch(prefix = "", options: { since?: number; signal?: AbortSignal } = {}): AsyncGenerator<KvEvent, void, undefined> {
    let { since } = options;
    const open = async () => {
      const query = { ...this.#scope.writing(), ...(prefix ? { prefix } : {}), ...(since === undefined ? {} : { since }) };
      const reply = await this.#scope.transport.open("GET /v1/memory/{of}/kv-watch", { path: this.#scope.path(), query, signal: options.signal });
      return checked(values<Schemas["KvEvent"]>(reply));
    };
    for await (const event of followed(open, options.signal)) {
      // Numbers before a reset are another log's.
      since = event.kind === "reset" ? event.seq : Math.max(event.seq, since ?? 0);
      if (event.kind !== "heartbeat") yield event;
    }
  }
}

/** A refusal within the stream, as an error. */
async function* checked(events: AsyncIterable<Schemas["KvEvent"]>): AsyncGenerator<Exclude<Schemas["KvEvent"], { kind: "error" }>, void, undefined> {
  for await (const event of events) {
    if (event.kind === "error") throw errorOf(event.error);
    yield event;
  }
}

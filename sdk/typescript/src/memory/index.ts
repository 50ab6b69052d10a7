/** The memory of an agent: entries, key-value store, skills, artifacts. */
import { randomUUID } from "node:crypto";
import { ConflictError } from "../errors.js";
import type { Schemas } from "../generated/api.js";
import { lines } from "../ndjson.js";
import type { Payload, Transport } from "../transport.js";
import { Artifacts } from "./artifacts.js";
import { Kv } from "./kv.js";
import { type Scope, scopeOf } from "./scope.js";
import { Skills } from "./skills.js";

export type MemoryEntry = Schemas["MemoryEntry"];
export type MemoryHit = Schemas["MemoryHit"];
export type ContextBlock = Schemas["ContextBlock"];
/** One message of a conversation, in the format of model APIs. */
export type TurnMessage = { role: string; content?: unknown; [key: string]: unknown };

/** Maximum number of entries that one search returns. */
const HITS_MAX = 200;

export interface StoreOptions extends Partial<Omit<Schemas["NewEntry"], "text" | "kind" | "key">> {
  /** A lower-case word such as `fact`, `decision` or `observation`. Defaults to `note`. */
  memoryType?: string;
  /** Storing an entry under the same key again has no effect. */
  key?: string;
}

export interface RetrieveOptions extends Partial<Omit<Schemas["SearchMemory"], "query" | "limit">> {
  /** Maximum number of results. Defaults to 10; at most 200. */
  nResults?: number;
  /** Return only entries of this kind, or of one of these kinds. */
  memoryType?: string | string[];
}

export interface FormatOptions extends Pick<RetrieveOptions, "memoryType" | "filter" | "spaces"> {
  /** Maximum number of entries. Defaults to as many as fit into the budget. */
  maxMemories?: number;
  /** Maximum size of the block in tokens. Defaults to 1000. */
  budgetTokens?: number;
}

/**
 * The memory of a sandbox, or of a space that outlives sandboxes.
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
 *
 * await using s = await Sandbox.create();
 * await s.memory.store("the deploy key is on db-2", { memoryType: "fact" });
 * const [hit] = await s.memory.retrieve("where is the deploy key?", { nResults: 1 });
 * console.log(hit?.entry.text); // prints: the deploy key is on db-2
 * await s.memory.kv.set("plan/step", 3);
 * console.log(await s.memory.kv.get("plan/step")); // prints: 3
 * ```
 */
export class Memory {
  readonly kv: Kv;
  readonly skills: Skills;
  readonly artifacts: Artifacts;
  readonly #scope: Scope;
  readonly #of: string;
  readonly #asOf: string | undefined;
  readonly #space: string | undefined;

  /** @internal */
  constructor(transport: Transport, of: string, asOf?: string, space?: string) {
    this.#of = of;
    this.#asOf = asOf;
    this.#space = space;
    this.#scope = scopeOf(transport, of, asOf, space);
    this.kv = new Kv(this.#scope);
    this.skills = new Skills(this.#scope);
    this.artifacts = new Artifacts(this.#scope);
  }

  /** The memory at an earlier moment, for reading: a number of the log, a time, or a snapshot. */
  asOf(moment: number | string | Date): Memory {
    const text = moment instanceof Date ? moment.toISOString() : String(moment);
    return new Memory(this.#scope.transport, this.#of, text, this.#space);
  }

  /** Uses an attached space instead of the sandbox's own memory. */
  inSpace(space: string): Memory {
    return new Memory(this.#scope.transport, this.#of, this.#asOf, space);
  }

  /**
   * Stores a text verbatim. It is durable when this call returns. A retry after a broken connection does not store it
   * twice.
   */
  async store(text: string, options: StoreOptions = {}): Promise<Schemas["AddedEntry"]> {
    const [added] = await this.storeMany([{ ...options, text }]);
    return added!;
  }

  /** Stores several entries in this order, all or none. */
  async storeMany(entries: (StoreOptions & { text: string })[]): Promise<Schemas["AddedEntry"][]> {
    const body = {
      entries: entries.map(({ memoryType, ...entry }) => ({
        ...entry,
        ...(memoryType === undefined ? {} : { kind: memoryType }),
        key: entry.key ?? randomUUID(),
      })),
    } as Schemas["AddEntries"];
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/entries", { path: this.#scope.path(), query: this.#scope.writing(), body, repeat: "safe" });
    return answer.entries;
  }

  /** Searches for entries that match a query, best first. */
  async retrieve(query: string, options: RetrieveOptions = {}): Promise<MemoryHit[]> {
    return (await this.search(query, options)).hits;
  }

  /** Like `retrieve`, and reports which search methods contributed. */
  search(query: string, options: RetrieveOptions = {}): Promise<Schemas["SearchResult"]> {
    const { nResults, memoryType, filter, ...rest } = options;
    const body = { ...rest, ...narrowed(filter, memoryType), query, ...(nResults === undefined ? {} : { limit: nResults }) };
    return this.#scope.transport.call("POST /v1/memory/{of}/search", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
  }

  /**
   * Formats matching entries as a block for a prompt, with dates, ids and relevance, fenced as data. Empty if no entry
   * matches.
   */
  async formatForContext(query: string, options: FormatOptions = {}): Promise<string> {
    const { maxMemories, memoryType, filter, ...rest } = options;
    let narrow = narrowed(filter, memoryType);
    if (maxMemories !== undefined) {
      const found = { ...(rest.spaces ? { spaces: rest.spaces } : {}), ...narrow, nResults: Math.min(maxMemories, HITS_MAX) };
      const ids = maxMemories > 0 ? (await this.retrieve(query, found)).map((hit) => hit.entry.id) : [];
      if (ids.length === 0) return "";
      narrow = { filter: { ...narrow.filter, ids } };
    }
    return (await this.context({ ...rest, ...narrow, query })).text;
  }

  /**
   * A block for a prompt, and the ids it contains. Without a query it contains the last session, open work and recent
   * failures.
   */
  context(request: Schemas["ContextRequest"] = {}): Promise<ContextBlock> {
    return this.#scope.transport.call("POST /v1/memory/{of}/context", { path: this.#scope.path(), query: this.#scope.looking(), body: request, repeat: "safe" });
  }

  /** Returns the block to add before a turn of a conversation. */
  recall(messages: TurnMessage[], options: { budgetTokens?: number; session?: string } = {}): Promise<ContextBlock> {
    const body = { ...options, messages } as Schemas["RecallRequest"];
    return this.#scope.transport.call("POST /v1/memory/{of}/recall", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
  }

  /** Stores the messages of a turn. Messages that were just stored are not stored again. */
  storeTurn(messages: TurnMessage[], options: { session?: string; user?: string; agent?: string } = {}): Promise<Schemas["StoredTurn"]> {
    const body = { ...options, messages } as Schemas["StoreTurn"];
    return this.#scope.transport.call("POST /v1/memory/{of}/turns", { path: this.#scope.path(), query: this.#scope.writing(), body, repeat: "safe" });
  }

  /** Iterates over entries, newest first. Pages are fetched as needed. */
  list(filter: { memoryType?: string; session?: string; source?: string; user?: string; agent?: string; sinceMs?: number; untilMs?: number } = {}): AsyncIterable<MemoryEntry> {
    const { memoryType, ...rest } = filter;
    const query = { ...this.#scope.reading(), ...rest, ...(memoryType === undefined ? {} : { kind: memoryType }) };
    return this.#scope.transport.pages("GET /v1/memory/{of}/entries", { path: this.#scope.path(), query });
  }

  get(entry: string): Promise<MemoryEntry> {
    return this.#scope.transport.call("GET /v1/memory/{of}/entries/{entry}", { path: this.#scope.path({ entry }), query: this.#scope.reading() });
  }

  /** Stores a new version of an entry. The old version stays in the history. */
  update(entry: string, change: Schemas["UpdateEntry"]): Promise<MemoryEntry> {
    return this.#scope.transport.call("PATCH /v1/memory/{of}/entries/{entry}", { path: this.#scope.path({ entry }), query: this.#scope.writing(), body: change });
  }

  /** Every version, oldest first. */
  history(entry: string): Promise<Schemas["MemoryVersion"][]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/entries/{entry}/history", { path: this.#scope.path({ entry }), query: this.#scope.reading() });
  }

  /** Forgets entries, by id or by filter: they are no longer found, except at earlier moments. Returns their number. */
  async forget(what: string | Schemas["ForgetEntries"]): Promise<number> {
    const body = typeof what === "string" ? { ids: [what] } : what;
    return (await this.#scope.transport.call("POST /v1/memory/{of}/forget", { path: this.#scope.path(), query: this.#scope.writing(), body })).count;
  }

  /** Erases entries permanently, from every version, branch and snapshot. */
  erase(what: string | Schemas["EraseEntries"]): Promise<Schemas["ErasedEntries"]> {
    const body = typeof what === "string" ? { ids: [what] } : what;
    return this.#scope.transport.call("POST /v1/memory/{of}/erase", { path: this.#scope.path(), query: this.#scope.writing(), body });
  }

  /** Lists sessions, newest first. */
  sessions(): Promise<Schemas["MemorySession"][]> {
    return this.#scope.transport.list("GET /v1/memory/{of}/sessions", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  stats(): Promise<Schemas["MemoryStats"]> {
    return this.#scope.transport.call("GET /v1/memory/{of}", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  /**
   * Merges the memory of a fork. Entries that both changed are listed, and keep their version here unless a policy
   * resolves them.
   */
  merge(from: string, options: Omit<Schemas["MergeMemory"], "from"> = {}): Promise<Schemas["MergedMemory"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/merge", { path: this.#scope.path(), body: { ...options, from } });
  }

  /** Consolidates the memory: merges duplicate entries and summarizes old ones. */
  consolidate(options: Schemas["ConsolidateMemory"] = {}): Promise<Schemas["ConsolidatedMemory"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/consolidate", { path: this.#scope.path(), query: this.#scope.writing(), body: options });
  }

  /** Checks that all indexes agree with the log. */
  check(): Promise<Schemas["MemoryCheck"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/check", { path: this.#scope.path(), query: this.#scope.writing(), repeat: "safe" });
  }

  /** Exports all entries as JSON lines. */
  async *export(): AsyncGenerator<string, void, undefined> {
    yield* lines(await this.#scope.transport.open("GET /v1/memory/{of}/export", { path: this.#scope.path(), query: this.#scope.reading() }));
  }

  /** Imports JSON lines, as written by `export`. Existing entries are not stored again. */
  import(jsonLines: Payload): Promise<Schemas["ImportedMemory"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/import", {
      path: this.#scope.path(),
      query: this.#scope.writing(),
      payload: jsonLines,
      contentType: "application/x-ndjson",
      repeat: "safe",
    });
  }
}

/** Memory spaces, which outlive sandboxes and can be shared by several. */
export class Spaces {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  create(name: string, options: Omit<Schemas["CreateSpace"], "name"> = {}): Promise<Schemas["Space"]> {
    return this.#transport.call("POST /v1/spaces", { body: { ...options, name } });
  }

  list(): Promise<Schemas["Space"][]> {
    return this.#transport.list("GET /v1/spaces");
  }

  /** Returns a space, with the sandboxes that use it. */
  get(space: string): Promise<Schemas["Space"]> {
    return this.#transport.call("GET /v1/spaces/{space}", { path: { space } });
  }

  update(space: string, change: Schemas["UpdateSpace"]): Promise<Schemas["Space"]> {
    return this.#transport.call("PATCH /v1/spaces/{space}", { path: { space }, body: change, repeat: "safe" });
  }

  async getOrCreate(name: string, options: Omit<Schemas["CreateSpace"], "name"> = {}): Promise<Schemas["Space"]> {
    try {
      return await this.create(name, options);
    } catch (error) {
      if (error instanceof ConflictError) return this.get(name);
      throw error;
    }
  }

  /** Deletes a space and its contents. Refused while a sandbox uses it, unless `force` is set. */
  async delete(space: string, options: { force?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/spaces/{space}", { path: { space }, query: options });
  }

  /** The memory in a space. */
  memory(space: string): Memory {
    return new Memory(this.#transport, `space:${space}`);
  }
}

function narrowed(filter: Schemas["EntryFilter"] | null | undefined, memoryType: string | string[] | undefined): { filter?: Schemas["EntryFilter"] } {
  if (memoryType === undefined) return filter ? { filter } : {};
  return { filter: { ...filter, kinds: [memoryType].flat() } };
}

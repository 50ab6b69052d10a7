/** What an agent remembers: entries, keys and values, skills, artifacts. */
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
/** One message of a conversation, as model APIs write it. */
export type TurnMessage = { role: string; content?: unknown; [key: string]: unknown };

/** Most entries that one search answers. */
const HITS_MAX = 200;

export interface StoreOptions extends Partial<Omit<Schemas["NewEntry"], "text" | "kind" | "key">> {
  /** A lower-case word: `note` unless given; `fact`, `decision`, `observation`, … */
  memoryType?: string;
  /** Storing under the same key again stores nothing new. */
  key?: string;
}

export interface RetrieveOptions extends Partial<Omit<Schemas["SearchMemory"], "query" | "limit">> {
  /** 10 unless given, 200 at most. */
  nResults?: number;
  /** Only of this kind, or of one of these. */
  memoryType?: string | string[];
}

export interface FormatOptions extends Pick<RetrieveOptions, "memoryType" | "filter" | "spaces"> {
  /** Entries at most; as many as fit unless given. */
  maxMemories?: number;
  /** 1000 unless given. */
  budgetTokens?: number;
}

/**
 * The memory of a sandbox, or of a space that outlives sandboxes.
 *
 * ```ts
 * import { Sandbox } from "@burrow/sdk";
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

  /** As it was: at a number of the log, a time, or a snapshot. For reading. */
  asOf(moment: number | string | Date): Memory {
    const text = moment instanceof Date ? moment.toISOString() : String(moment);
    return new Memory(this.#scope.transport, this.#of, text, this.#space);
  }

  /** The same for an attached space instead of the one it remembers in. */
  inSpace(space: string): Memory {
    return new Memory(this.#scope.transport, this.#of, this.#asOf, space);
  }

  /** Remembers a text, verbatim. It is on disk when this returns; a broken connection does not store it twice. */
  async store(text: string, options: StoreOptions = {}): Promise<Schemas["AddedEntry"]> {
    const [added] = await this.storeMany([{ ...options, text }]);
    return added!;
  }

  /** All of them or none, in this order. */
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

  /** What fits a question, best first. */
  async retrieve(query: string, options: RetrieveOptions = {}): Promise<MemoryHit[]> {
    return (await this.search(query, options)).hits;
  }

  /** The same, and which arms of the search took part. */
  search(query: string, options: RetrieveOptions = {}): Promise<Schemas["SearchResult"]> {
    const { nResults, memoryType, filter, ...rest } = options;
    const body = { ...rest, ...narrowed(filter, memoryType), query, ...(nResults === undefined ? {} : { limit: nResults }) };
    return this.#scope.transport.call("POST /v1/memory/{of}/search", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
  }

  /** A block for a prompt: dated, with ids and relevance, fenced as data. Empty when there is nothing to tell. */
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

  /** A block for a prompt with what it is made of. Without a query: where was I. */
  context(request: Schemas["ContextRequest"] = {}): Promise<ContextBlock> {
    return this.#scope.transport.call("POST /v1/memory/{of}/context", { path: this.#scope.path(), query: this.#scope.looking(), body: request, repeat: "safe" });
  }

  /** What to put before a turn of a conversation. */
  recall(messages: TurnMessage[], options: { budgetTokens?: number; session?: string } = {}): Promise<ContextBlock> {
    const body = { ...options, messages } as Schemas["RecallRequest"];
    return this.#scope.transport.call("POST /v1/memory/{of}/recall", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
  }

  /** What to remember after it. What was stored just before is not stored again. */
  storeTurn(messages: TurnMessage[], options: { session?: string; user?: string; agent?: string } = {}): Promise<Schemas["StoredTurn"]> {
    const body = { ...options, messages } as Schemas["StoreTurn"];
    return this.#scope.transport.call("POST /v1/memory/{of}/turns", { path: this.#scope.path(), query: this.#scope.writing(), body, repeat: "safe" });
  }

  /** Entries, newest first, as they are asked for. */
  list(filter: { memoryType?: string; session?: string; source?: string; user?: string; agent?: string; sinceMs?: number; untilMs?: number } = {}): AsyncIterable<MemoryEntry> {
    const { memoryType, ...rest } = filter;
    const query = { ...this.#scope.reading(), ...rest, ...(memoryType === undefined ? {} : { kind: memoryType }) };
    return this.#scope.transport.pages("GET /v1/memory/{of}/entries", { path: this.#scope.path(), query });
  }

  get(entry: string): Promise<MemoryEntry> {
    return this.#scope.transport.call("GET /v1/memory/{of}/entries/{entry}", { path: this.#scope.path({ entry }), query: this.#scope.reading() });
  }

  /** A new version; the old one stays in the history. */
  update(entry: string, change: Schemas["UpdateEntry"]): Promise<MemoryEntry> {
    return this.#scope.transport.call("PATCH /v1/memory/{of}/entries/{entry}", { path: this.#scope.path({ entry }), query: this.#scope.writing(), body: change });
  }

  /** Every version, oldest first. */
  history(entry: string): Promise<Schemas["MemoryVersion"][]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/entries/{entry}/history", { path: this.#scope.path({ entry }), query: this.#scope.reading() });
  }

  /** Not found any more from now on; earlier moments still have it. By id, or by what they are. */
  async forget(what: string | Schemas["ForgetEntries"]): Promise<number> {
    const body = typeof what === "string" ? { ids: [what] } : what;
    return (await this.#scope.transport.call("POST /v1/memory/{of}/forget", { path: this.#scope.path(), query: this.#scope.writing(), body })).count;
  }

  /** Gone for good, from every version, branch and snapshot. */
  erase(what: string | Schemas["EraseEntries"]): Promise<Schemas["ErasedEntries"]> {
    const body = typeof what === "string" ? { ids: [what] } : what;
    return this.#scope.transport.call("POST /v1/memory/{of}/erase", { path: this.#scope.path(), query: this.#scope.writing(), body });
  }

  /** Newest first. */
  sessions(): Promise<Schemas["MemorySession"][]> {
    return this.#scope.transport.list("GET /v1/memory/{of}/sessions", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  stats(): Promise<Schemas["MemoryStats"]> {
    return this.#scope.transport.call("GET /v1/memory/{of}", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  /** Brings what a fork remembered back. What both changed is listed, and stays as it is here unless said otherwise. */
  merge(from: string, options: Omit<Schemas["MergeMemory"], "from"> = {}): Promise<Schemas["MergedMemory"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/merge", { path: this.#scope.path(), body: { ...options, from } });
  }

  /** Makes it smaller: joins what says the same, sums up what is old. */
  consolidate(options: Schemas["ConsolidateMemory"] = {}): Promise<Schemas["ConsolidatedMemory"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/consolidate", { path: this.#scope.path(), query: this.#scope.writing(), body: options });
  }

  /** Whether all indices agree with the log. */
  check(): Promise<Schemas["MemoryCheck"]> {
    return this.#scope.transport.call("POST /v1/memory/{of}/check", { path: this.#scope.path(), query: this.#scope.writing(), repeat: "safe" });
  }

  /** All entries as lines of JSON. */
  async *export(): AsyncGenerator<string, void, undefined> {
    yield* lines(await this.#scope.transport.open("GET /v1/memory/{of}/export", { path: this.#scope.path(), query: this.#scope.reading() }));
  }

  /** Lines of JSON, as `export` gives them. What is there already is not stored again. */
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

/** Spaces that outlive sandboxes, and that several may share. */
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

  /** With the sandboxes that use it. */
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

  /** With all it holds. Refused while a sandbox uses it, unless forced. */
  async delete(space: string, options: { force?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/spaces/{space}", { path: { space }, query: options });
  }

  /** What is remembered in it. */
  memory(space: string): Memory {
    return new Memory(this.#transport, `space:${space}`);
  }
}

function narrowed(filter: Schemas["EntryFilter"] | null | undefined, memoryType: string | string[] | undefined): { filter?: Schemas["EntryFilter"] } {
  if (memoryType === undefined) return filter ? { filter } : {};
  return { filter: { ...filter, kinds: [memoryType].flat() } };
}

/** A sandbox, and all that can be done with it. */
import type { Client } from "./client.js";
import { type CodeRun, Contexts, type RunCodeOptions, runCode } from "./code.js";
import type { ConnectOptions } from "./config.js";
import { Egress } from "./egress.js";
import { type BurrowError, ForkError, errorOf } from "./errors.js";
import { Files } from "./files.js";
import type { Schemas } from "./generated/api.js";
import { Memory } from "./memory/index.js";
import { type Diff, type DiffOptions, type MergeOptions, type Merged, type Race, type RaceOptions, diff, merge, race } from "./merges.js";
import { Ports } from "./ports.js";
import { type Command, Process, type ProcessEvent, type RunOptions, type SpawnOptions, create, run, shown, stream } from "./process.js";
import type { CommandResult } from "./result.js";
import { Secrets } from "./secrets.js";
import { Services } from "./services.js";
import { type Snapshot, Snapshots } from "./snapshots.js";
import { Transport } from "./transport.js";

export type SandboxInfo = Schemas["Sandbox"];

/** A daemon other than the one the environment names. */
export type Connection = { client?: Client } & ConnectOptions;

type CreateSandbox = Schemas["CreateSandbox"];
type ForkSandbox = Schemas["ForkSandbox"];

export interface ListFilter {
  /** `key=value`; all must match. */
  label?: string[];
  /** In one of these. */
  state?: Schemas["SandboxState"][];
}

export interface CreateOptions extends CreateSandbox {
  /** Leave it when `await using` ends. So it is for a sandbox with a name; one without is deleted then. */
  keep?: boolean;
}

export type ForkOptions = Omit<ForkSandbox, "count">;

/** What changed since the checkpoint before, and the snapshot to come back to. */
export interface Checkpoint {
  snapshot: Snapshot;
  /** The snapshot it is compared with; absent: the image. */
  since: string | undefined;
  added: string[];
  changed: string[];
  deleted: string[];
  /** How many paths changed in all; the lists hold the first thousand. */
  total: number;
  /** So much changed that only some of it was looked at. */
  more: boolean;
}

/** Of checkpoints, to tell them from snapshots that people take; the Python SDK has the same. */
const CHECKPOINT_LABEL = { "burrow-checkpoint": "sdk" };
const CHECKPOINTS_KEPT = 10;

const defaultShell = "if command -v bash >/dev/null; then exec bash; else exec sh; fi";

/**
 * A persistent machine for an agent. It is kept until it is deleted.
 *
 * ```ts
 * import { Sandbox } from "@burrow/sdk";
 *
 * await using s = await Sandbox.create();
 * const result = await s.run("echo hello; exit 3");
 * console.log(result.exitCode, result.stdout.trim()); // prints: 3 hello
 * ```
 *
 * A sandbox without a name is deleted where `await using` ends; one with a name stays, and is found again:
 *
 * ```ts
 * import { Sandbox } from "@burrow/sdk";
 *
 * const dev = await Sandbox.getOrCreate("dev");
 * await dev.files.write("/srv/notes.txt", "kept\n");
 * const same = await Sandbox.connect("dev");
 * console.log(await same.files.read("/srv/notes.txt")); // prints: kept
 * await same.delete();
 * ```
 */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  /** What code runs in. */
  readonly contexts: Contexts;
  readonly files: Files;
  readonly ports: Ports;
  readonly memory: Memory;
  readonly egress: Egress;
  /** The host's: a rule of `egress` has requests of this sandbox carry one. */
  readonly secrets: Secrets;
  readonly services: Services;
  /** Those of this sandbox. */
  readonly snapshots: Snapshots;
  readonly #transport: Transport;
  #info: SandboxInfo;
  #owned: boolean;

  /** @internal */
  constructor(transport: Transport, info: SandboxInfo, owned: boolean) {
    this.#transport = transport;
    this.#info = info;
    this.#owned = owned;
    this.id = info.id;
    this.contexts = new Contexts(transport, info.id);
    this.files = new Files(transport, info.id);
    this.ports = new Ports(transport, info.id);
    this.memory = new Memory(transport, info.id);
    this.egress = new Egress(transport, info.id);
    this.secrets = new Secrets(transport);
    this.services = new Services(transport, info.id);
    this.snapshots = new Snapshots(transport, info.id);
  }

  // === Making and finding ===

  /** A new sandbox, running. */
  static async create(options: CreateOptions & Connection = {}): Promise<Sandbox> {
    const { request, transport } = parted(options);
    const { keep, ...body } = request as CreateOptions;
    const info = await transport.call("POST /v1/sandboxes", { body, repeat: "once" });
    return new Sandbox(transport, info, !keep && !body.name);
  }

  /** The sandbox of this name, started or woken; a new one where there is none. Many callers at once get the same. */
  static getOrCreate(name: string, options: Omit<CreateOptions, "name" | "keep"> & Connection = {}): Promise<Sandbox> {
    return Sandbox.create({ ...options, name, ifNotExists: true });
  }

  /** A sandbox that exists: by id, by the beginning of its id, or by name. It is woken by what is done with it. */
  static async connect(sandbox: string, options: Connection = {}): Promise<Sandbox> {
    const { transport } = parted(options);
    const info = await transport.call("GET /v1/sandboxes/{sandbox}", { path: { sandbox } });
    return new Sandbox(transport, info, false);
  }

  /** All of them, or those that match. */
  static async list(options: ListFilter & Connection = {}): Promise<Sandbox[]> {
    const { request, transport } = parted(options);
    const found = await transport.list("GET /v1/sandboxes", { query: request });
    return found.map((info) => new Sandbox(transport, info, false));
  }

  /** A new sandbox that goes on where a snapshot is, also of a sandbox that is gone. */
  static async fromSnapshot(snapshot: string, options: Schemas["SandboxFromSnapshot"] & Connection = {}): Promise<Sandbox> {
    const { request, transport } = parted(options);
    const body = request as Schemas["SandboxFromSnapshot"];
    const info = await transport.call("POST /v1/snapshots/{snapshot}/sandboxes", { path: { snapshot }, body, repeat: "once" });
    return new Sandbox(transport, info, !body.name);
  }

  /** What is known of it, as of the last call that told. */
  get info(): SandboxInfo {
    return this.#info;
  }

  get state(): Schemas["SandboxState"] {
    return this.#info.state;
  }

  get name(): string | undefined {
    return this.#info.name ?? undefined;
  }

  /** What is known of it now. */
  async refresh(): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("GET /v1/sandboxes/{sandbox}", { path: this.#path }));
  }

  // === Commands ===

  /**
   * Runs a command to its end. A string is a line for the shell, a list a program and its arguments. What it ends with is
   * in the result; `check: true` throws instead.
   */
  run(command: Command, options: RunOptions = {}): Promise<CommandResult> {
    return run(this.#transport, this.id, command, options);
  }

  /**
   * Runs a command and tells what it says as it comes; the last event is its end. Leaving the loop early leaves the
   * command running.
   *
   * ```ts
   * import { Sandbox } from "@burrow/sdk";
   *
   * await using s = await Sandbox.create();
   * for await (const event of s.stream("echo one; exit 4")) {
   *   if (event.kind === "stdout") console.log("out", event.text.trim()); // prints: out one
   *   if (event.kind === "exit") console.log("end", event.result.exitCode); // prints: end 4
   * }
   * ```
   */
  stream(command: Command, options: Omit<RunOptions, "check"> = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    return stream(this.#transport, this.id, command, options);
  }

  /**
   * Starts a process in the background. It goes on when this program ends.
   *
   * ```ts
   * import { Sandbox } from "@burrow/sdk";
   *
   * await using s = await Sandbox.create();
   * const cat = await s.spawn("cat", { stdin: true });
   * await cat.write("hello\n");
   * await cat.closeStdin();
   * console.log((await cat.wait()).stdout.trim()); // prints: hello
   * ```
   */
  async spawn(command: Command, options: SpawnOptions & { stdin?: boolean } = {}): Promise<Process> {
    const { stdin, ...rest } = options;
    const request = { ...rest, ...(stdin ? { stdin: "pipe" as const } : {}) };
    return new Process(this.#transport, this.id, await create(this.#transport, this.id, command, request), shown(command));
  }

  /** A terminal with a shell in it, or with a command. Both streams come as `stdout`. */
  async pty(options: SpawnOptions & { command?: Command; columns?: number; rows?: number } = {}): Promise<Process> {
    const { command = defaultShell, columns = 80, rows = 24, ...rest } = options;
    const request = { env: { TERM: "xterm-256color" }, ...rest, terminal: { columns, rows }, stdin: "pipe" as const };
    return new Process(this.#transport, this.id, await create(this.#transport, this.id, command, request), shown(command));
  }

  /** A process that was started before, by anybody. */
  async process(id: string): Promise<Process> {
    const path = { ...this.#path, exec: id };
    return new Process(this.#transport, this.id, await this.#transport.call("GET /v1/sandboxes/{sandbox}/execs/{exec}", { path }));
  }

  /** What was started in it, newest first. */
  async processes(): Promise<Process[]> {
    const execs = await this.#transport.list("GET /v1/sandboxes/{sandbox}/execs", { path: this.#path });
    return execs.map((exec) => new Process(this.#transport, this.id, exec));
  }

  // === Code ===

  /**
   * Runs code in a context that keeps its variables, as a cell of a notebook does: one that `contexts` made, or the one of the
   * language, Python. The sandbox needs an image with an interpreter. What it fails with is in the answer; `check: true` throws
   * instead.
   *
   * ```ts no-run
   * import { Sandbox } from "@burrow/sdk";
   *
   * await using s = await Sandbox.create({ image: "python-interpreter" });
   * await s.runCode("x = 6 * 7");
   * const run = await s.runCode("print('asked'); x", { onStdout: (text) => console.log(text.trim()) }); // prints: asked
   * console.log(run.text); // prints: 42
   * ```
   */
  runCode(code: string, options: RunCodeOptions = {}): Promise<CodeRun> {
    return runCode(this.#transport, this.id, code, options);
  }

  // === Ports ===

  /** A link that opens a port without a key until it expires, one hour unless given. */
  getUrl(port: number, options: { expiresSeconds?: number } = {}): Promise<string> {
    return this.ports.getUrl(port, options);
  }

  // === Snapshots and forks ===

  /** Files, configuration and processes as they are at this instant; with a name, to find it again. */
  snapshot(options: string | Schemas["CreateSnapshot"] = {}): Promise<Snapshot> {
    const body = typeof options === "string" ? { name: options } : options;
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/snapshots", { path: this.#path, body, repeat: "once" });
  }

  /** Goes back to a snapshot, in place. Answers the snapshot that undoes it. */
  async restore(snapshot: string | Snapshot, options: { filesOnly?: boolean } = {}): Promise<Snapshot> {
    const body = { ...options, snapshot: typeof snapshot === "string" ? snapshot : snapshot.id };
    const restored = await this.#transport.call("POST /v1/sandboxes/{sandbox}/restore", { path: this.#path, body });
    this.#info = restored.sandbox;
    return restored.undo;
  }

  /**
   * Children that go on from this instant, processes included. They share files until somebody writes.
   *
   * ```ts
   * import { Sandbox } from "@burrow/sdk";
   *
   * await using s = await Sandbox.create();
   * await s.files.write("/srv/n", "1");
   * const children = await s.fork(3);
   * const all = await Promise.all(children.map((child, i) => child.run(`echo $(( $(cat /srv/n) + ${i} ))`)));
   * console.log(all.map((result) => result.stdout.trim()).join(" ")); // prints: 1 2 3
   * await Promise.all(children.map((child) => child.delete()));
   * ```
   */
  async fork(count = 1, options: ForkOptions = {}): Promise<Sandbox[]> {
    const body = { ...options, count };
    const forked = await this.#transport.call("POST /v1/sandboxes/{sandbox}/fork", { path: this.#path, body, repeat: "once" });
    const owned = (options.names ?? []).length === 0;
    const children = forked.children.map((info) => new Sandbox(this.#transport, info, owned));
    if (forked.failed.length > 0) throw new ForkError(children, forked.failed.map((detail) => errorOf(detail)));
    return children;
  }

  /**
   * Takes a snapshot and tells what changed since the last one; the first counts from the image. The last `keep` without a
   * name stay as points to come back to, 10 unless given.
   *
   * ```ts
   * import { Sandbox } from "@burrow/sdk";
   *
   * await using s = await Sandbox.create();
   * await s.checkpointState({ filesOnly: true });
   * await s.run("echo 1 > /srv/new");
   * const checkpoint = await s.checkpointState({ filesOnly: true });
   * console.log(checkpoint.added.includes("/srv/new")); // prints: true
   * ```
   */
  async checkpointState(options: { name?: string; filesOnly?: boolean; keep?: number } = {}): Promise<Checkpoint> {
    const { keep = CHECKPOINTS_KEPT, ...rest } = options;
    const label = Object.entries(CHECKPOINT_LABEL).map(([key, value]) => `${key}=${value}`);
    const earlier = await this.snapshots.list({ label });
    const snapshot = await this.snapshot({ ...rest, labels: CHECKPOINT_LABEL });
    const checkpoint = await this.#checkpoint(snapshot, earlier[0]?.id);
    for (const old of earlier.filter(({ name }) => !name).slice(Math.max(0, keep - 1))) {
      await this.snapshots.delete(old.id).catch((error: BurrowError) => {
        // Somebody was quicker, or something else stands on it.
        if (error.code !== "not_found" && error.code !== "snapshot_in_use") throw error;
      });
    }
    return checkpoint;
  }

  /** A snapshot is compared with the one before, which somebody else may have taken: then they are compared anew. */
  async #checkpoint(snapshot: Snapshot, last: string | undefined): Promise<Checkpoint> {
    if (last === undefined || snapshot.changes.since === last) return checkpointOf(snapshot);
    const found = await diff(this.#transport, `snapshot:${last}`, `snapshot:${snapshot.id}`, { all: true });
    const of = (kind: Schemas["ChangeKind"]) => found.entries.filter(({ change }) => change === kind).map(({ path }) => path);
    const total = found.added + found.changed + found.deleted;
    return { snapshot, since: last, added: of("added"), changed: of("changed"), deleted: of("deleted"), total, more: found.cut };
  }

  // === Bringing work together ===

  /**
   * What is different in its files from those of another sandbox, a snapshot or an image (by name or id; `sandbox:`, `snapshot:`
   * or `image:` before it says which); from its own image unless given.
   */
  diff(since?: string | Sandbox | Snapshot, options: DiffOptions = {}): Promise<Diff> {
    const from =
      since === undefined
        ? `image:${this.#info.imageId}`
        : typeof since === "string"
          ? since
          : `${since instanceof Sandbox ? "sandbox" : "snapshot"}:${since.id}`;
    return diff(this.#transport, from, `sandbox:${this.id}`, options);
  }

  /**
   * Brings what a fork did into this sandbox, three-way against what both came from; restoring `undo` of the answer takes it
   * back. Conflicts that no policy settles throw a `MergeError`, and nothing is merged; `dryRun` only tells.
   */
  merge(child: string | Sandbox, options: MergeOptions = {}): Promise<Merged> {
    return merge(this.#transport, this.id, typeof child === "string" ? child : child.id, options);
  }

  /**
   * Forks into several attempts at one command, and waits for the best of them. Each finds its number in `BURROW_ATTEMPT`.
   */
  race(command: Command, attempts = 3, options: RaceOptions = {}): Promise<Race> {
    return race(this.#transport, this.id, command, attempts, options);
  }

  // === Sleep, and the rest of its life ===

  /** No CPU, RAM kept. Whatever uses it wakes it. */
  pause(): Promise<SandboxInfo> {
    return this.#power("pause");
  }

  resume(): Promise<SandboxInfo> {
    return this.#power("resume");
  }

  /** Processes to disk, RAM given back. Whatever uses it wakes it, where it was. */
  sleep(): Promise<SandboxInfo> {
    return this.#power("hibernate");
  }

  wake(): Promise<SandboxInfo> {
    return this.#power("wake");
  }

  /** Processes end; files, environment and services are kept. */
  async stop(options: { graceMs?: number } = {}): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("POST /v1/sandboxes/{sandbox}/stop", { path: this.#path, query: options, repeat: "safe" }));
  }

  /** With `filesOnly`, one whose processes do not come back boots from its files. */
  async start(options: { filesOnly?: boolean } = {}): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("POST /v1/sandboxes/{sandbox}/start", { path: this.#path, query: options, repeat: "safe" }));
  }

  /** Limits, labels, environment, name, policies. */
  async update(change: Schemas["UpdateSandbox"]): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("PATCH /v1/sandboxes/{sandbox}", { path: this.#path, body: change }));
  }

  stats(): Promise<Schemas["Stats"]> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/stats", { path: this.#path });
  }

  /** With all it holds. Its snapshots stay unless they are meant, too. */
  async delete(options: { snapshots?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}", { path: this.#path, query: options });
    this.#owned = false;
  }

  /** Deletes it if it has no name and was made here; else it stays. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#owned) return;
    await this.delete().catch((error: BurrowError) => {
      if (error.code !== "not_found") throw error;
    });
  }

  async #power(what: "pause" | "resume" | "hibernate" | "wake"): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call(`POST /v1/sandboxes/{sandbox}/${what}`, { path: this.#path, repeat: "safe" }));
  }

  get #path(): { sandbox: string } {
    return { sandbox: this.id };
  }
}

function checkpointOf(snapshot: Snapshot): Checkpoint {
  const { changes } = snapshot;
  const of = (kind: Schemas["ChangeKind"]) => changes.paths.filter((change) => change.kind === kind).map(({ path }) => path);
  return {
    snapshot,
    since: changes.since ?? undefined,
    added: of("added"),
    changed: of("changed"),
    deleted: of("deleted"),
    total: changes.total,
    more: changes.more ?? false,
  };
}

let shared: Transport | undefined;
let sharedFrom: string | undefined;

/** What is for the daemon, and which daemon. Whoever names none shares the environment's. */
function parted<T extends Connection>(options: T): { request: Omit<T, keyof Connection>; transport: Transport } {
  const { client, url, apiKey, caFile, retries, ...request } = options;
  if (client) return { request, transport: client.transport };
  const own = { url, apiKey, caFile, retries };
  const given = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== undefined));
  if (Object.keys(given).length > 0) return { request, transport: new Transport(given) };
  const from = ["BURROW_URL", "BURROW_API_KEY", "BURROW_CA_FILE"].map((name) => process.env[name]).join("\n");
  if (shared === undefined || sharedFrom !== from) {
    shared = new Transport();
    sharedFrom = from;
  }
  return { request, transport: shared };
}

/** A sandbox and its operations. */
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

/** Selects a daemon other than the one that the environment selects. */
export type Connection = { client?: Client } & ConnectOptions;

type CreateSandbox = Schemas["CreateSandbox"];
type ForkSandbox = Schemas["ForkSandbox"];

export interface ListFilter {
  /** Labels as `key=value`; all must match. */
  label?: string[];
  /** Only sandboxes in one of these states. */
  state?: Schemas["SandboxState"][];
}

export interface CreateOptions extends CreateSandbox {
  /** Keep the sandbox when `await using` ends. Sandboxes with a name are always kept; the others are deleted by default. */
  keep?: boolean;
}

export type ForkOptions = Omit<ForkSandbox, "count">;

/** The changes since the previous checkpoint, and the snapshot of this one. */
export interface Checkpoint {
  snapshot: Snapshot;
  /** The snapshot that this one is compared with; `undefined` for the image. */
  since: string | undefined;
  added: string[];
  changed: string[];
  deleted: string[];
  /** The number of changed paths; the lists contain the first thousand. */
  total: number;
  /** Whether so many paths changed that only some were compared. */
  more: boolean;
}

/** Label that distinguishes checkpoints from other snapshots; the Python SDK uses the same. */
const CHECKPOINT_LABEL = { "burrow-checkpoint": "sdk" };
const CHECKPOINTS_KEPT = 10;

const defaultShell = "if command -v bash >/dev/null; then exec bash; else exec sh; fi";

/**
 * A persistent sandbox. It exists until it is deleted.
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
 *
 * await using s = await Sandbox.create();
 * const result = await s.run("echo hello; exit 3");
 * console.log(result.exitCode, result.stdout.trim()); // prints: 3 hello
 * ```
 *
 * A sandbox without a name is deleted when `await using` ends. A sandbox with a name persists, and can be opened again:
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
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
  /** The contexts of `runCode`. */
  readonly contexts: Contexts;
  readonly files: Files;
  readonly ports: Ports;
  readonly memory: Memory;
  readonly egress: Egress;
  /** The secrets of the host. A rule of `egress` inserts one into requests of this sandbox. */
  readonly secrets: Secrets;
  readonly services: Services;
  /** The snapshots of this sandbox. */
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

  // === Creating and finding ===

  /** Creates and starts a sandbox. */
  static async create(options: CreateOptions & Connection = {}): Promise<Sandbox> {
    const { request, transport } = parted(options);
    const { keep, ...body } = request as CreateOptions;
    const info = await transport.call("POST /v1/sandboxes", { body, repeat: "once" });
    return new Sandbox(transport, info, !keep && !body.name);
  }

  /**
   * Returns the sandbox of this name, started or woken, and creates it if it does not exist. Concurrent callers get the
   * same one.
   */
  static getOrCreate(name: string, options: Omit<CreateOptions, "name" | "keep"> & Connection = {}): Promise<Sandbox> {
    return Sandbox.create({ ...options, name, ifNotExists: true });
  }

  /** Returns an existing sandbox, by id, id prefix, or name. The call does not wake it; any use does. */
  static async connect(sandbox: string, options: Connection = {}): Promise<Sandbox> {
    const { transport } = parted(options);
    const info = await transport.call("GET /v1/sandboxes/{sandbox}", { path: { sandbox } });
    return new Sandbox(transport, info, false);
  }

  /** Lists the sandboxes that match the filter; without a filter, all sandboxes. */
  static async list(options: ListFilter & Connection = {}): Promise<Sandbox[]> {
    const { request, transport } = parted(options);
    const found = await transport.list("GET /v1/sandboxes", { query: request });
    return found.map((info) => new Sandbox(transport, info, false));
  }

  /** Creates a sandbox that continues from a snapshot, even if the sandbox of the snapshot was deleted. */
  static async fromSnapshot(snapshot: string, options: Schemas["SandboxFromSnapshot"] & Connection = {}): Promise<Sandbox> {
    const { request, transport } = parted(options);
    const body = request as Schemas["SandboxFromSnapshot"];
    const info = await transport.call("POST /v1/snapshots/{snapshot}/sandboxes", { path: { snapshot }, body, repeat: "once" });
    return new Sandbox(transport, info, !body.name);
  }

  /** The state of the sandbox, as returned by the most recent call. */
  get info(): SandboxInfo {
    return this.#info;
  }

  get state(): Schemas["SandboxState"] {
    return this.#info.state;
  }

  get name(): string | undefined {
    return this.#info.name ?? undefined;
  }

  /** Fetches the present state of the sandbox. */
  async refresh(): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("GET /v1/sandboxes/{sandbox}", { path: this.#path }));
  }

  // === Commands ===

  /**
   * Runs a command to its end. A string is a shell command line, a list is a program and its arguments. The result contains
   * the exit code; with `check: true`, a code other than 0 throws an error.
   */
  run(command: Command, options: RunOptions = {}): Promise<CommandResult> {
    return run(this.#transport, this.id, command, options);
  }

  /**
   * Runs a command and yields its output as it arrives; the last event is its exit. Leaving the loop early does not stop
   * the command.
   *
   * ```ts
   * import { Sandbox } from "burrow-sandbox";
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
   * Starts a background process. It continues when this program ends.
   *
   * ```ts
   * import { Sandbox } from "burrow-sandbox";
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

  /** Starts a shell, or a command, on a terminal. Both streams arrive as `stdout`. */
  async pty(options: SpawnOptions & { command?: Command; columns?: number; rows?: number } = {}): Promise<Process> {
    const { command = defaultShell, columns = 80, rows = 24, ...rest } = options;
    const request = { env: { TERM: "xterm-256color" }, ...rest, terminal: { columns, rows }, stdin: "pipe" as const };
    return new Process(this.#transport, this.id, await create(this.#transport, this.id, command, request), shown(command));
  }

  /** Returns a process by its id, no matter which client started it. */
  async process(id: string): Promise<Process> {
    const path = { ...this.#path, exec: id };
    return new Process(this.#transport, this.id, await this.#transport.call("GET /v1/sandboxes/{sandbox}/execs/{exec}", { path }));
  }

  /** Lists the processes that were started through the API, newest first. */
  async processes(): Promise<Process[]> {
    const execs = await this.#transport.list("GET /v1/sandboxes/{sandbox}/execs", { path: this.#path });
    return execs.map((exec) => new Process(this.#transport, this.id, exec));
  }

  // === Code ===

  /**
   * Runs code in a context that keeps its variables, like a cell of a notebook. Defaults to the default context of the
   * language, which defaults to Python. The sandbox needs an image with an interpreter. The result contains the error of code
   * that fails; with `check: true` it is thrown.
   *
   * ```ts no-run
   * import { Sandbox } from "burrow-sandbox";
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

  /** Returns a link that opens the port without an API key until it expires. Defaults to one hour. */
  getUrl(port: number, options: { expiresSeconds?: number } = {}): Promise<string> {
    return this.ports.getUrl(port, options);
  }

  // === Snapshots and forks ===

  /** Takes a snapshot of files, configuration and processes. A string is the name of the snapshot. */
  snapshot(options: string | Schemas["CreateSnapshot"] = {}): Promise<Snapshot> {
    const body = typeof options === "string" ? { name: options } : options;
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/snapshots", { path: this.#path, body, repeat: "once" });
  }

  /** Restores a snapshot in place. Returns the snapshot that undoes the restore. */
  async restore(snapshot: string | Snapshot, options: { filesOnly?: boolean } = {}): Promise<Snapshot> {
    const body = { ...options, snapshot: typeof snapshot === "string" ? snapshot : snapshot.id };
    const restored = await this.#transport.call("POST /v1/sandboxes/{sandbox}/restore", { path: this.#path, body });
    this.#info = restored.sandbox;
    return restored.undo;
  }

  /**
   * Forks the sandbox into children that continue from this moment, processes included. Files are shared copy-on-write.
   *
   * ```ts
   * import { Sandbox } from "burrow-sandbox";
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
   * Takes a snapshot and reports the changes since the previous checkpoint; the first is compared with the image. The last
   * `keep` unnamed checkpoints are kept; the default is 10.
   *
   * ```ts
   * import { Sandbox } from "burrow-sandbox";
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
        // Another client has deleted it already, or it is in use.
        if (error.code !== "not_found" && error.code !== "snapshot_in_use") throw error;
      });
    }
    return checkpoint;
  }

  /**
   * The daemon compares a snapshot with the previous one. If that is not our last checkpoint, this requests a
   * comparison with it.
   */
  async #checkpoint(snapshot: Snapshot, last: string | undefined): Promise<Checkpoint> {
    if (last === undefined || snapshot.changes.since === last) return checkpointOf(snapshot);
    const found = await diff(this.#transport, `snapshot:${last}`, `snapshot:${snapshot.id}`, { all: true });
    const of = (kind: Schemas["ChangeKind"]) => found.entries.filter(({ change }) => change === kind).map(({ path }) => path);
    const total = found.added + found.changed + found.deleted;
    return { snapshot, since: last, added: of("added"), changed: of("changed"), deleted: of("deleted"), total, more: found.cut };
  }

  // === Differences and merges ===

  /**
   * Returns the differences between the files of another sandbox, a snapshot or an image, and those of this sandbox. `since` is a
   * name or id; the prefix `sandbox:`, `snapshot:` or `image:` resolves an ambiguous one. Defaults to the sandbox's own image.
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
   * Merges the changes of a fork into this sandbox, as a three-way merge against their common ancestor. Restoring the snapshot
   * `undo` of the result undoes the merge. If a conflict is not resolved by a policy, nothing is merged and a `MergeError` is
   * thrown. `dryRun` only reports the changes.
   */
  merge(child: string | Sandbox, options: MergeOptions = {}): Promise<Merged> {
    return merge(this.#transport, this.id, typeof child === "string" ? child : child.id, options);
  }

  /**
   * Forks into several attempts, runs the command in each, and waits for the best. `BURROW_ATTEMPT` contains the number of the
   * attempt.
   */
  race(command: Command, attempts = 3, options: RaceOptions = {}): Promise<Race> {
    return race(this.#transport, this.id, command, attempts, options);
  }

  // === Sleep, and the rest of the lifecycle ===

  /** Pauses the sandbox: it gets no CPU time and keeps its RAM. Any use wakes it. */
  pause(): Promise<SandboxInfo> {
    return this.#power("pause");
  }

  resume(): Promise<SandboxInfo> {
    return this.#power("resume");
  }

  /** Hibernates the sandbox: saves its processes to disk and frees its RAM. Any use wakes it, and the processes continue. */
  sleep(): Promise<SandboxInfo> {
    return this.#power("hibernate");
  }

  wake(): Promise<SandboxInfo> {
    return this.#power("wake");
  }

  /** Stops the sandbox: ends its processes and keeps files, environment and services. */
  async stop(options: { graceMs?: number } = {}): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("POST /v1/sandboxes/{sandbox}/stop", { path: this.#path, query: options, repeat: "safe" }));
  }

  /** Starts the sandbox. With `filesOnly`, a sandbox whose processes cannot be restored starts from its files. */
  async start(options: { filesOnly?: boolean } = {}): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("POST /v1/sandboxes/{sandbox}/start", { path: this.#path, query: options, repeat: "safe" }));
  }

  /** Changes limits, labels, environment, name, or policies. */
  async update(change: Schemas["UpdateSandbox"]): Promise<SandboxInfo> {
    return (this.#info = await this.#transport.call("PATCH /v1/sandboxes/{sandbox}", { path: this.#path, body: change }));
  }

  stats(): Promise<Schemas["Stats"]> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/stats", { path: this.#path });
  }

  /** Deletes the sandbox and its files. Its snapshots are kept unless `snapshots` is set. */
  async delete(options: { snapshots?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}", { path: this.#path, query: options });
    this.#owned = false;
  }

  /** Deletes the sandbox if this program created it without a name and without `keep`. */
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

/** Separates the connection options from the request. Calls without connection options share one transport. */
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

/** Differences between file trees, merges of one sandbox into another, and races. */
import { BurrowError } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import type { Snapshot } from "./snapshots.js";
import type { CallOptions, Route, Transport } from "./transport.js";

/** Duration of one long-poll request while waiting for a race: shorter than the timeouts of usual proxies. */
const RACE_WAIT_MS = 30_000;

/**
 * What to do if both sandboxes changed the same path: `fail` reports a conflict, `ours` keeps the parent's version, `theirs`
 * takes the child's, `union` keeps the lines of both, `text` merges line by line.
 */
export type MergePolicy = "fail" | "ours" | "theirs" | "union" | "text";
/** How the memory of the child is merged. */
export type MergeMemoryPolicy = "none" | "list" | "ours" | "theirs" | "both" | "fail";

export interface DiffSide {
  kind: "sandbox" | "snapshot" | "image";
  id: string;
}

/** The file at a path, before or after a change. */
export interface DiffNode {
  kind: Schemas["FileKind"];
  size: number;
  /** Octal permission bits. */
  mode: string;
  uid: number;
  gid: number;
  target?: string | null;
  xattrs?: string[];
}

export interface DiffEntry {
  path: string;
  change: Schemas["ChangeKind"];
  /** The changed attributes: `content`, `mode`, `owner`, … */
  what: string[];
  old?: DiffNode | null;
  new?: DiffNode | null;
  /** The changed lines, in the format of `diff -u`, if `content` was requested. */
  lines?: { added: number; removed: number; hunks: string; cut: boolean } | null;
}

export interface Diff {
  from: DiffSide;
  to: DiffSide;
  /** The common ancestor of both sides. */
  base?: DiffSide | null;
  entries: DiffEntry[];
  added: number;
  changed: number;
  deleted: number;
  oldBytes: number;
  newBytes: number;
  /** The omitted paths, counted by category. */
  noise: { what: string; count: number }[];
  /** Whether the list is truncated. */
  cut: boolean;
}

export interface DiffOptions {
  /** Return only paths that match one of these patterns: `*.py`, `/srv/**`. */
  globs?: string[];
  /** Include the changed lines of text files. */
  content?: boolean;
  /** Include caches, temporary files, logs and pid files. */
  all?: boolean;
  /** Maximum number of entries; further entries are only counted. */
  limit?: number;
}

export interface MergeOptions {
  /** Defaults to `fail`. */
  policy?: MergePolicy;
  /** Policies by path pattern; the first matching pattern applies. */
  policies?: Record<string, MergePolicy>;
  /** Defaults to `list`: the child's memory is merged, and entries that both changed are listed. */
  memory?: MergeMemoryPolicy;
  /** Include caches, temporary files, logs and pid files. */
  all?: boolean;
  /** Only report what the merge would do. */
  dryRun?: boolean;
}

/** The result of a merge or of a dry run. */
export interface Merged {
  id?: string | null;
  parent: string;
  child: string;
  base: string;
  dryRun: boolean;
  applied: boolean;
  /** Snapshot of the parent before the merge. Restoring it undoes the merge. */
  undo?: Snapshot | null;
  /** Paths by kind of change: `added`, `changed`, `deleted`, `merged`. */
  changes: Record<string, string[]>;
  moved: { from: string; to: string }[];
  total: number;
  cut: boolean;
  conflicts: { path: string; kind: string; base?: DiffNode | null; ours?: DiffNode | null; theirs?: DiffNode | null }[];
  /** Replaced files that processes of the parent have open. These processes keep using the old files. */
  open: { path: string; pid: number; program: string }[];
  noise: { what: string; count: number }[];
  memory?: Schemas["MergedMemory"] | null;
  pauseUs: number;
}

export interface RaceOptions {
  /**
   * Command that is run in every attempt after it ends; the number in its last line is the score. Without it, the
   * fastest attempt that exits with 0 wins.
   */
  judge?: string | readonly string[];
  /** Maximum number of concurrent attempts. Defaults to all. */
  parallel?: number;
  timeoutSeconds?: number;
  filesOnly?: boolean;
  /** Keep the sandboxes of the attempts after the race. */
  keep?: boolean;
  /** Merge the winner into the parent. */
  mergeWinner?: boolean;
  policy?: MergePolicy;
  onChange?: (race: Race) => void;
}

export interface Race {
  id: string;
  parent: string;
  stage: "forking" | "running" | "choosing" | "merging" | "cleaning" | "done";
  attempts: {
    number: number;
    sandbox: string;
    state: "waiting" | "running" | "judging" | "ended" | "failed";
    exec?: string | null;
    exitCode?: number | null;
    score?: number | null;
    tookMs?: number | null;
    why?: string | null;
    added?: number | null;
    changed?: number | null;
    deleted?: number | null;
    gone: boolean;
  }[];
  base?: string | null;
  /** Number of the winning attempt. */
  winner?: number | null;
  merged?: { applied: boolean; total: number; conflicts: string[]; undo?: string | null } | null;
  failure?: string | null;
  createdMs: number;
  endedMs?: number | null;
  version: number;
}

/** Both sandboxes changed the same path, and nothing was merged. `merged` lists the conflicts. */
export class MergeError extends BurrowError {
  readonly merged: Merged;

  constructor(merged: Merged) {
    const paths = merged.conflicts.slice(0, 3).map(({ path }) => `\`${path}\``);
    const more = merged.conflicts.length > paths.length ? ` and ${merged.conflicts.length - paths.length} more` : "";
    super({
      code: "conflict",
      message: `nothing was merged: both sandboxes changed ${paths.join(", ")}${more}`,
      hint: "resolve conflicts with `policy` (`ours`, `theirs`, `union`, `text`), or by path pattern with `policies`",
    });
    this.merged = merged;
  }
}

/** Compares two sides, each given as `sandbox:…`, `snapshot:…` or `image:…`. */
export function diff(transport: Transport, from: string, to: string, options: DiffOptions): Promise<Diff> {
  return ahead(transport, "POST /v1/diff", { body: { ...options, from, to }, repeat: "safe" });
}

export async function merge(transport: Transport, sandbox: string, child: string, options: MergeOptions): Promise<Merged> {
  const { policies, ...rest } = options;
  const rules = Object.entries(policies ?? {}).map(([glob, policy]) => ({ glob, policy }));
  const body = { ...rest, ...(rules.length > 0 ? { policies: rules } : {}), child };
  const repeat = options.dryRun ? "safe" : "never";
  const merged = await ahead<Merged>(transport, "POST /v1/sandboxes/{sandbox}/merge", { path: { sandbox }, body, repeat });
  if (merged.conflicts.length > 0 && !options.dryRun) throw new MergeError(merged);
  return merged;
}

/** Starts a race and waits for its end. */
export async function race(
  transport: Transport,
  parent: string,
  command: string | readonly string[],
  attempts: number,
  options: RaceOptions,
): Promise<Race> {
  const { judge, onChange, ...rest } = options;
  const body = { ...rest, parent, attempts, run: argv(command), ...(judge === undefined ? {} : { judge: argv(judge) }) };
  let now = await ahead<Race>(transport, "POST /v1/races", { body });
  while (now.stage !== "done") {
    onChange?.(now);
    now = await ahead(transport, "GET /v1/races/{race}", { path: { race: now.id }, query: { after: now.version, waitMs: RACE_WAIT_MS } });
  }
  return now;
}

function argv(command: string | readonly string[]): string[] {
  return typeof command === "string" ? ["/bin/sh", "-c", command] : [...command];
}

interface AheadOptions extends Pick<CallOptions<Route>, "path" | "repeat"> {
  body?: object;
  query?: object;
}

/** Calls a route that the OpenAPI document of the generated types does not contain. */
function ahead<T>(transport: Transport, route: string, options: AheadOptions): Promise<T> {
  return transport.call(route as Route, options as CallOptions<Route>) as Promise<T>;
}

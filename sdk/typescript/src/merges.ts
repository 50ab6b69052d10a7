/** What is different between two trees of files, and bringing the work of one sandbox into another. */
import { BurrowError } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import type { Snapshot } from "./snapshots.js";
import type { CallOptions, Route, Transport } from "./transport.js";

/** One question of a wait for a race: short enough for proxies in between. */
const RACE_WAIT_MS = 30_000;

/** Where both changed the same path: a conflict; the parent's stays; the child's comes; the lines of both; line by line. */
export type MergePolicy = "fail" | "ours" | "theirs" | "union" | "text";
/** What becomes of what the child remembers. */
export type MergeMemoryPolicy = "none" | "list" | "ours" | "theirs" | "both" | "fail";

export interface DiffSide {
  kind: "sandbox" | "snapshot" | "image";
  id: string;
}

/** What is, or was, at a path. */
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
  /** In what it has changed: `content`, `mode`, `owner`, … */
  what: string[];
  old?: DiffNode | null;
  new?: DiffNode | null;
  /** If asked for with `content`: as `diff -u` writes them. */
  lines?: { added: number; removed: number; hunks: string; cut: boolean } | null;
}

export interface Diff {
  from: DiffSide;
  to: DiffSide;
  /** Where their histories part. */
  base?: DiffSide | null;
  entries: DiffEntry[];
  added: number;
  changed: number;
  deleted: number;
  oldBytes: number;
  newBytes: number;
  /** What was left out, and how much of it. */
  noise: { what: string; count: number }[];
  /** There are more than are listed. */
  cut: boolean;
}

export interface DiffOptions {
  /** Only paths that one of these matches: `*.py`, `/srv/**`. */
  globs?: string[];
  /** With the lines of text files that differ. */
  content?: boolean;
  /** Caches, temporary files, logs and pid files, too. */
  all?: boolean;
  /** Entries at most; more are only counted. */
  limit?: number;
}

export interface MergeOptions {
  /** `fail` unless given. */
  policy?: MergePolicy;
  /** By pattern; the first that matches counts. */
  policies?: Record<string, MergePolicy>;
  /** `list` unless given: it comes, and what both changed is listed. */
  memory?: MergeMemoryPolicy;
  /** Caches, temporary files, logs and pid files, too. */
  all?: boolean;
  /** Only say what would happen. */
  dryRun?: boolean;
}

/** What a merge did, would do, or why it did nothing. */
export interface Merged {
  id?: string | null;
  parent: string;
  child: string;
  base: string;
  dryRun: boolean;
  applied: boolean;
  /** The parent as it was before: restoring it undoes the merge. */
  undo?: Snapshot | null;
  /** Paths by what happens to them: `added`, `changed`, `deleted`, `merged`. */
  changes: Record<string, string[]>;
  moved: { from: string; to: string }[];
  total: number;
  cut: boolean;
  conflicts: { path: string; kind: string; base?: DiffNode | null; ours?: DiffNode | null; theirs?: DiffNode | null }[];
  /** Files that processes of the parent have open: they go on with the old ones. */
  open: { path: string; pid: number; program: string }[];
  noise: { what: string; count: number }[];
  memory?: Schemas["MergedMemory"] | null;
  pauseUs: number;
}

export interface RaceOptions {
  /** Run in every attempt afterwards; the number in its last line is the score. Without one the quickest that exits with 0 wins. */
  judge?: string | readonly string[];
  /** How many run at once; all unless given. */
  parallel?: number;
  timeoutSeconds?: number;
  filesOnly?: boolean;
  /** The attempts stay when all is over. */
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
  /** Number of the attempt that won. */
  winner?: number | null;
  merged?: { applied: boolean; total: number; conflicts: string[]; undo?: string | null } | null;
  failure?: string | null;
  createdMs: number;
  endedMs?: number | null;
  version: number;
}

/** Both changed the same, and nothing was merged. `merged` lists the conflicts. */
export class MergeError extends BurrowError {
  readonly merged: Merged;

  constructor(merged: Merged) {
    const paths = merged.conflicts.slice(0, 3).map(({ path }) => `\`${path}\``);
    const more = merged.conflicts.length > paths.length ? ` and ${merged.conflicts.length - paths.length} more` : "";
    super({
      code: "conflict",
      message: `nothing was merged: both sandboxes changed ${paths.join(", ")}${more}`,
      hint: "say who wins with `policy` (`ours`, `theirs`, `union`, `text`), or by pattern with `policies`",
    });
    this.merged = merged;
  }
}

/** Each side as `sandbox:…`, `snapshot:…` or `image:…`. */
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

/** Begins a race and waits for its end. */
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

/** A route that is newer than the document which the types were made of. */
function ahead<T>(transport: Transport, route: string, options: AheadOptions): Promise<T> {
  return transport.call(route as Route, options as CallOptions<Route>) as Promise<T>;
}

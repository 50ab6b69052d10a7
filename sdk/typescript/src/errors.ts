/** The error classes. Every error has a stable `code` and, where there is one, a `hint` for the reader. */
import type { CodeRun } from "./code.js";
import type { Schemas } from "./generated/api.js";
import type { CommandResult } from "./result.js";
import type { Sandbox } from "./sandbox.js";

/** The codes of the daemon, which are stable, and those that the SDK adds. */
export type ErrorCode = Schemas["ErrorCode"] | "unreachable" | "broken" | "not_burrow" | "command_failed" | "code_failed" | "lost" | "timeout" | "aborted";

export interface ErrorParts {
  code: ErrorCode;
  message: string;
  hint?: string | null | undefined;
  status?: number | undefined;
  requestId?: string | undefined;
  cause?: unknown;
}

/** Base class of all errors of the SDK. `message` describes the failure, `hint` how to fix it. */
export class BurrowError extends Error {
  /** Stable: use it to distinguish errors in programs. */
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  /** HTTP status of the response, if the daemon refused the request. */
  readonly status: number | undefined;
  /** Identifies the request in the daemon's log. */
  readonly requestId: string | undefined;

  constructor(parts: ErrorParts) {
    super(parts.message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.name = new.target.name;
    this.code = parts.code;
    this.hint = parts.hint ?? ownHint(parts.code);
    this.status = parts.status;
    this.requestId = parts.requestId;
  }

  /** The message and its hint, formatted for a person. */
  override toString(): string {
    return `${this.name}: ${this.message}${this.hint ? `\nhint: ${this.hint}` : ""}`;
  }
}

/** The request is invalid, or is not supported by the daemon. */
export class InvalidRequestError extends BurrowError {}
/** The key is missing or unknown. */
export class UnauthorizedError extends BurrowError {}
/** The scope of the key does not permit the request. */
export class ForbiddenError extends BurrowError {}
/** The resource does not exist, or belongs to another tenant. */
export class NotFoundError extends BurrowError {}
/** The resource already exists, was changed concurrently, or is in a state that does not permit the request. */
export class ConflictError extends BurrowError {}
/** The sandbox is not running. */
export class NotRunningError extends ConflictError {}
/** The command has ended, so it accepts no input and no signal. */
export class ExecEndedError extends ConflictError {}
/** A request or response exceeds a size limit. */
export class TooLargeError extends BurrowError {}
/** Too many concurrent requests or too much load. Try again later. */
export class BusyError extends BurrowError {}
/** A disk or a quota is full. */
export class NoSpaceError extends BurrowError {}
/** The program does not exist in the sandbox, or cannot be executed. */
export class NotExecutableError extends BurrowError {}
/** The sandbox was put to sleep while a stream was open. Its processes are kept; the next use wakes it. */
export class SandboxAsleepError extends BurrowError {}
/** Some processes cannot be saved to disk; the message names them. */
export class NotDumpableError extends BurrowError {}
/** The sandbox, or the server in it, does not answer. */
export class UnavailableError extends BurrowError {}
/** An internal error of the daemon. Its log has details under `requestId`. */
export class InternalError extends BurrowError {}
/** The daemon cannot be reached at the address. */
export class ConnectError extends BurrowError {}
/** The connection broke. The request may or may not have taken effect. */
export class BrokenError extends BurrowError {}
/** A wait exceeded its time limit. The awaited process or server is not affected. */
export class TimeoutError extends BurrowError {}
/** The outcome of a command is unknown, because its sandbox was stopped while it ran. */
export class CommandLostError extends BurrowError {}

/** A command with `check: true` ended with a code other than 0. */
export class CommandError extends BurrowError {
  readonly result: CommandResult;

  constructor(result: CommandResult) {
    const said = (result.stderr || result.stdout).trim().slice(-SAID_MAX);
    super({
      code: "command_failed",
      message: `\`${result.command}\` exited with ${result.exitCode}${said ? `: ${said}` : ""}`,
    });
    this.result = result;
  }
}

/** Code with `check: true` did not run to its end. */
export class CodeRunError extends BurrowError {
  readonly run: CodeRun;

  constructor(run: CodeRun) {
    const why = run.error ? `${run.error.name}: ${run.error.value}` : run.status.replaceAll("_", " ");
    super({ code: "code_failed", message: `the code did not run to its end: ${why}` });
    this.run = run;
  }
}

/**
 * Some children could not be created. `children` contains those that were; `failed` contains an error for each of the
 * others.
 */
export class ForkError extends BurrowError {
  readonly children: Sandbox[];
  readonly failed: BurrowError[];

  constructor(children: Sandbox[], failed: BurrowError[]) {
    const count = children.length + failed.length;
    const { code, hint, message } = failed[0]!;
    super({ code, hint, message: `${failed.length} of ${count} children could not be created: ${message}` });
    this.children = children;
    this.failed = failed;
  }
}

/** How much of the output of a failed command an error message contains. */
const SAID_MAX = 400;

/** An unknown code, from a newer daemon, becomes a plain `BurrowError`. */
const classes: Partial<Record<ErrorCode, typeof BurrowError>> = {
  invalid_request: InvalidRequestError,
  method_not_allowed: InvalidRequestError,
  unsupported_media_type: InvalidRequestError,
  range_not_satisfiable: InvalidRequestError,
  unprocessable: InvalidRequestError,
  unsupported: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  no_such_route: NotFoundError,
  conflict: ConflictError,
  snapshot_in_use: ConflictError,
  idempotency_mismatch: ConflictError,
  idempotency_in_flight: ConflictError,
  not_running: NotRunningError,
  exec_ended: ExecEndedError,
  too_large: TooLargeError,
  too_many: BusyError,
  busy: BusyError,
  no_space: NoSpaceError,
  no_such_program: NotExecutableError,
  cannot_execute: NotExecutableError,
  sandbox_asleep: SandboxAsleepError,
  not_dumpable: NotDumpableError,
  guest_unreachable: UnavailableError,
  port_closed: UnavailableError,
  bad_gateway: UnavailableError,
  gateway_timeout: UnavailableError,
  internal: InternalError,
  unreachable: ConnectError,
  broken: BrokenError,
  timeout: TimeoutError,
  lost: CommandLostError,
};

/** Creates an error of the class that belongs to the code. */
export function errorOf(parts: ErrorParts): BurrowError {
  return new (classes[parts.code] ?? BurrowError)(parts);
}

/** Whether the error may be temporary: a connection problem, or a daemon that restarts. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof BurrowError)) return false;
  if (error.code === "not_burrow") return [502, 503, 504].includes(error.status ?? 0);
  return ["unreachable", "broken", "busy", "guest_unreachable", "internal"].includes(error.code);
}

function ownHint(code: ErrorCode): string | undefined {
  switch (code) {
    case "unauthorized":
      return "set BURROW_API_KEY, or pass `apiKey`";
    case "forbidden":
      return "use a key with a wider scope: `burrow key create NAME --scope admin`";
    case "no_such_route":
      return "the SDK and the daemon may have different versions: compare them with `burrow version`";
    case "sandbox_asleep":
      return "the next use of the sandbox wakes it; `wake()` wakes it now";
    case "restore_failed":
      return "start the sandbox from its files, without its processes: `start({ filesOnly: true })`";
    case "not_dumpable":
      return "end those processes first, or omit all processes with `filesOnly: true`";
    case "not_burrow":
      return "check the address: another server seems to listen there";
    case "broken":
      return "if the daemon was restarted, try again; its log has details";
    default:
      return undefined;
  }
}

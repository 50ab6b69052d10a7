/** What can go wrong, as classes. Every error has a `code` to branch on and, where there is one, a `hint` for people. */
import type { CodeRun } from "./code.js";
import type { Schemas } from "./generated/api.js";
import type { CommandResult } from "./result.js";
import type { Sandbox } from "./sandbox.js";

/** Codes of the daemon, which are stable, and those of this side. */
export type ErrorCode = Schemas["ErrorCode"] | "unreachable" | "broken" | "not_burrow" | "command_failed" | "code_failed" | "lost" | "timeout" | "aborted";

export interface ErrorParts {
  code: ErrorCode;
  message: string;
  hint?: string | null | undefined;
  status?: number | undefined;
  requestId?: string | undefined;
  cause?: unknown;
}

/** Any failure of this SDK. `message` says what was tried, `hint` what to do about it. */
export class BurrowError extends Error {
  /** Stable, to branch on. */
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  /** Of the answer, when the daemon refused. */
  readonly status: number | undefined;
  /** Under which the daemon's log has more. */
  readonly requestId: string | undefined;

  constructor(parts: ErrorParts) {
    super(parts.message, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.name = new.target.name;
    this.code = parts.code;
    this.hint = parts.hint ?? ownHint(parts.code);
    this.status = parts.status;
    this.requestId = parts.requestId;
  }

  /** The message with its hint, as people should see it. */
  override toString(): string {
    return `${this.name}: ${this.message}${this.hint ? `\nhint: ${this.hint}` : ""}`;
  }
}

/** The request makes no sense, or not here. */
export class InvalidRequestError extends BurrowError {}
/** No key, or one that is not known. */
export class UnauthorizedError extends BurrowError {}
/** The key's scope does not reach that far. */
export class ForbiddenError extends BurrowError {}
/** It is not there, or not yours. */
export class NotFoundError extends BurrowError {}
/** It is there already, was changed meanwhile, or is in another state than this needs. */
export class ConflictError extends BurrowError {}
/** The sandbox does not run. */
export class NotRunningError extends ConflictError {}
/** The command has ended, so it takes no input and no signal. */
export class ExecEndedError extends ConflictError {}
/** More than the daemon takes. */
export class TooLargeError extends BurrowError {}
/** Too much at once; try again in a moment. */
export class BusyError extends BurrowError {}
/** A disk or a quota is full. */
export class NoSpaceError extends BurrowError {}
/** There is no such program in the sandbox, or it cannot be executed. */
export class NotExecutableError extends BurrowError {}
/** Somebody put the sandbox to sleep under an open stream. What runs in it is kept; the next use wakes it. */
export class SandboxAsleepError extends BurrowError {}
/** Processes that cannot be written to disk; the message names them. */
export class NotDumpableError extends BurrowError {}
/** The sandbox, or what listens in it, does not answer. */
export class UnavailableError extends BurrowError {}
/** A fault of the daemon's own; its log says more under `requestId`. */
export class InternalError extends BurrowError {}
/** Nobody answers at the address. */
export class ConnectError extends BurrowError {}
/** The connection broke. What was asked may or may not have happened. */
export class BrokenError extends BurrowError {}
/** A wait took longer than its bound. What was waited for goes on. */
export class TimeoutError extends BurrowError {}
/** What became of a command is not known: its sandbox was stopped under it. */
export class CommandLostError extends BurrowError {}

/** A command that was to succeed (`check: true`) did not. */
export class CommandError extends BurrowError {
  readonly result: CommandResult;

  constructor(result: CommandResult) {
    const said = (result.stderr || result.stdout).trim().slice(-SAID_MAX);
    super({
      code: "command_failed",
      message: `\`${result.command}\` ended with ${result.exitCode}${said ? `: ${said}` : ""}`,
    });
    this.result = result;
  }
}

/** Code that was to run to its end (`check: true`) did not. */
export class CodeRunError extends BurrowError {
  readonly run: CodeRun;

  constructor(run: CodeRun) {
    const why = run.error ? `${run.error.name}: ${run.error.value}` : run.status.replaceAll("_", " ");
    super({ code: "code_failed", message: `the code did not run to its end: ${why}` });
    this.run = run;
  }
}

/** Some children could not be made. `children` are those that could; `failed` says why the others could not. */
export class ForkError extends BurrowError {
  readonly children: Sandbox[];
  readonly failed: BurrowError[];

  constructor(children: Sandbox[], failed: BurrowError[]) {
    const count = children.length + failed.length;
    const { code, hint, message } = failed[0]!;
    super({ code, hint, message: `${failed.length} of ${count} children could not be made: ${message}` });
    this.children = children;
    this.failed = failed;
  }
}

/** Of what a failed command said, in a message. */
const SAID_MAX = 400;

/** A code that is newer than this package is a plain `BurrowError`. */
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

/** The class that fits the code. */
export function errorOf(parts: ErrorParts): BurrowError {
  return new (classes[parts.code] ?? BurrowError)(parts);
}

/** A fault of the way between us and the daemon, which may mend itself. */
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
      return "SDK and daemon may be of different versions: compare with `burrow version`";
    case "sandbox_asleep":
      return "whatever uses the sandbox next wakes it; `wake()` does it now";
    case "restore_failed":
      return "start it from its files instead: `start({ filesOnly: true })`";
    case "not_dumpable":
      return "end those processes first, or leave all processes out with `filesOnly: true`";
    case "not_burrow":
      return "check the address: something else seems to listen there";
    case "broken":
      return "if the daemon was restarted, try again; its log says more";
    default:
      return undefined;
  }
}

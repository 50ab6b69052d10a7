/** The result of a command. */
import { constants } from "node:os";
import { CommandError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";

/** Exit code of a command that timed out; the command-line tool uses the same. */
const TIMED_OUT = 124;

/** The result of a command, with its output. */
export class CommandResult {
  /** The command, as it was passed. */
  readonly command: string;
  /** The exit code of the process; 128 + the signal number if a signal ended it; 124 after a timeout. */
  readonly exitCode: number;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** Whether output is missing because it exceeded the limit. */
  readonly truncated: boolean;
  /** The exec as the daemon reports it: CPU time, RAM, denied egress, and stored memories of similar failures. */
  readonly exec: Schemas["Exec"];

  constructor(command: string, exec: Schemas["Exec"], output: Collected) {
    this.command = command;
    this.exec = exec;
    this.exitCode = exitCode(exec);
    this.stdoutBytes = output.stdout.bytes();
    this.stderrBytes = output.stderr.bytes();
    this.truncated = output.truncated;
  }

  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Returns `this` if the command exited with 0, and throws a {@link CommandError} otherwise. */
  check(): this {
    if (this.ok) return this;
    throw new CommandError(this);
  }

  /** Standard output as text. With a terminal it contains both streams. */
  get stdout(): string {
    return Buffer.from(this.stdoutBytes).toString("utf8");
  }
  get stderr(): string {
    return Buffer.from(this.stderrBytes).toString("utf8");
  }
  /** The name of the signal that ended the process, such as `SIGKILL`. */
  get signal(): string | undefined {
    return this.exec.outcome?.signal ?? undefined;
  }
  get timedOut(): boolean {
    return this.exec.outcome?.timedOut ?? false;
  }
  /** Connections of the sandbox that were denied while the command ran. `set` names the host set that allows one. */
  get egressDenied(): readonly Schemas["EgressDenied"][] {
    return this.exec.egressDenied ?? [];
  }
  get durationMs(): number {
    return (this.exec.outcome?.wallUs ?? 0) / 1000;
  }
}

/** The exit code as a shell reports it. */
export function exitCode(exec: Schemas["Exec"]): number {
  const { outcome } = exec;
  if (!outcome) {
    throw errorOf({
      code: "lost",
      message: `the outcome of exec \`${exec.id}\` is unknown`,
      hint: "its sandbox was stopped while it ran; check the files that it writes",
    });
  }
  if (outcome.timedOut) return TIMED_OUT;
  if (typeof outcome.exitCode === "number") return outcome.exitCode;
  return 128 + (constants.signals[outcome.signal as NodeJS.Signals] ?? 0);
}

/** Collects output: the first bytes of each stream, up to a limit. */
export class Collected {
  readonly stdout: Pile;
  readonly stderr: Pile;
  gaps = false;

  constructor(bytesMax: number) {
    this.stdout = new Pile(bytesMax);
    this.stderr = new Pile(bytesMax);
  }

  get truncated(): boolean {
    return this.gaps || this.stdout.full || this.stderr.full;
  }
}

class Pile {
  #pieces: Uint8Array[] = [];
  #room: number;
  full = false;

  constructor(bytesMax: number) {
    this.#room = bytesMax;
  }

  push(piece: Uint8Array): void {
    const taken = piece.subarray(0, this.#room);
    this.full ||= taken.length < piece.length;
    this.#room -= taken.length;
    if (taken.length > 0) this.#pieces.push(taken);
  }

  bytes(): Uint8Array {
    return Buffer.concat(this.#pieces);
  }
}

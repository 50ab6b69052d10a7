/** What a command came to. */
import { constants } from "node:os";
import { CommandError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";

/** Exit codes that are not the process's own, as the command line tool has them. */
const TIMED_OUT = 124;

/** The end of a command, with its output. */
export class CommandResult {
  /** As it was given. */
  readonly command: string;
  /** The process's own; 128 + signal; 124 on a timeout. */
  readonly exitCode: number;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** Some output is missing: more came than is kept. */
  readonly truncated: boolean;
  /** All the daemon knows of it: CPU time, RAM, what it was not let through to, what is remembered of such failures. */
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

  /** Itself, if it ended with 0; else throws a {@link CommandError}. */
  check(): this {
    if (this.ok) return this;
    throw new CommandError(this);
  }

  /** Standard output as text. On a terminal it holds both streams. */
  get stdout(): string {
    return Buffer.from(this.stdoutBytes).toString("utf8");
  }
  get stderr(): string {
    return Buffer.from(this.stderrBytes).toString("utf8");
  }
  /** `SIGKILL` and the like, when one ended it. */
  get signal(): string | undefined {
    return this.exec.outcome?.signal ?? undefined;
  }
  get timedOut(): boolean {
    return this.exec.outcome?.timedOut ?? false;
  }
  get durationMs(): number {
    return (this.exec.outcome?.wallUs ?? 0) / 1000;
  }
}

/** As a shell would tell it. */
export function exitCode(exec: Schemas["Exec"]): number {
  const { outcome } = exec;
  if (!outcome) {
    throw errorOf({
      code: "lost",
      message: `what became of exec \`${exec.id}\` is not known`,
      hint: "its sandbox was stopped under it; a snapshot may tell more",
    });
  }
  if (outcome.timedOut) return TIMED_OUT;
  if (typeof outcome.exitCode === "number") return outcome.exitCode;
  return 128 + (constants.signals[outcome.signal as NodeJS.Signals] ?? 0);
}

/** Output as it is gathered: of each stream the first bytes, up to a bound. */
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

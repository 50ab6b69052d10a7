/** Processes in a sandbox: their output as it comes, their input, their end. */
import { type AttachOptions, aborted, attach } from "./attachment.js";
import { BurrowError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { Collected, CommandResult, exitCode } from "./result.js";
import type { Payload, Transport } from "./transport.js";

/** Of each stream, kept for the result of a command. What is beyond can be had as it comes. */
const OUTPUT_BYTES_MAX = 64 << 20;
/** Input up to here goes along with the command itself. */
const INPUT_BYTES_MAX = 64 << 10;

/** A line for the shell, or a program and its arguments. */
export type Command = string | readonly string[];

/** How to run a command. */
export interface SpawnOptions {
  /** Absolute; the sandbox's own when absent. */
  workdir?: string;
  /** On top of the sandbox's environment. */
  env?: Record<string, string>;
  /** `name`, `uid`, `name:group` or `uid:gid`. */
  user?: string;
  /** The whole process group is ended after this time; the exit code is then 124. */
  timeoutMs?: number;
  /** Take a snapshot just before it; `result.exec.snapshot` names it. */
  snapshot?: boolean;
  /** Bytes of output that are kept for those who attach later; 1 MiB unless given. */
  ringBytes?: number;
}

export interface RunOptions extends SpawnOptions {
  /** Standard input, all of it. */
  input?: string | Uint8Array;
  /** Put the sandbox back, files and processes, when the command ends with anything but 0. */
  rollbackOnFailure?: boolean;
  /** Throw a {@link CommandError} when it ends with anything but 0. */
  check?: boolean;
  /** Called with output as it comes. Text is cut between characters, never within one. */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
  /** Ends the command, with SIGKILL, and the call. */
  signal?: AbortSignal;
}

/** What a running command tells. `exit` is the last. */
export type ProcessEvent =
  | { kind: "stdout" | "stderr"; text: string; bytes: Uint8Array; offset: number }
  /** So much output came while nobody read that some is not kept any more. */
  | { kind: "gap"; from: number; to: number }
  | { kind: "exit"; result: CommandResult };

/** Starts a command. */
export async function create(
  transport: Transport,
  sandbox: string,
  command: Command,
  request: Partial<Schemas["CreateExec"]>,
  signal?: AbortSignal,
): Promise<Schemas["Exec"]> {
  const line = typeof command === "string" ? { command } : { argv: [...command] };
  const answer = await transport.call("POST /v1/sandboxes/{sandbox}/execs", {
    path: { sandbox },
    body: { ...line, ...request } as Schemas["CreateExec"],
    repeat: "once",
    signal,
  });
  return answer as Schemas["Exec"];
}

/** Runs a command to its end, telling what it says. All of its output comes: it waits while nobody reads. */
export async function* stream(
  transport: Transport,
  sandbox: string,
  command: Command,
  options: Omit<RunOptions, "check">,
): AsyncGenerator<ProcessEvent, void, undefined> {
  const { input, onStdout, onStderr, signal, ...rest } = options;
  if (signal?.aborted) throw aborted(signal);
  const small = typeof input === "string" && input.length <= INPUT_BYTES_MAX;
  const fed = input === undefined ? {} : small ? { input } : { stdin: "pipe" as const };
  const exec = await create(transport, sandbox, command, { ...rest, ...fed, hold: true });
  const process = new Process(transport, sandbox, exec, shown(command));
  if (input !== undefined && !small) {
    // A process that does not want all of its input is no fault of ours.
    process.write(input, { close: true }).catch(() => undefined);
  }
  let ended = false;
  try {
    for await (const event of process.output({ signal })) {
      if (event.kind === "stdout") onStdout?.(event.text);
      if (event.kind === "stderr") onStderr?.(event.text);
      ended = event.kind === "exit";
      yield event;
    }
  } finally {
    if (!ended && signal?.aborted) await process.kill().catch(() => undefined);
  }
}

/** The same, to its end. */
export async function run(
  transport: Transport,
  sandbox: string,
  command: Command,
  options: RunOptions,
): Promise<CommandResult> {
  const { check, ...rest } = options;
  for await (const event of stream(transport, sandbox, command, rest)) {
    if (event.kind !== "exit") continue;
    return check ? event.result.check() : event.result;
  }
  throw errorOf({ code: "broken", message: `\`${shown(command)}\` ended without a word` });
}

/**
 * A process that runs on its own. It goes on when this program ends, and `sandbox.process(id)` finds it again.
 *
 * Iterate over it for its output as it comes.
 */
export class Process implements AsyncIterable<ProcessEvent> {
  readonly id: string;
  /** As it was given. */
  readonly command: string;
  readonly #transport: Transport;
  readonly #sandbox: string;
  #exec: Schemas["Exec"];

  /** @internal */
  constructor(transport: Transport, sandbox: string, exec: Schemas["Exec"], command?: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
    this.#exec = exec;
    this.id = exec.id;
    this.command = command ?? shown(exec.argv);
  }

  /** Inside the sandbox. */
  get pid(): number | undefined {
    return this.#exec.pid ?? undefined;
  }

  /** What is known of it, as of the last call that told. */
  get exec(): Schemas["Exec"] {
    return this.#exec;
  }

  /** As a shell would tell it; `undefined` while it runs, as of the last call that told. */
  get exitCode(): number | undefined {
    return this.#exec.state === "running" ? undefined : exitCode(this.#exec);
  }

  /** What is known of it now. */
  async refresh(): Promise<Schemas["Exec"]> {
    return (this.#exec = await this.#transport.call("GET /v1/sandboxes/{sandbox}/execs/{exec}", { path: this.#path }));
  }

  [Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void, undefined> {
    return this.output();
  }

  /** Its output from `offset` on, as it comes, and its end. The process waits while nobody reads. */
  async *output(options: AttachOptions = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    const output = new Collected(OUTPUT_BYTES_MAX);
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    for await (const event of attach(this.#transport, this.#sandbox, this.id, options)) {
      switch (event.kind) {
        case "output": {
          output[event.stream].push(event.bytes);
          const text = decoders[event.stream].decode(event.bytes, { stream: true });
          yield { kind: event.stream, text, bytes: event.bytes, offset: event.offset };
          break;
        }
        case "gap":
          output.gaps = true;
          yield event;
          break;
        case "exit":
          this.#exec = event.exec;
          yield { kind: "exit", result: new CommandResult(this.command, event.exec, output) };
      }
    }
  }

  /** Its end, with the output that is still held. With a bound it throws a TimeoutError then; the process goes on. */
  async wait(options: { timeoutMs?: number; check?: boolean } = {}): Promise<CommandResult> {
    const { timeoutMs } = options;
    const bound = new AbortController();
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => bound.abort(), timeoutMs);
    try {
      for await (const event of this.output({ signal: bound.signal })) {
        if (event.kind !== "exit") continue;
        return options.check ? event.result.check() : event.result;
      }
    } catch (error) {
      if (!bound.signal.aborted) throw error;
    } finally {
      clearTimeout(timer);
    }
    throw errorOf({ code: "timeout", message: `\`${this.command}\` still runs after ${timeoutMs} ms` });
  }

  /** What it has said so far, as far as it is still held. */
  async logs(): Promise<string> {
    const query = { format: "raw" as const };
    const bytes = await this.#transport.bytes("GET /v1/sandboxes/{sandbox}/execs/{exec}/output", { path: this.#path, query });
    return bytes.toString("utf8");
  }

  /**
   * Writes to its standard input; waits while it does not read. Not repeated when the connection breaks: what was under
   * way then may or may not have arrived.
   */
  async write(data: Payload, options: { close?: boolean } = {}): Promise<void> {
    const { close } = options;
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/stdin", {
      path: this.#path,
      query: close ? { close } : {},
      payload: data,
    });
  }

  /** Ends its standard input. */
  closeStdin(): Promise<void> {
    return this.write("", { close: true });
  }

  /** `TERM`, `SIGINT`, `9`: to its process group, or with `group: false` to itself. */
  async signal(signal: string, options: { group?: boolean } = {}): Promise<void> {
    const body = { ...options, signal };
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/signal", { path: this.#path, body });
  }

  /** Ends it and what it started, with SIGKILL. False when it had ended already. */
  async kill(): Promise<boolean> {
    try {
      await this.signal("KILL");
      return true;
    } catch (error) {
      if (error instanceof BurrowError && error.code === "exec_ended") return false;
      throw error;
    }
  }

  /** Of a terminal. */
  async resize(columns: number, rows: number): Promise<void> {
    const body = { columns, rows };
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/resize", { path: this.#path, body, repeat: "safe" });
  }

  get #path(): { sandbox: string; exec: string } {
    return { sandbox: this.#sandbox, exec: this.id };
  }
}

/** For messages. */
export function shown(command: Command): string {
  return typeof command === "string" ? command : command.join(" ");
}

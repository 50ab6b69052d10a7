/** Processes in a sandbox: their output, input and exit. */
import { type AttachOptions, aborted, attach } from "./attachment.js";
import { BurrowError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { Collected, CommandResult, exitCode } from "./result.js";
import type { Payload, Transport } from "./transport.js";

/** How much of each stream is kept for the result of a command. Further output can be read as it arrives. */
const OUTPUT_BYTES_MAX = 64 << 20;
/** Input up to this size is sent in the request that starts the command. */
const INPUT_BYTES_MAX = 64 << 10;

/** A shell command line, or a program and its arguments. */
export type Command = string | readonly string[];

/** How to run a command. */
export interface SpawnOptions {
  /** Absolute path. Defaults to the working directory of the sandbox. */
  workdir?: string;
  /** Added to the environment of the sandbox. */
  env?: Record<string, string>;
  /** `name`, `uid`, `name:group` or `uid:gid`. */
  user?: string;
  /** Kill the process group after this time; the exit code is then 124. */
  timeoutMs?: number;
  /** Take a snapshot before the command starts; `result.exec.snapshot` is its id. */
  snapshot?: boolean;
  /** Bytes of output that are buffered for clients that attach later. Defaults to 1 MiB. */
  ringBytes?: number;
}

export interface RunOptions extends SpawnOptions {
  /** The complete standard input. */
  input?: string | Uint8Array;
  /** Roll back files and processes of the sandbox unless the command exits with 0. */
  rollbackOnFailure?: boolean;
  /** Throw a {@link CommandError} unless the command exits with 0. */
  check?: boolean;
  /** Called with standard output as it arrives. A character is never split between two calls. */
  onStdout?: (text: string) => void;
  /** Called with standard error as it arrives. */
  onStderr?: (text: string) => void;
  /** Kills the command with SIGKILL and ends the call. */
  signal?: AbortSignal;
}

/** An event of a running command. `exit` is the last event. */
export type ProcessEvent =
  | { kind: "stdout" | "stderr"; text: string; bytes: Uint8Array; offset: number }
  /** Output is missing: more was written than the buffer holds while no client was attached. */
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

/** Runs a command to its end and yields its events. No output is lost: the command blocks while its output is not read. */
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
    // A process that does not read all of its input is not an error.
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

/** Runs a command to its end and returns its result. */
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
  throw errorOf({ code: "broken", message: `the stream of \`${shown(command)}\` ended without a result` });
}

/**
 * A background process. It continues when this program ends, and `sandbox.process(id)` finds it again.
 *
 * Iterate over it to read its output as it arrives.
 */
export class Process implements AsyncIterable<ProcessEvent> {
  readonly id: string;
  /** The command, as it was passed. */
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

  /** The process id inside the sandbox. */
  get pid(): number | undefined {
    return this.#exec.pid ?? undefined;
  }

  /** The state of the exec, as returned by the most recent call. */
  get exec(): Schemas["Exec"] {
    return this.#exec;
  }

  /** The exit code as a shell reports it, as of the most recent call; `undefined` while the process runs. */
  get exitCode(): number | undefined {
    return this.#exec.state === "running" ? undefined : exitCode(this.#exec);
  }

  /** Fetches the present state of the exec. */
  async refresh(): Promise<Schemas["Exec"]> {
    return (this.#exec = await this.#transport.call("GET /v1/sandboxes/{sandbox}/execs/{exec}", { path: this.#path }));
  }

  [Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void, undefined> {
    return this.output();
  }

  /** Yields the output from `offset` on, then the exit. The process blocks while its output is not read. */
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

  /**
   * Waits for the exit and returns the result with the output that is still buffered. Throws a TimeoutError after
   * `timeoutMs`; the process continues.
   */
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
    throw errorOf({ code: "timeout", message: `timed out: \`${this.command}\` is still running after ${timeoutMs} ms` });
  }

  /** The output so far, as far as it is still buffered. */
  async logs(): Promise<string> {
    const query = { format: "raw" as const };
    const bytes = await this.#transport.bytes("GET /v1/sandboxes/{sandbox}/execs/{exec}/output", { path: this.#path, query });
    return bytes.toString("utf8");
  }

  /**
   * Writes to standard input; waits while the process does not read. The call is not repeated when the connection breaks:
   * data in transit may or may not have arrived.
   */
  async write(data: Payload, options: { close?: boolean } = {}): Promise<void> {
    const { close } = options;
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/stdin", {
      path: this.#path,
      query: close ? { close } : {},
      payload: data,
    });
  }

  /** Closes standard input. */
  closeStdin(): Promise<void> {
    return this.write("", { close: true });
  }

  /** Sends a signal (`TERM`, `SIGINT`, `9`) to the process group, or with `group: false` to the process only. */
  async signal(signal: string, options: { group?: boolean } = {}): Promise<void> {
    const body = { ...options, signal };
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/signal", { path: this.#path, body });
  }

  /** Kills the process group with SIGKILL. Returns false if the process had already ended. */
  async kill(): Promise<boolean> {
    try {
      await this.signal("KILL");
      return true;
    } catch (error) {
      if (error instanceof BurrowError && error.code === "exec_ended") return false;
      throw error;
    }
  }

  /** Changes the size of the terminal. */
  async resize(columns: number, rows: number): Promise<void> {
    const body = { columns, rows };
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/execs/{exec}/resize", { path: this.#path, body, repeat: "safe" });
  }

  get #path(): { sandbox: string; exec: string } {
    return { sandbox: this.#sandbox, exec: this.id };
  }
}

/** The command as text, for messages. */
export function shown(command: Command): string {
  return typeof command === "string" ? command : command.join(" ");
}

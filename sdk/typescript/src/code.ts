/**
 * Runs code in a sandbox, in contexts that keep their variables.
 *
 * A run is one request whose response is streamed until the code ends. A client that stops reading ends the run, because
 * no other client could receive its output. Therefore a run whose connection broke is neither resumed nor repeated.
 */
import { aborted } from "./attachment.js";
import { CodeRunError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { values } from "./ndjson.js";
import type { Transport } from "./transport.js";

export type CodeContext = Schemas["CodeContext"];
/** A displayed result: a plot, a table, or the value of the last line. */
export type CodeResult = Schemas["CodeResult"];
/** The error that ended the code. */
export type CodeError = Schemas["CodeError"];

/** Context of a run without `context`. Each language has a default context; Python's has the name without a suffix. */
const DEFAULT_CONTEXT = "default";
const DEFAULT_LANGUAGE = "python";

export interface RunCodeOptions {
  /** A context created with `contexts.create()`, or its id. */
  context?: string | CodeContext;
  /** Run in the default context of this language. Defaults to Python. */
  language?: string;
  /** Interrupt the code after this time. */
  timeoutMs?: number;
  /** Environment variables for this run. */
  env?: Record<string, string>;
  /** Interrupt the code when it has written more output than this. Default and maximum: 16 MiB. */
  outputBytesMax?: number;
  /** Throw a {@link CodeRunError} if the code does not run to its end. */
  check?: boolean;
  /** Called with standard output as it arrives. */
  onStdout?: (text: string) => void;
  /** Called with standard error as it arrives. */
  onStderr?: (text: string) => void;
  /** Called with each displayed result as it arrives. */
  onResult?: (result: CodeResult) => void;
  /** Called with the error, if the code fails. */
  onError?: (error: CodeError) => void;
  /** Interrupts the code and ends the call. */
  signal?: AbortSignal;
}

/** The outcome of a run of code. */
export class CodeRun {
  /** `ok`, or the reason why the code did not run to its end. */
  readonly status: Schemas["CodeRunStatus"];
  readonly stdout: string;
  readonly stderr: string;
  /** The displayed results, in order. The value of the last line has `main` set. */
  readonly results: readonly CodeResult[];
  /** The error, if the code failed. */
  readonly error: CodeError | undefined;
  /** The execution counter of the context, including this run. */
  readonly executionCount: number | undefined;
  readonly durationMs: number;
  /** Connections of the sandbox that were denied during the run. `set` names the host set that allows one. */
  readonly egressDenied: readonly Schemas["EgressDenied"][];

  constructor(heard: Heard, end: End) {
    this.status = end.status;
    this.stdout = heard.stdout.join("");
    this.stderr = heard.stderr.join("");
    this.results = heard.results;
    this.error = heard.error;
    this.executionCount = end.executionCount ?? undefined;
    this.durationMs = end.durationMs;
    this.egressDenied = end.egressDenied ?? [];
  }

  /** Whether the code ran to its end. */
  get ok(): boolean {
    return this.status === "ok";
  }

  get timedOut(): boolean {
    return this.status === "timed_out";
  }

  /** The value of the last line, if it has one. */
  get main(): CodeResult | undefined {
    return this.results.find(({ main }) => main);
  }

  /** The value of the last line, as text. */
  get text(): string | undefined {
    return this.main?.text ?? undefined;
  }

  /** Returns `this` if the code ran to its end, and throws a {@link CodeRunError} otherwise. */
  check(): this {
    if (this.ok) return this;
    throw new CodeRunError(this);
  }
}

type End = Extract<Schemas["CodeEvent"], { kind: "end" }>;

/** The output of a run so far. */
interface Heard {
  stdout: string[];
  stderr: string[];
  results: CodeResult[];
  error: CodeError | undefined;
}

/** The code contexts of a sandbox. Each is an interpreter process of one language and keeps its variables between runs. */
export class Contexts {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /**
   * Creates a context without variables. The language defaults to Python; the image determines which languages are
   * available.
   */
  create(options: Schemas["CreateCodeContext"] = {}): Promise<CodeContext> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/contexts", { path: { sandbox: this.#sandbox }, body: options });
  }

  /** Lists all contexts, including the default contexts. */
  list(): Promise<CodeContext[]> {
    return this.#transport.list("GET /v1/sandboxes/{sandbox}/contexts", { path: { sandbox: this.#sandbox } });
  }

  /** Returns the present state of a context. */
  get(context: string | CodeContext): Promise<CodeContext> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/contexts/{context}", { path: this.#path(context) });
  }

  /** Removes a context and ends its process, including code that is running in it. */
  async remove(context: string | CodeContext): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/contexts/{context}", { path: this.#path(context) });
  }

  /** Interrupts the code that is running in a context, like Ctrl-C. Its variables are kept. */
  async interrupt(context: string | CodeContext): Promise<void> {
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/contexts/{context}/interrupt", { path: this.#path(context) });
  }

  /** Restarts the process of a context. Its variables are lost. */
  restart(context: string | CodeContext): Promise<CodeContext> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/contexts/{context}/restart", { path: this.#path(context) });
  }

  #path(context: string | CodeContext): { sandbox: string; context: string } {
    return { sandbox: this.#sandbox, context: idOf(context) };
  }
}

/** Runs code to its end. */
export async function runCode(transport: Transport, sandbox: string, code: string, options: RunCodeOptions): Promise<CodeRun> {
  const { context, language, check, onStdout, onStderr, onResult, onError, signal, ...limits } = options;
  if (signal?.aborted) throw aborted(signal);
  const reply = await transport.open("POST /v1/sandboxes/{sandbox}/contexts/{context}/run", {
    path: { sandbox, context: contextOf(context, language) },
    body: { ...limits, code },
    signal,
  });
  const heard: Heard = { stdout: [], stderr: [], results: [], error: undefined };
  let run: CodeRun | undefined;
  try {
    for await (const event of values<Schemas["CodeEvent"]>(reply)) {
      take(event, heard, options);
      // Read the response to its end, so that the connection can be reused.
      if (event.kind === "end") run = new CodeRun(heard, event);
    }
  } catch (error) {
    throw signal?.aborted ? aborted(signal) : error;
  }
  if (run === undefined) {
    const hint = "the code was interrupted; the variables of its context are kept";
    throw errorOf({ code: "broken", message: "the stream of the run ended without a result", hint });
  }
  return check ? run.check() : run;
}

/** Records one event of the response and calls its callback. Unknown kinds, from a newer daemon, are ignored. */
function take(event: Schemas["CodeEvent"], heard: Heard, options: RunCodeOptions): void {
  switch (event.kind) {
    case "stdout":
      heard.stdout.push(event.text);
      options.onStdout?.(event.text);
      break;
    case "stderr":
      heard.stderr.push(event.text);
      options.onStderr?.(event.text);
      break;
    case "result": {
      const { kind: _, ...result } = event;
      heard.results.push(result);
      options.onResult?.(result);
      break;
    }
    case "error": {
      const { kind: _, ...error } = event;
      heard.error = error;
      options.onError?.(error);
      break;
    }
    case "broken":
      throw errorOf(event.error);
  }
}

function contextOf(context: string | CodeContext | undefined, language: string | undefined): string {
  if (context === undefined) {
    return language === undefined || language === DEFAULT_LANGUAGE ? DEFAULT_CONTEXT : `${DEFAULT_CONTEXT}-${language}`;
  }
  if (language !== undefined) {
    throw errorOf({
      code: "invalid_request",
      message: "`context` and `language` cannot be used together",
      hint: "a context has one language: create a context with `contexts.create({ language })`, or omit `context`",
    });
  }
  return idOf(context);
}

function idOf(context: string | CodeContext): string {
  return typeof context === "string" ? context : context.id;
}

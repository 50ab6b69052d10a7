/**
 * Code in a sandbox: contexts that keep their variables, and running code in them.
 *
 * A run is one request whose answer goes on until the code ends. Whoever stops reading ends the run, since nobody else
 * would hear what it says; so a run whose connection broke is neither taken up again nor sent again.
 */
import { aborted } from "./attachment.js";
import { CodeRunError, errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { values } from "./ndjson.js";
import type { Transport } from "./transport.js";

export type CodeContext = Schemas["CodeContext"];
/** Something shown: a plot, a table, the value of the last line. */
export type CodeResult = Schemas["CodeResult"];
/** What code failed with. */
export type CodeError = Schemas["CodeError"];

/** Of a run that names no context: each language has one, and that of Python has the short name. */
const DEFAULT_CONTEXT = "default";
const DEFAULT_LANGUAGE = "python";

export interface RunCodeOptions {
  /** One that `contexts` made, or its id. */
  context?: string | CodeContext;
  /** Run it in the context that this language has by itself; Python's unless given. */
  language?: string;
  /** Interrupts it after this time. */
  timeoutMs?: number;
  /** Variables of the environment during this run. */
  env?: Record<string, string>;
  /** Interrupts it when it has written more; 16 MiB at most, and unless given. */
  outputBytesMax?: number;
  /** Throw a {@link CodeRunError} when it does not run to its end. */
  check?: boolean;
  /** Called with output as it comes. */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
  /** Called with each thing shown, as it comes. */
  onResult?: (result: CodeResult) => void;
  /** Called with what it fails with. */
  onError?: (error: CodeError) => void;
  /** Interrupts it, and ends the call. */
  signal?: AbortSignal;
}

/** What a run of code came to. */
export class CodeRun {
  /** `ok`, or why it did not run to its end. */
  readonly status: Schemas["CodeRunStatus"];
  readonly stdout: string;
  readonly stderr: string;
  /** What it showed, in order; the value of its last line is `main`. */
  readonly results: readonly CodeResult[];
  /** What it failed with. */
  readonly error: CodeError | undefined;
  /** Of its context, with this run. */
  readonly executionCount: number | undefined;
  readonly durationMs: number;

  constructor(heard: Heard, end: End) {
    this.status = end.status;
    this.stdout = heard.stdout.join("");
    this.stderr = heard.stderr.join("");
    this.results = heard.results;
    this.error = heard.error;
    this.executionCount = end.executionCount ?? undefined;
    this.durationMs = end.durationMs;
  }

  /** Whether it ran to its end. */
  get ok(): boolean {
    return this.status === "ok";
  }

  get timedOut(): boolean {
    return this.status === "timed_out";
  }

  /** The value of its last line, if that has one. */
  get main(): CodeResult | undefined {
    return this.results.find(({ main }) => main);
  }

  /** The value of its last line, as text. */
  get text(): string | undefined {
    return this.main?.text ?? undefined;
  }

  /** Itself, if it ran to its end; else throws a {@link CodeRunError}. */
  check(): this {
    if (this.ok) return this;
    throw new CodeRunError(this);
  }
}

type End = Extract<Schemas["CodeEvent"], { kind: "end" }>;

/** What a run has said so far. */
interface Heard {
  stdout: string[];
  stderr: string[];
  results: CodeResult[];
  error: CodeError | undefined;
}

/** The contexts of a sandbox: each is a process of a language, and keeps its variables from one run to the next. */
export class Contexts {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** A new one, with no variables; of Python unless given. Which languages there are, the image says. */
  create(options: Schemas["CreateCodeContext"] = {}): Promise<CodeContext> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/contexts", { path: { sandbox: this.#sandbox }, body: options });
  }

  /** All of them, those that runs without a context have made included. */
  list(): Promise<CodeContext[]> {
    return this.#transport.list("GET /v1/sandboxes/{sandbox}/contexts", { path: { sandbox: this.#sandbox } });
  }

  /** What is known of one now. */
  get(context: string | CodeContext): Promise<CodeContext> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/contexts/{context}", { path: this.#path(context) });
  }

  /** Ends its process for good, and what runs in it. */
  async remove(context: string | CodeContext): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/contexts/{context}", { path: this.#path(context) });
  }

  /** Ends what runs in it, as Ctrl-C would; its variables stay. */
  async interrupt(context: string | CodeContext): Promise<void> {
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/contexts/{context}/interrupt", { path: this.#path(context) });
  }

  /** Starts its process anew, without variables. */
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
      // Read on to the end of the answer, so that the connection can be used again.
      if (event.kind === "end") run = new CodeRun(heard, event);
    }
  } catch (error) {
    throw signal?.aborted ? aborted(signal) : error;
  }
  if (run === undefined) {
    const hint = "its code was interrupted; the variables of its context stay";
    throw errorOf({ code: "broken", message: "the run ended without a word", hint });
  }
  return check ? run.check() : run;
}

/** Keeps one line of the answer, and tells it on. Kinds that are newer than this package are left out. */
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
      message: "both a context and a language were given",
      hint: "a context has a language: make one with `contexts.create({ language })`, or name no context",
    });
  }
  return idOf(context);
}

function idOf(context: string | CodeContext): string {
  return typeof context === "string" ? context : context.id;
}

/**
 * The HTTP transport to one daemon: sends requests over keep-alive connections, retries them, and converts error responses
 * to errors.
 *
 * When a connection breaks, these requests are repeated: reads, idempotent writes, and creates, which carry an
 * `Idempotency-Key` so that the daemon executes them once. For any other request the caller gets a {@link BrokenError}: it
 * may or may not have taken effect. The number of retries is limited, and the delay between them grows.
 */
import { randomUUID } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { type Config, type ConnectOptions, isLoopback, resolveConfig } from "./config.js";
import { BurrowError, errorOf } from "./errors.js";
import type { Routes } from "./generated/api.js";
import { fromWire, toWire } from "./names.js";

export type Route = keyof Routes;

/** The type of the items of a list route. */
type Item<R extends Route> = Routes[R]["answer"] extends { items: (infer T)[] } ? T : never;

/** Maximum size of a JSON response: a listing of 100,000 files is smaller. */
const ANSWER_BYTES_MAX = 64 << 20;
/** Maximum size of an error response: those of a Burrow daemon are smaller. */
const REFUSAL_BYTES_MAX = 64 << 10;
/** Shorter than the daemon's idle timeout, so that no connection is reused that the daemon is about to close. */
const IDLE_MS = 30_000;
const CONNECT_MS_MAX = 10_000;
const PAUSE_FIRST_MS = 100;
const PAUSE_MS_MAX = 2_000;
/** Upper limit for the `Retry-After` of a response. */
const RETRY_AFTER_MS_MAX = 10_000;

/** Bytes to send: complete, or as a stream. */
export type Payload = Uint8Array | string | AsyncIterable<Uint8Array>;

export interface CallOptions<R extends Route> {
  path?: Record<string, string | number>;
  query?: Routes[R]["query"];
  body?: Routes[R]["body"];
  /** A body that is not JSON. */
  payload?: Payload;
  contentType?: string;
  headers?: Record<string, string>;
  /**
   * Whether the request is repeated when the connection breaks. `safe`: it is. `once`: it is, with an `Idempotency-Key`.
   * `never`: it is not. The default depends on the HTTP method: `never` for POST and PATCH, else `safe`.
   */
  repeat?: "safe" | "once" | "never";
  signal?: AbortSignal | undefined;
}

/** A response whose body has not been read yet. */
export interface Reply {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: http.IncomingMessage;
  /** The request as `GET /v1/…`, for messages. */
  what: string;
}

export class Transport {
  readonly config: Config;
  readonly #agent: http.Agent;
  /** Whether this daemon has answered before. If so, an unreachable daemon is probably restarting. */
  #known = false;

  constructor(options: ConnectOptions = {}) {
    this.config = resolveConfig(options);
    const kept = { keepAlive: true, timeout: IDLE_MS };
    this.#agent = this.config.url.protocol === "https:" ? new https.Agent(kept) : new http.Agent(kept);
  }

  /** Closes idle connections. The transport can still be used; new connections are opened as needed. */
  close(): void {
    this.#agent.destroy();
  }

  /** A call whose response is JSON or empty. */
  async call<R extends Route>(route: R, options: CallOptions<R> = {}): Promise<Routes[R]["answer"]> {
    return this.#repeated(route, options, async (reply) => {
      const bytes = await collect(reply, ANSWER_BYTES_MAX);
      return (bytes.length === 0 ? undefined : fromWire(parse(bytes, reply))) as Routes[R]["answer"];
    });
  }

  /** A call whose response is a complete body of bytes. */
  async bytes<R extends Route>(route: R, options: CallOptions<R> = {}): Promise<Buffer> {
    return this.#repeated(route, options, (reply) => collect(reply));
  }

  /** A call whose response body is streamed. The request is retried; reading the body is not. */
  async open<R extends Route>(route: R, options: CallOptions<R> = {}): Promise<Reply> {
    return this.#repeated(route, options, (reply) => Promise.resolve(reply));
  }

  /** Yields the items of a list. Pages are fetched as needed. */
  async *pages<R extends Route>(route: R, options: CallOptions<R> = {}): AsyncGenerator<Item<R>, void, undefined> {
    let cursor: string | undefined;
    do {
      const query = { limit: 1000, ...options.query, ...(cursor === undefined ? {} : { cursor }) };
      const page = (await this.call(route, { ...options, query } as CallOptions<R>)) as { items: Item<R>[]; nextCursor?: string | null };
      yield* page.items;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Returns all items of a list. */
  async list<R extends Route>(route: R, options: CallOptions<R> = {}): Promise<Item<R>[]> {
    const items: Item<R>[] = [];
    for await (const item of this.pages(route, options)) items.push(item);
    return items;
  }

  /** Opens a WebSocket. `head` contains the bytes that followed the response headers. Never repeated here. */
  async upgrade<R extends Route>(route: R, options: CallOptions<R>): Promise<{ socket: Duplex; head: Buffer; accept: string }> {
    const key = randomUUID().replaceAll("-", "").slice(0, 22) + "==";
    const headers = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key };
    const { what, request } = this.#request(route, { ...options, headers }, false);
    return new Promise((resolve, reject) => {
      request.on("upgrade", (response: http.IncomingMessage, socket: Duplex, head: Buffer) => {
        this.#known = true;
        resolve({ socket, head, accept: `${key} ${String(response.headers["sec-websocket-accept"])}` });
      });
      request.on("response", (body: http.IncomingMessage) => {
        refusal({ status: body.statusCode ?? 0, headers: body.headers, body, what }).then(reject, reject);
      });
      request.on("error", (error) => reject(this.#broken(what, error, options.signal)));
      request.end();
    });
  }

  async #repeated<R extends Route, T>(
    route: R,
    options: CallOptions<R>,
    read: (reply: Reply) => Promise<T>,
  ): Promise<T> {
    const method = route.slice(0, route.indexOf(" "));
    const streamed = options.payload !== undefined && typeof options.payload === "object" && !(options.payload instanceof Uint8Array);
    const repeat = streamed ? "never" : (options.repeat ?? (method === "POST" || method === "PATCH" ? "never" : "safe"));
    const keyed = repeat === "once" ? { ...options, headers: { ...options.headers, "idempotency-key": randomUUID() } } : options;
    let broke = false;
    for (let attempt = 0; ; attempt++) {
      try {
        return await read(await this.#send(route, keyed));
      } catch (error) {
        if (!(error instanceof BurrowError)) throw error;
        // An earlier attempt, whose response was lost, has deleted it.
        if (broke && method === "DELETE" && error.code === "not_found") return undefined as T;
        // The payload of a stream can be read only once.
        const pause = streamed ? undefined : this.#pause(error, repeat, attempt);
        if (pause === undefined || attempt >= this.config.retries) throw error;
        broke ||= error.code === "broken";
        await sleep(pause, undefined, { ref: true, ...(options.signal ? { signal: options.signal } : {}) }).catch(() => {
          throw error;
        });
      }
    }
  }

  /** The delay before the next attempt; `undefined` if the request must not be repeated. */
  #pause(error: BurrowError, repeat: "safe" | "once" | "never", attempt: number): number | undefined {
    const pause = Math.min(PAUSE_FIRST_MS * 2 ** attempt, PAUSE_MS_MAX) * (0.75 + Math.random() / 2);
    switch (error.code) {
      // Nothing was sent. Do not wait for a daemon that has never answered.
      case "unreachable":
        return this.#known ? pause : undefined;
      // The daemon did not start to process the request.
      case "busy":
        return Math.max(pause, retryAfter.get(error) ?? 0);
      // Our earlier attempt is still in progress.
      case "idempotency_in_flight":
        return repeat === "once" ? pause : undefined;
      case "broken":
        return repeat === "never" ? undefined : pause;
      default:
        return undefined;
    }
  }

  async #send<R extends Route>(route: R, options: CallOptions<R>): Promise<Reply> {
    const { what, request } = this.#request(route, options, true);
    const body = await new Promise<http.IncomingMessage>((resolve, reject) => {
      request.on("response", resolve);
      request.on("error", (error) => reject(this.#broken(what, error, options.signal)));
      feed(request, options).catch((error: unknown) => {
        // Reading the payload failed, or the daemon answered before it had read the whole payload. Its response is more useful.
        request.destroy(error instanceof Error ? error : new Error(String(error)));
      });
    });
    this.#known = true;
    const reply = { status: body.statusCode ?? 0, headers: body.headers, body, what };
    if (reply.status >= 200 && reply.status < 300) return reply;
    throw await refusal(reply);
  }

  #request<R extends Route>(route: R, options: CallOptions<R>, pooled: boolean): { what: string; request: http.ClientRequest } {
    const [method, template] = route.split(" ") as [string, string];
    const path = fill(template, options.path ?? {});
    const { url, ca, apiKey } = this.config;
    const headers: http.OutgoingHttpHeaders = { accept: "application/json, application/x-ndjson, */*", ...options.headers };
    if (apiKey !== undefined && apiKey !== "") headers["x-api-key"] = apiKey;
    if (options.payload !== undefined) headers["content-type"] = options.contentType ?? "application/octet-stream";
    if (options.body !== undefined) headers["content-type"] = "application/json";
    const settings: https.RequestOptions = {
      method,
      host: url.hostname.replace(/^\[|\]$/g, ""),
      port: url.port || (url.protocol === "https:" ? 443 : 80),
      path: url.pathname.replace(/\/$/, "") + path + queryOf(options.query),
      headers,
      agent: pooled ? this.#agent : false,
      ...(ca === undefined ? {} : { ca }),
      ...(options.signal ? { signal: options.signal } : {}),
    };
    const what = `${method} ${path}`;
    const request = url.protocol === "https:" ? https.request(settings) : http.request(settings);
    // Limits the time to connect only: once connected, a request may take as long as its command does.
    request.on("socket", (socket) => {
      if (!socket.connecting) return;
      const timer = setTimeout(() => socket.destroy(connectTimeout()), CONNECT_MS_MAX);
      socket.once("connect", () => clearTimeout(timer)).once("close", () => clearTimeout(timer));
    });
    return { what, request };
  }

  #broken(what: string, error: Error & { code?: string; syscall?: string }, signal: AbortSignal | undefined): BurrowError {
    if (signal?.aborted) return errorOf({ code: "aborted", message: `${what} was aborted`, cause: signal.reason });
    const { url } = this.config;
    const tls = /certificate|self.signed|issuer/i.test(error.message);
    if (tls || error.syscall === "connect" || error.syscall === "getaddrinfo") {
      return errorOf({
        code: "unreachable",
        message: `could not reach the daemon at \`${url.origin}\`: ${error.message || error.code}`,
        hint: tls
          ? "set `caFile` (BURROW_CA_FILE) to the CA that signed its certificate, or use a host name that the certificate contains"
          : isLoopback(url.hostname)
            ? "start the daemon with `burrow up`"
            : "check that the daemon is running there and that BURROW_URL is correct",
        cause: error,
      });
    }
    return errorOf({ code: "broken", message: `the connection broke during ${what}: ${error.message}`, cause: error });
  }
}

/** The `Retry-After` of an error response, in milliseconds. */
const retryAfter = new WeakMap<BurrowError, number>();

function connectTimeout(): Error {
  return Object.assign(new Error(`connecting timed out after ${CONNECT_MS_MAX / 1000} s`), { syscall: "connect" });
}

function fill(template: string, parts: Record<string, string | number>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const part = String(parts[name] ?? "");
    if (part === "") throw errorOf({ code: "invalid_request", message: `the path parameter \`${name}\` is empty`, hint: "pass a name or an id" });
    // Proxies would resolve `.` and `..` as relative paths.
    return /^\.{1,2}$/.test(part) ? part.replaceAll(".", "%2E") : encodeURIComponent(part);
  });
}

function queryOf(query: object | undefined): string {
  const wire = toWire(query ?? {}) as Record<string, unknown>;
  const pairs = Object.entries(wire).filter(([, value]) => value !== undefined && value !== null && value !== false);
  if (pairs.length === 0) return "";
  const all = pairs.flatMap(([name, value]) => [value].flat().map((one): [string, string] => [name, String(one)]));
  return "?" + new URLSearchParams(all).toString();
}

async function feed<R extends Route>(request: http.ClientRequest, options: CallOptions<R>): Promise<void> {
  const { body, payload } = options;
  if (body !== undefined) {
    request.end(JSON.stringify(toWire(body)));
  } else if (payload === undefined || typeof payload === "string" || payload instanceof Uint8Array) {
    request.end(payload);
  } else {
    for await (const piece of payload) {
      if (request.destroyed) return;
      if (!request.write(piece)) await drained(request);
    }
    request.end();
  }
}

function drained(request: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      request.off("drain", done).off("close", done);
      resolve();
    };
    request.once("drain", done).once("close", done);
  });
}

/** Reads the whole body, `max` bytes at most. */
export async function collect(reply: Reply, max = Number.MAX_SAFE_INTEGER): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of chunks(reply)) {
    length += piece.length;
    if (length > max) {
      reply.body.destroy();
      throw errorOf({ code: "too_large", message: `the response to ${reply.what} is larger than ${max} bytes` });
    }
    pieces.push(piece as Buffer);
  }
  return Buffer.concat(pieces);
}

/** Yields the body as it arrives; throws an error if it is incomplete. */
export async function* chunks(reply: Reply): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for await (const piece of reply.body) yield piece as Buffer;
  } catch (error) {
    if (error instanceof BurrowError) throw error;
    const { message } = error as Error;
    throw errorOf({ code: "broken", message: `the connection broke during ${reply.what}: ${message}`, cause: error });
  }
}

function parse(bytes: Buffer, reply: Reply): unknown {
  try {
    return JSON.parse(bytes.toString("utf8")) as unknown;
  } catch (cause) {
    throw errorOf({ code: "not_burrow", message: `the response to ${reply.what} is not valid JSON`, status: reply.status, cause });
  }
}

async function refusal(reply: Reply): Promise<BurrowError> {
  const bytes = await collect(reply, REFUSAL_BYTES_MAX);
  const requestId = reply.headers["x-request-id"];
  const common = { status: reply.status, requestId: typeof requestId === "string" ? requestId : undefined };
  let detail: { code?: unknown; message?: unknown; hint?: string | null } | undefined;
  try {
    detail = (JSON.parse(bytes.toString("utf8")) as { error?: typeof detail }).error;
  } catch {
    detail = undefined;
  }
  if (typeof detail?.code !== "string" || typeof detail.message !== "string") {
    const text = JSON.stringify(bytes.toString("utf8").slice(0, 200));
    const message = `${reply.what} failed with status ${reply.status}, and the response is not from a Burrow daemon: ${text}`;
    return errorOf({ code: "not_burrow", message, ...common });
  }
  const error = errorOf({ code: detail.code as BurrowError["code"], message: detail.message, hint: detail.hint, ...common });
  const after = Number(reply.headers["retry-after"]);
  if (Number.isFinite(after)) retryAfter.set(error, Math.min(after * 1000, RETRY_AFTER_MS_MAX));
  return error;
}

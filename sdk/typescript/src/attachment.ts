/**
 * Streams the output of an exec over a WebSocket, and reconnects when the connection breaks.
 *
 * Every byte is returned once and in order; a `gap` event reports missing bytes. While the caller does not read, the
 * process blocks, as when it writes to a full pipe. When the sandbox is put to sleep, its streams end and are not
 * reattached, because attaching would wake it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { type BurrowError, errorOf, isTransient } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { fromWire } from "./names.js";
import type { Transport } from "./transport.js";
import { type Message, type WebSocketConnection, openWebSocket } from "./websocket.js";

/** With the delays between attempts, about a minute: longer than a restart of the daemon takes. */
const REATTACHES_MAX = 60;
const PAUSE_FIRST_MS = 50;
const PAUSE_MS_MAX = 1_000;

export type RawEvent =
  | { kind: "output"; stream: "stdout" | "stderr"; offset: number; bytes: Buffer }
  | { kind: "gap"; from: number; to: number }
  | { kind: "exit"; exec: Schemas["Exec"] };

export interface AttachOptions {
  /** Offset of the first byte of output to return; 0 replays all output that is still buffered. */
  offset?: number | undefined;
  signal?: AbortSignal | undefined;
}

export async function* attach(
  transport: Transport,
  sandbox: string,
  exec: string,
  options: AttachOptions = {},
): AsyncGenerator<RawEvent, void, undefined> {
  let offset = options.offset ?? 0;
  let failures = 0;
  let socket: WebSocketConnection | undefined;
  const hangUp = () => socket?.close();
  options.signal?.addEventListener("abort", hangUp, { once: true });
  try {
    for (;;) {
      try {
        socket ??= await openWebSocket(transport, "GET /v1/sandboxes/{sandbox}/execs/{exec}/attach", {
          path: { sandbox, exec },
          query: { offset },
          signal: options.signal,
        });
        const event = take(await socket.next(), offset, exec);
        if (event === undefined) continue;
        failures = 0;
        if (event.kind === "output") offset = event.offset + event.bytes.length;
        if (event.kind === "gap") offset = Math.max(offset, event.to);
        yield event;
        if (event.kind === "exit") return;
      } catch (error) {
        socket?.close();
        socket = undefined;
        if (options.signal?.aborted) throw aborted(options.signal);
        failures += 1;
        if (!isTransient(error) || failures > REATTACHES_MAX) throw error;
        await sleep(Math.min(PAUSE_FIRST_MS * 2 ** (failures - 1), PAUSE_MS_MAX));
      }
    }
  } finally {
    options.signal?.removeEventListener("abort", hangUp);
    socket?.close();
  }
}

function take(message: Message, offset: number, exec: string): RawEvent | undefined {
  switch (message.kind) {
    case "binary":
      return output(message.bytes, offset);
    case "text":
      return notice(fromWire(JSON.parse(message.text)) as Schemas["AttachServerMessage"]);
    case "close": {
      if (message.reason === "sandbox_asleep") {
        throw errorOf({ code: "sandbox_asleep", message: `the sandbox of exec \`${exec}\` was put to sleep` });
      }
      throw errorOf({ code: "broken", message: `the daemon closed the stream of exec \`${exec}\`` });
    }
  }
}

/**
 * Format: one byte for the stream, eight for the offset, then output. After a reconnect it may begin before the
 * requested offset.
 */
function output(bytes: Buffer, offset: number): RawEvent | undefined {
  if (bytes.length < 9) throw errorOf({ code: "broken", message: "the daemon sent an invalid output message: it is shorter than its header" });
  const begins = Number(bytes.readBigUInt64BE(1));
  const known = Math.max(0, offset - begins);
  const fresh = bytes.subarray(9 + known);
  if (fresh.length === 0) return undefined;
  return { kind: "output", stream: bytes[0] === 2 ? "stderr" : "stdout", offset: begins + known, bytes: fresh };
}

function notice(message: Schemas["AttachServerMessage"]): RawEvent {
  if (message.kind !== "error") return message;
  throw errorOf(message.error);
}

export function aborted(signal: AbortSignal): BurrowError {
  return errorOf({ code: "aborted", message: "aborted", cause: signal.reason });
}

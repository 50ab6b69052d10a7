/** Streams of JSON values, one per line, and resuming such streams after a broken connection. */
import { setTimeout as sleep } from "node:timers/promises";
import { BurrowError, errorOf, isTransient } from "./errors.js";
import { fromWire } from "./names.js";
import { type Reply, chunks } from "./transport.js";

/** Maximum length of a line. Chunks of output and events are much shorter. */
const LINE_BYTES_MAX = 8 << 20;
/** With the delays between attempts, about a minute: longer than a restart of the daemon takes. */
const RESUMES_MAX = 60;
const RESUME_PAUSE_MS = 1_000;

/** Yields values as they arrive. */
export async function* values<T>(reply: Reply): AsyncGenerator<T, void, undefined> {
  for await (const line of lines(reply)) yield fromWire(JSON.parse(line)) as T;
}

/** Yields lines as they arrive, except empty lines, which keep an idle stream alive. */
export async function* lines(reply: Reply): AsyncGenerator<string, void, undefined> {
  let pieces: Uint8Array[] = [];
  let length = 0;
  for await (let piece of chunks(reply)) {
    for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10)) {
      const line = Buffer.concat([...pieces, piece.subarray(0, end)]).toString("utf8");
      pieces = [];
      length = 0;
      piece = piece.subarray(end + 1);
      if (line.trim() !== "") yield line;
    }
    length += piece.length;
    if (length > LINE_BYTES_MAX) {
      reply.body.destroy();
      throw errorOf({ code: "too_large", message: `a line of ${reply.what} is longer than ${LINE_BYTES_MAX} bytes` });
    }
    pieces.push(piece);
  }
  if (Buffer.concat(pieces).toString("utf8").trim() !== "") {
    throw errorOf({ code: "broken", message: `${reply.what} ended before it was complete` });
  }
}

/**
 * Follows a stream that has no end. When the stream breaks or ends, `open` is called again and continues after the last
 * value. Values are neither lost nor repeated if the daemon can identify that position.
 */
export async function* followed<T>(
  open: () => Promise<AsyncIterable<T>>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  let failures = 0;
  for (;;) {
    let error: BurrowError;
    try {
      for await (const value of await open()) {
        failures = 0;
        yield value;
      }
      error = errorOf({ code: "broken", message: "the stream ended: the daemon is shutting down" });
    } catch (caught) {
      if (signal?.aborted) return;
      if (!isTransient(caught) || (caught as BurrowError).code === "internal") throw caught;
      error = caught as BurrowError;
    }
    failures += 1;
    if (failures > RESUMES_MAX) throw error;
    await sleep(Math.min(RESUME_PAUSE_MS, 50 * 2 ** failures), undefined, signal ? { signal } : {}).catch(() => undefined);
    if (signal?.aborted) return;
  }
}

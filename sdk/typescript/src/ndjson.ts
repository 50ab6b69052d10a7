/** Streams of JSON values, one per line, and taking one up again where it broke off. */
import { setTimeout as sleep } from "node:timers/promises";
import { BurrowError, errorOf, isTransient } from "./errors.js";
import { fromWire } from "./names.js";
import { type Reply, chunks } from "./transport.js";

/** Longest line: a chunk of output or an event with its detail stays far below it. */
const LINE_BYTES_MAX = 8 << 20;
/** With the pauses between them about a minute: longer than a daemon takes to restart. */
const RESUMES_MAX = 60;
const RESUME_PAUSE_MS = 1_000;

/** Values as they come. */
export async function* values<T>(reply: Reply): AsyncGenerator<T, void, undefined> {
  for await (const line of lines(reply)) yield fromWire(JSON.parse(line)) as T;
}

/** Lines as they come, without empty ones, which keep an idle stream alive. */
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
 * A stream that has no end of its own. `open` is called again whenever it broke or ended, and begins where the last
 * value left off; nothing is lost or told twice as far as the daemon can say where that is.
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
      error = errorOf({ code: "broken", message: "the stream ended: the daemon is going down" });
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

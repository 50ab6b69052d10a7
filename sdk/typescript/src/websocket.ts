/**
 * A WebSocket client (RFC 6455) with what Burrow's streams need. Node.js 20 has no built-in client that can send headers.
 *
 * Reading has backpressure: while the caller requests no message, the socket is paused, and the peer blocks. Memory is
 * limited to one message and {@link QUEUE_BYTES_MAX}.
 */
import { createHash, randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { errorOf } from "./errors.js";
import type { CallOptions, Route, Transport } from "./transport.js";

/** Larger than any message that the daemon sends. */
const MESSAGE_BYTES_MAX = 16 << 20;
const QUEUE_BYTES_MAX = 1 << 20;
const HEARTBEAT_MS = 20_000;
/** After this many heartbeats without data, the connection counts as broken, for example because a NAT entry expired. */
const SILENT_HEARTBEATS_MAX = 3;

const enum Op {
  More = 0x0,
  Text = 0x1,
  Binary = 0x2,
  Close = 0x8,
  Ping = 0x9,
  Pong = 0xa,
}

export type Message = { kind: "text"; text: string } | { kind: "binary"; bytes: Buffer } | { kind: "close"; reason: string };

export async function openWebSocket<R extends Route>(
  transport: Transport,
  route: R,
  options: CallOptions<R>,
): Promise<WebSocketConnection> {
  const { socket, head, accept } = await transport.upgrade(route, options);
  const [key, answered] = accept.split(" ");
  const expected = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  if (answered !== expected) {
    socket.destroy();
    throw errorOf({ code: "not_burrow", message: `${route} did not accept the WebSocket handshake` });
  }
  return new WebSocketConnection(socket, head, route);
}

export class WebSocketConnection {
  readonly #socket: Duplex;
  readonly #what: string;
  #input: Buffer;
  /** Fragments of a message that consists of several frames. */
  #parts: Buffer[] = [];
  #partsOp: Op = Op.Binary;
  #queue: Message[] = [];
  #queued = 0;
  #failure: Error | undefined;
  #ended = false;
  #wake: (() => void) | undefined;
  #silent = 0;
  readonly #heartbeat: NodeJS.Timeout;

  constructor(socket: Duplex, head: Buffer, what: string) {
    this.#socket = socket;
    this.#what = what;
    this.#input = head;
    this.#heartbeat = setInterval(() => this.#beat(), HEARTBEAT_MS);
    this.#heartbeat.unref();
    socket.on("data", (piece: Buffer) => this.#take(piece));
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the daemon closed the connection")));
    if (head.length > 0) this.#take(Buffer.alloc(0));
  }

  /** Returns the next message; `close` is the last. */
  async next(): Promise<Message> {
    for (;;) {
      const message = this.#queue.shift();
      if (message) {
        this.#queued -= sizeOf(message);
        if (this.#queued < QUEUE_BYTES_MAX && this.#socket.isPaused()) {
          this.#silent = 0;
          this.#socket.resume();
        }
        return message;
      }
      if (this.#failure) {
        const { message: why } = this.#failure;
        throw errorOf({ code: "broken", message: `the stream of ${this.#what} broke: ${why}`, cause: this.#failure });
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Sends a message; waits while the peer does not read. */
  async send(data: Uint8Array | string): Promise<void> {
    const text = typeof data === "string";
    if (this.#failure) throw errorOf({ code: "broken", message: `the stream of ${this.#what} broke: ${this.#failure.message}` });
    if (this.#write(text ? Op.Text : Op.Binary, text ? Buffer.from(data) : data)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#socket.off("drain", done).off("close", done);
        resolve();
      };
      this.#socket.once("drain", done).once("close", done);
    });
  }

  close(): void {
    clearInterval(this.#heartbeat);
    if (this.#ended) return;
    this.#ended = true;
    if (!this.#socket.destroyed) this.#write(Op.Close, Buffer.from([0x03, 0xe8]));
    this.#socket.end();
    // Discard further input; do not wait for the peer's close frame.
    this.#socket.resume();
    setTimeout(() => this.#socket.destroy(), 1_000).unref();
  }

  #beat(): void {
    // While the socket is paused, missing data does not mean that the connection is broken.
    if (this.#socket.isPaused()) return;
    this.#silent += 1;
    if (this.#silent > SILENT_HEARTBEATS_MAX) this.#socket.destroy(new Error("the daemon does not answer pings"));
    else this.#write(Op.Ping, Buffer.alloc(0));
  }

  #fail(error: Error): void {
    clearInterval(this.#heartbeat);
    this.#failure ??= error;
    this.#ended = true;
    this.#wake?.();
  }

  /** Writes a frame. Frames of a client must be masked. */
  #write(op: Op, payload: Uint8Array): boolean {
    const length = payload.length;
    const header = Buffer.alloc(length < 126 ? 6 : length < 65_536 ? 8 : 14);
    header[0] = 0x80 | op;
    if (length < 126) header[1] = 0x80 | length;
    else if (length < 65_536) {
      header[1] = 0x80 | 126;
      header.writeUInt16BE(length, 2);
    } else {
      header[1] = 0x80 | 127;
      header.writeBigUInt64BE(BigInt(length), 2);
    }
    const mask = randomBytes(4);
    mask.copy(header, header.length - 4);
    const masked = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; at++) masked[at] = payload[at]! ^ mask[at & 3]!;
    this.#socket.write(header);
    return this.#socket.write(masked);
  }

  #take(piece: Buffer): void {
    this.#silent = 0;
    this.#input = this.#input.length === 0 ? piece : Buffer.concat([this.#input, piece]);
    while (!this.#ended && this.#frame());
    if (this.#queued >= QUEUE_BYTES_MAX) this.#socket.pause();
    this.#wake?.();
  }

  /** Removes one frame from the input, if it is complete. */
  #frame(): boolean {
    const input = this.#input;
    if (input.length < 2) return false;
    const short = input[1]! & 0x7f;
    const start = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (input.length < start) return false;
    const length = short < 126 ? short : short === 126 ? input.readUInt16BE(2) : Number(input.readBigUInt64BE(2));
    if (length > MESSAGE_BYTES_MAX) {
      this.#socket.destroy(new Error(`the daemon sent a message of ${length} bytes, which is more than ${MESSAGE_BYTES_MAX}`));
      return false;
    }
    if (input.length < start + length) return false;
    this.#input = input.subarray(start + length);
    this.#handle(input[0]! & 0x0f, (input[0]! & 0x80) !== 0, input.subarray(start, start + length));
    return true;
  }

  #handle(op: Op, final: boolean, payload: Buffer): void {
    switch (op) {
      case Op.Ping:
        this.#write(Op.Pong, payload);
        return;
      case Op.Pong:
        return;
      case Op.Close:
        this.#put({ kind: "close", reason: payload.subarray(2).toString("utf8") });
        return;
      case Op.More:
      case Op.Text:
      case Op.Binary:
        if (op !== Op.More) this.#partsOp = op;
        this.#parts.push(payload);
        if (!final) return;
        this.#put(this.#whole());
    }
  }

  #whole(): Message {
    const bytes = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
    this.#parts = [];
    return this.#partsOp === Op.Text ? { kind: "text", text: bytes.toString("utf8") } : { kind: "binary", bytes };
  }

  #put(message: Message): void {
    this.#queue.push(message);
    this.#queued += sizeOf(message);
  }
}

/** Adds a constant per message, so that the limit also applies to many empty messages. */
function sizeOf(message: Message): number {
  return 64 + (message.kind === "binary" ? message.bytes.length : message.kind === "text" ? message.text.length : 0);
}

/** Ports of a sandbox: what listens, addresses for it, and raw TCP. */
import { type AddressInfo, type Server, createServer } from "node:net";
import { Duplex, pipeline } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import type { Transport } from "./transport.js";
import { type WebSocketConnection, openWebSocket } from "./websocket.js";

const WAIT_MS = 30_000;
const POLL_MS = 50;
const PIECE_BYTES_MAX = 256 << 10;

/** A port on this machine that leads into a sandbox. */
export interface Forwarding extends AsyncDisposable {
  /** On 127.0.0.1. */
  port: number;
  close(): Promise<void>;
}

export class Ports {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** What listens and what is published. */
  list(): Promise<Schemas["Port"][]> {
    return this.#transport.list("GET /v1/sandboxes/{sandbox}/ports", { path: { sandbox: this.#sandbox } });
  }

  /** Waits until something listens on it. */
  async wait(port: number, options: { timeoutMs?: number } = {}): Promise<Schemas["Port"]> {
    const deadline = Date.now() + (options.timeoutMs ?? WAIT_MS);
    for (;;) {
      const found = (await this.list()).find((one) => one.port === port && one.addresses.length > 0);
      if (found) return found;
      if (Date.now() > deadline) throw errorOf({ code: "timeout", message: `nothing listens on port ${port} yet` });
      await sleep(POLL_MS);
    }
  }

  /** A link that opens the port without a key until it expires, one hour unless given. */
  async getUrl(port: number, options: { expiresSeconds?: number } = {}): Promise<string> {
    const body = { ...options };
    const answer = await this.#transport.call("POST /v1/sandboxes/{sandbox}/ports/{port}/url", { path: this.#path(port), body, repeat: "safe" });
    return answer.url;
  }

  /** Lets anybody open it. */
  async publish(port: number): Promise<void> {
    await this.#transport.call("PUT /v1/sandboxes/{sandbox}/ports/{port}", { path: this.#path(port) });
  }

  /** Makes it private again. */
  async unpublish(port: number): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/ports/{port}", { path: this.#path(port) });
  }

  /** A TCP connection to it. Wakes the sandbox, and starts it if it is stopped. */
  async connect(port: number): Promise<Duplex> {
    const route = "GET /v1/sandboxes/{sandbox}/ports/{port}/connect";
    return new PortStream(await openWebSocket(this.#transport, route, { path: this.#path(port) }));
  }

  /** Has a port of this machine lead there, a free one unless given, until it is closed. */
  async forward(port: number, localPort = 0): Promise<Forwarding> {
    const server = createServer({ allowHalfOpen: true }, (local) => {
      local.on("error", () => local.destroy());
      this.connect(port).then(
        (remote) => {
          // What ends one side ends the other; why is for neither of them to know.
          pipeline(local, remote, () => undefined);
          pipeline(remote, local, () => undefined);
        },
        () => local.destroy(),
      );
    });
    await listening(server, localPort);
    const close = () => new Promise<void>((resolve) => server.close(() => resolve()));
    return { port: (server.address() as AddressInfo).port, close, [Symbol.asyncDispose]: close };
  }

  #path(port: number): { sandbox: string; port: number } {
    return { sandbox: this.#sandbox, port };
  }
}

function listening(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => resolve());
  });
}

/** The bytes of a port. Each direction has an end of its own. */
class PortStream extends Duplex {
  readonly #socket: WebSocketConnection;
  #reading = false;

  constructor(socket: WebSocketConnection) {
    super({ allowHalfOpen: true });
    this.#socket = socket;
  }

  override _read(): void {
    if (this.#reading) return;
    this.#reading = true;
    this.#pump().catch((error: Error) => this.destroy(error));
  }

  async #pump(): Promise<void> {
    for (;;) {
      const message = await this.#socket.next();
      if (message.kind === "binary") {
        if (this.push(message.bytes)) continue;
        break;
      }
      if (message.kind === "close") throw errorOf({ code: "broken", message: "the daemon closed the connection" });
      const said = JSON.parse(message.text) as Schemas["PortMessage"];
      if (said.kind === "error") throw errorOf(said.error);
      this.push(null);
      return;
    }
    this.#reading = false;
  }

  override _write(piece: Buffer, _: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send(piece).then(() => done(), done);
  }

  async #send(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length; at += PIECE_BYTES_MAX) {
      await this.#socket.send(piece.subarray(at, at + PIECE_BYTES_MAX));
    }
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#socket.send(JSON.stringify({ kind: "end" })).then(() => done(), done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.close();
    done(error);
  }
}

/** Ports of a sandbox: listening servers, links to them, and TCP connections. */
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

/** A local port that forwards to a port of a sandbox. */
export interface Forwarding extends AsyncDisposable {
  /** The local port, on 127.0.0.1. */
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

  /** Lists listening and published ports. */
  list(): Promise<Schemas["Port"][]> {
    return this.#transport.list("GET /v1/sandboxes/{sandbox}/ports", { path: { sandbox: this.#sandbox } });
  }

  /** Waits until a server listens on the port. */
  async wait(port: number, options: { timeoutMs?: number } = {}): Promise<Schemas["Port"]> {
    const deadline = Date.now() + (options.timeoutMs ?? WAIT_MS);
    for (;;) {
      const found = (await this.list()).find((one) => one.port === port && one.addresses.length > 0);
      if (found) return found;
      if (Date.now() > deadline) throw errorOf({ code: "timeout", message: `timed out waiting for port ${port}: no process listens on it` });
      await sleep(POLL_MS);
    }
  }

  /** Returns a link that opens the port without an API key until it expires. Defaults to one hour. */
  async getUrl(port: number, options: { expiresSeconds?: number } = {}): Promise<string> {
    const body = { ...options };
    const answer = await this.#transport.call("POST /v1/sandboxes/{sandbox}/ports/{port}/url", { path: this.#path(port), body, repeat: "safe" });
    return answer.url;
  }

  /** Makes the port public: it can be opened without an API key. */
  async publish(port: number): Promise<void> {
    await this.#transport.call("PUT /v1/sandboxes/{sandbox}/ports/{port}", { path: this.#path(port) });
  }

  /** Makes the port private again. */
  async unpublish(port: number): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/ports/{port}", { path: this.#path(port) });
  }

  /** Opens a TCP connection to the port. Wakes the sandbox, and starts it if it is stopped. */
  async connect(port: number): Promise<Duplex> {
    const route = "GET /v1/sandboxes/{sandbox}/ports/{port}/connect";
    return new PortStream(await openWebSocket(this.#transport, route, { path: this.#path(port) }));
  }

  /** Forwards a local port to the port until the forwarding is closed. Defaults to a free local port. */
  async forward(port: number, localPort = 0): Promise<Forwarding> {
    const server = createServer({ allowHalfOpen: true }, (local) => {
      local.on("error", () => local.destroy());
      this.connect(port).then(
        (remote) => {
          // The end of one side ends the other. The error is not passed on.
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

/** A byte stream to a port. Each direction can be closed separately. */
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

/** A proxy to the daemon whose connections can be cut, as by an unreliable network or a restarted proxy. */
import { type AddressInfo, type Socket, connect, createServer } from "node:net";

export interface Proxy extends AsyncDisposable {
  url: string;
  /** Connections so far. */
  readonly connections: number;
  /** Resets every open connection. */
  cut(): void;
  /**
   * Cuts each connection after this many bytes towards the client. The limit doubles with each connection, because a message
   * that is larger than the limit would never arrive.
   */
  cutAfter(bytes: number | undefined): void;
}

export async function proxied(target: string): Promise<Proxy> {
  const { hostname, port } = new URL(target);
  const open = new Set<Socket>();
  let connections = 0;
  let limit: number | undefined;
  const server = createServer((client) => {
    connections += 1;
    const daemon = connect(Number(port), hostname);
    let passed = 0;
    const bound = limit;
    if (limit !== undefined) limit *= 2;
    for (const socket of [client, daemon]) {
      open.add(socket);
      socket.on("error", () => socket.destroy()).on("close", () => {
        open.delete(socket);
        client.destroy();
        daemon.destroy();
      });
    }
    client.pipe(daemon);
    daemon.on("data", (piece: Buffer) => {
      passed += piece.length;
      if (client.writableEnded) return;
      if (bound !== undefined && passed > bound) {
        // Data that was forwarded before must arrive; a reset would discard it.
        client.destroySoon();
        return;
      }
      if (!client.write(piece)) {
        daemon.pause();
        client.once("drain", () => daemon.resume());
      }
    });
    daemon.on("end", () => client.end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get connections() {
      return connections;
    },
    cut: () => open.forEach((socket) => socket.resetAndDestroy()),
    cutAfter: (bytes) => {
      limit = bytes;
    },
    [Symbol.asyncDispose]: async () => {
      open.forEach((socket) => socket.destroy());
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

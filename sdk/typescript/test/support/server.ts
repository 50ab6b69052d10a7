/** A server that replaces a daemon in tests of behaviour that a real daemon does not show on demand. */
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Client } from "../../src/index.js";

export type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

/** Starts a server that answers with `handle`. */
export async function answering(handle: Handler): Promise<{ client: Client; requests: IncomingMessage[] } & AsyncDisposable> {
  const requests: IncomingMessage[] = [];
  const server: Server = createServer((request, response) => {
    requests.push(request);
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString())).on("end", () => handle(request, response, body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/prefix/`, apiKey: " e2b_key\n" });
  return {
    client,
    requests,
    [Symbol.asyncDispose]: async () => {
      client.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export function json(response: ServerResponse, status: number, value: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
}

export const refused = (code: string, hint?: string) => ({ error: { code, message: `it is ${code}`, ...(hint ? { hint } : {}) } });

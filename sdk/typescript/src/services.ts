/** Services of a sandbox: supervised processes that start with it and are restarted when they end. */
import type { Schemas } from "./generated/api.js";
import { type Command } from "./process.js";
import type { Transport } from "./transport.js";

export class Services {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Adds or replaces a service, and starts it. */
  set(name: string, command: Command, options: Omit<Schemas["CreateService"], "argv" | "command"> = {}): Promise<Schemas["Service"]> {
    const body = { ...options, ...(typeof command === "string" ? { command } : { argv: [...command] }) };
    return this.#transport.call("PUT /v1/sandboxes/{sandbox}/services/{name}", { path: this.#path(name), body });
  }

  list(): Promise<Schemas["Service"][]> {
    return this.#transport.list("GET /v1/sandboxes/{sandbox}/services", { path: { sandbox: this.#sandbox } });
  }

  async restart(name: string): Promise<void> {
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/services/{name}/restart", { path: this.#path(name) });
  }

  async remove(name: string): Promise<void> {
    await this.#transport.call("DELETE /v1/sandboxes/{sandbox}/services/{name}", { path: this.#path(name) });
  }

  #path(name: string): { sandbox: string; name: string } {
    return { sandbox: this.#sandbox, name };
  }
}

/** The client of one daemon, with the calls that do not belong to one sandbox. */
import type { ConnectOptions } from "./config.js";
import type { Routes, Schemas } from "./generated/api.js";
import { Memory, Spaces } from "./memory/index.js";
import { Images } from "./images.js";
import { followed, values } from "./ndjson.js";
import { type CreateOptions, type ListFilter, Sandbox } from "./sandbox.js";
import { Secrets } from "./secrets.js";
import { Snapshots } from "./snapshots.js";
import { type CallOptions, type Route, Transport } from "./transport.js";

/**
 * A connection to one daemon, with an API key. `Sandbox.create()` and the other static methods use the daemon that the
 * environment selects. Use a `Client` for another daemon, or for calls that do not belong to one sandbox.
 *
 * ```ts
 * import { Client } from "burrow-sandbox";
 *
 * const client = new Client(); // BURROW_URL and BURROW_API_KEY, or { url, apiKey }
 * await using s = await client.create();
 * console.log((await client.list()).some(({ id }) => id === s.id)); // prints: true
 * const host = await client.call("GET /v1/host"); // every route of the API, typed
 * console.log(host.sandboxesRunning >= 1); // prints: true
 * ```
 */
export class Client {
  readonly images: Images;
  readonly secrets: Secrets;
  readonly snapshots: Snapshots;
  readonly spaces: Spaces;
  /** @internal */
  readonly transport: Transport;

  constructor(options: ConnectOptions = {}) {
    this.transport = new Transport(options);
    this.images = new Images(this.transport);
    this.secrets = new Secrets(this.transport);
    this.snapshots = new Snapshots(this.transport);
    this.spaces = new Spaces(this.transport);
  }

  create(options: CreateOptions = {}): Promise<Sandbox> {
    return Sandbox.create({ ...options, client: this });
  }

  getOrCreate(name: string, options: Omit<CreateOptions, "name" | "keep"> = {}): Promise<Sandbox> {
    return Sandbox.getOrCreate(name, { ...options, client: this });
  }

  connect(sandbox: string): Promise<Sandbox> {
    return Sandbox.connect(sandbox, { client: this });
  }

  list(filter: ListFilter = {}): Promise<Sandbox[]> {
    return Sandbox.list({ ...filter, client: this });
  }

  fromSnapshot(snapshot: string, options: Schemas["SandboxFromSnapshot"] = {}): Promise<Sandbox> {
    return Sandbox.fromSnapshot(snapshot, { ...options, client: this });
  }

  /** The memory of a sandbox or a space, by id or name; `space:NAME` and `sandbox:NAME` resolve an ambiguous name. */
  memory(of: string): Memory {
    return new Memory(this.transport, of);
  }

  /** Calls any route of the API. Its types come from the OpenAPI document, with names in camel case. */
  call<R extends Route>(route: R, options: CallOptions<R> = {}): Promise<Routes[R]["answer"]> {
    return this.transport.call(route, options);
  }

  /** Follows the events of the host, starting after the event `since`, or from the first event. */
  async *events(options: { since?: number; sandbox?: string; signal?: AbortSignal } = {}): AsyncGenerator<Schemas["Event"], void, undefined> {
    const { signal, ...rest } = options;
    const query = { ...rest, follow: true };
    const open = async () => values<Schemas["Event"]>(await this.transport.open("GET /v1/events", { query, signal }));
    for await (const event of followed(open, signal)) {
      query.since = event.seq;
      yield event;
    }
  }

  host(): Promise<Schemas["HostInfo"]> {
    return this.transport.call("GET /v1/host");
  }

  /** The tree of sandboxes and snapshots, with the origin of each. */
  async tree(): Promise<Schemas["TreeNode"][]> {
    return (await this.transport.call("GET /v1/tree")).nodes;
  }

  /** Creates an API key. `secret` contains the key; it is not shown again. */
  createKey(name: string, options: Partial<Omit<Schemas["CreateKey"], "name">> = {}): Promise<Schemas["CreatedKey"]> {
    return this.transport.call("POST /v1/keys", { body: { scope: "exec", ...options, name }, repeat: "once" });
  }

  async revokeKey(key: string): Promise<void> {
    await this.transport.call("DELETE /v1/keys/{key}", { path: { key } });
  }

  version(): Promise<Schemas["Version"]> {
    return this.transport.call("GET /v1/version");
  }

  /** Closes idle connections. */
  close(): void {
    this.transport.close();
  }
}

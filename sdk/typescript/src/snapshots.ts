/** Snapshots: immutable saved states. They outlive their sandbox. */
import type { Schemas } from "./generated/api.js";
import type { Transport } from "./transport.js";

export type Snapshot = Schemas["Snapshot"];

/** The snapshots of a host, or of one sandbox. */
export class Snapshots {
  readonly #transport: Transport;
  readonly #sandbox: string | undefined;

  /** @internal */
  constructor(transport: Transport, sandbox?: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  /** Lists snapshots, newest first, filtered by labels (`key=value`) and kinds. Only `get` returns the changed paths. */
  list(filter: { sandbox?: string; label?: string[]; kind?: Schemas["SnapshotKind"][] } = {}): Promise<Snapshot[]> {
    const query = { ...(this.#sandbox === undefined ? {} : { sandbox: this.#sandbox }), ...filter };
    return this.#transport.list("GET /v1/snapshots", { query });
  }

  /** Returns a snapshot by name, id, or id prefix. */
  get(snapshot: string): Promise<Snapshot> {
    return this.#transport.call("GET /v1/snapshots/{snapshot}", { path: { snapshot } });
  }

  async delete(snapshot: string): Promise<void> {
    await this.#transport.call("DELETE /v1/snapshots/{snapshot}", { path: { snapshot } });
  }
}

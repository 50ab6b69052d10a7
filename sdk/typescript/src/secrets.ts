/** Secrets: values that are inserted into outgoing requests outside the sandbox, and never enter it. */
import type { Schemas } from "./generated/api.js";
import type { Transport } from "./transport.js";

/** The definition of a secret: its value, its ceiling, and its position in a request. */
export interface SecretOptions {
  /** Write-only: it is never shown again. */
  value: string | Uint8Array;
  /** The ceiling: rules of sandboxes can use the secret only for these hosts, methods and paths. */
  allow: Schemas["SecretScope"][];
  /** The field of a request that the value is inserted into. */
  slot: Schemas["SecretSlot"];
  /** A placeholder value for programs that require a key in their environment. */
  placeholder?: Schemas["SecretPlaceholder"];
}

/** The secrets of a host. Only keys with the scope `admin` can change them. */
export class Secrets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Creates or changes a secret. An identical definition has no effect; a different one is a new version. */
  set(secret: string, options: SecretOptions): Promise<Schemas["Secret"]> {
    const body = { ...options, value: base64(options.value) };
    return this.#transport.call("PUT /v1/secrets/{secret}", { path: { secret }, body });
  }

  /** Replaces the value. Running sandboxes use the new value within a second. */
  rotate(secret: string, value: string | Uint8Array): Promise<Schemas["Secret"]> {
    return this.#transport.call("POST /v1/secrets/{secret}/rotate", { path: { secret }, body: { value: base64(value) } });
  }

  get(secret: string): Promise<Schemas["Secret"]> {
    return this.#transport.call("GET /v1/secrets/{secret}", { path: { secret } });
  }

  list(): Promise<Schemas["Secret"][]> {
    return this.#transport.list("GET /v1/secrets");
  }

  /** Removes a secret. Refused while rules of sandboxes use it, unless `force` is set. */
  async remove(secret: string, options: { force?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/secrets/{secret}", { path: { secret }, query: options });
  }
}

function base64(value: string | Uint8Array): string {
  return Buffer.from(value).toString("base64");
}

/** Secrets: what requests of sandboxes carry on their way out, and sandboxes never see. */
import type { Schemas } from "./generated/api.js";
import type { Transport } from "./transport.js";

/** What a secret is: its value, where it may go, and where in a request it goes. */
export interface SecretOptions {
  /** Written only: nothing shows it again. */
  value: string | Uint8Array;
  /** Beyond these hosts, methods and paths no rule of any sandbox can carry it. */
  allow: Schemas["SecretScope"][];
  slot: Schemas["SecretSlot"];
  /** A fake one for programs that want a key in their environment. */
  placeholder?: Schemas["SecretPlaceholder"];
}

/** The secrets of a host. Only keys with the scope `admin` change them. */
export class Secrets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Sets one; the same again changes nothing, anything else is a new version. */
  set(secret: string, options: SecretOptions): Promise<Schemas["Secret"]> {
    const body = { ...options, value: base64(options.value) };
    return this.#transport.call("PUT /v1/secrets/{secret}", { path: { secret }, body });
  }

  /** A new value for the same use. It reaches running sandboxes within a second. */
  rotate(secret: string, value: string | Uint8Array): Promise<Schemas["Secret"]> {
    return this.#transport.call("POST /v1/secrets/{secret}/rotate", { path: { secret }, body: { value: base64(value) } });
  }

  get(secret: string): Promise<Schemas["Secret"]> {
    return this.#transport.call("GET /v1/secrets/{secret}", { path: { secret } });
  }

  list(): Promise<Schemas["Secret"][]> {
    return this.#transport.list("GET /v1/secrets");
  }

  /** Refused while rules of sandboxes name it, unless forced. */
  async remove(secret: string, options: { force?: boolean } = {}): Promise<void> {
    await this.#transport.call("DELETE /v1/secrets/{secret}", { path: { secret }, query: options });
  }
}

function base64(value: string | Uint8Array): string {
  return Buffer.from(value).toString("base64");
}

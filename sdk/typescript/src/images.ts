/** Images: the file systems that sandboxes start from. */
import { errorOf } from "./errors.js";
import type { Schemas } from "./generated/api.js";
import { values } from "./ndjson.js";
import type { Transport } from "./transport.js";

export type BuildProgress = Schemas["BuildProgress"];

export interface BuildOptions extends Omit<BuildImage, "from"> {
  /** Called with each step as it happens. */
  onProgress?: (progress: BuildProgress) => void;
}
type BuildImage = Schemas["BuildImage"];

export class Images {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  list(filter: { name?: string } = {}): Promise<Schemas["Image"][]> {
    return this.#transport.list("GET /v1/images", { query: filter });
  }

  /** Returns an image by name or id, with its layers and history. */
  get(image: string): Promise<Schemas["ImageDetail"]> {
    return this.#transport.call("GET /v1/images/{image}", { path: { image } });
  }

  /** Pulls an image from a registry. */
  pull(reference: string, options: BuildOptions = {}): Promise<Schemas["Image"]> {
    return this.build("pull", { ...options, reference });
  }

  /** Builds an image from packages, a recipe, a sandbox, or the default image. */
  async build(from: Schemas["ImageFrom"], options: BuildOptions = {}): Promise<Schemas["Image"]> {
    const { onProgress, ...body } = options;
    const reply = await this.#transport.open("POST /v1/images", { body: { ...body, from } });
    for await (const progress of values<BuildProgress>(reply)) {
      onProgress?.(progress);
      if (progress.kind === "error") throw errorOf(progress.error);
      if (progress.kind === "done") return progress.image;
    }
    throw errorOf({ code: "broken", message: "the stream of the build ended without a result" });
  }

  /** Deletes an image. Refused while a sandbox uses it. */
  async delete(image: string): Promise<void> {
    await this.#transport.call("DELETE /v1/images/{image}", { path: { image } });
  }
}

/** The egress policy of a sandbox: which hosts it may reach, and with which secrets. */
import type { Schemas } from "./generated/api.js";
import { followed, values } from "./ndjson.js";
import type { Transport } from "./transport.js";

type RuleDocument = Schemas["RuleDocument"];

export interface AllowOptions extends Partial<Omit<RuleDocument, "host">> {
  /** Host sets that the daemon's configuration defines. */
  sets?: string[];
}

export type EgressEntry = Schemas["EgressEntry"];

/** The egress policy of one sandbox. Changes apply to open connections within a second. */
export class Egress {
  readonly #transport: Transport;
  readonly #path: { sandbox: string };

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#path = { sandbox };
  }

  /** The rules in effect, counters, and remaining budgets. */
  status(): Promise<Schemas["EgressStatus"]> {
    return this.#transport.call("GET /v1/sandboxes/{sandbox}/egress", { path: this.#path });
  }

  /**
   * Adds rules: `example.com`, `*.example.com:8443`, `tcp://db.example.com:5432`. With a secret, methods or paths they are
   * request rules: connections to the host are decrypted, every request is checked against the rules, and the secret is
   * inserted.
   */
  async allow(rules: string | string[], options: AllowOptions = {}): Promise<void> {
    const { sets = [], ...about } = options;
    const all = [rules].flat();
    const change = Object.keys(about).length > 0 ? { addRequests: all.map((host) => ({ ...about, host })) } : { add: all };
    await this.#update({ ...change, addSets: sets });
  }

  /** Removes rules or host sets. Open connections that they allowed are closed. */
  async deny(rules: string | string[], options: { sets?: string[] } = {}): Promise<void> {
    // A repeat of a request that took effect would be refused, because its rules no longer exist.
    await this.#update({ remove: [rules].flat(), removeSets: options.sets ?? [] }, "never");
  }

  /** `none`, `allowlist` or `open`. */
  async setMode(mode: Schemas["NetworkMode"]): Promise<void> {
    await this.#update({ mode });
  }

  /** Replaces the whole policy. */
  async apply(policy: Schemas["PolicyDocument"]): Promise<void> {
    await this.#transport.call("PUT /v1/sandboxes/{sandbox}/egress/policy", { path: this.#path, body: policy });
  }

  /** The log of allowed and denied connections and requests, newest first. */
  async log(options: { denied?: boolean; limit?: number } = {}): Promise<EgressEntry[]> {
    const { limit, ...query } = options;
    const entries: EgressEntry[] = [];
    // This route answers with a page, or with a stream if `follow` is set.
    for await (const entry of this.#transport.pages("GET /v1/sandboxes/{sandbox}/egress/log", { path: this.#path, query })) {
      if (limit !== undefined && entries.length >= limit) break;
      entries.push(entry as EgressEntry);
    }
    return entries;
  }

  /** Follows the log. After a broken connection it continues where it stopped. */
  follow(options: { denied?: boolean; signal?: AbortSignal } = {}): AsyncIterable<EgressEntry> {
    const { signal, ...rest } = options;
    let since: number | undefined;
    const open = async () => {
      const query = { ...rest, follow: true, ...(since === undefined ? {} : { since }) };
      return values<EgressEntry>(await this.#transport.open("GET /v1/sandboxes/{sandbox}/egress/log", { path: this.#path, query, signal }));
    };
    return (async function* () {
      for await (const entry of followed(open, signal)) {
        since = entry.seq;
        yield entry;
      }
    })();
  }

  /** Reports whether a connection or request would be allowed, and which rule decides. Nothing is sent. */
  explain(target: string, options: { method?: string } = {}): Promise<Schemas["EgressExplanation"]> {
    const body = { ...options, target };
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/egress/explain", { path: this.#path, body, repeat: "safe" });
  }

  /** Tries the connection and reports the result of each step. */
  test(target: string): Promise<Schemas["EgressTrial"]> {
    return this.#transport.call("POST /v1/sandboxes/{sandbox}/egress/test", { path: this.#path, body: { target }, repeat: "safe" });
  }

  /** Requests that wait for approval. */
  async approvals(): Promise<Schemas["EgressApproval"][]> {
    return (await this.#transport.call("GET /v1/sandboxes/{sandbox}/egress/approvals", { path: this.#path })).items;
  }

  async approve(id: number): Promise<void> {
    await this.#answer(id, true);
  }

  async refuse(id: number): Promise<void> {
    await this.#answer(id, false);
  }

  async #answer(approval: number, allow: boolean): Promise<void> {
    const path = { ...this.#path, approval };
    await this.#transport.call("POST /v1/sandboxes/{sandbox}/egress/approvals/{approval}", { path, body: { allow } });
  }

  async #update(network: Schemas["UpdateNetwork"], repeat: "safe" | "never" = "safe"): Promise<void> {
    await this.#transport.call("PATCH /v1/sandboxes/{sandbox}", { path: this.#path, body: { network }, repeat });
  }
}

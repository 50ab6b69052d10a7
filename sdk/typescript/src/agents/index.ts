/**
 * Memory for an agent loop, in two lines: recall before each turn of the model, store after it.
 *
 * Adapters for frameworks: `burrow-sandbox/agents/langchain`, `burrow-sandbox/agents/openai-agents`.
 */
import { BurrowError } from "../errors.js";
import type { Memory, TurnMessage } from "../memory/index.js";
import type { Schemas } from "../generated/api.js";
import { Sandbox } from "../sandbox.js";
import { type Mark, asMessages, conversation, markOf, unstored, withBlock } from "./messages.js";

/** Number of messages used for recall: the end of a conversation shows its topic, and more messages would only cost time. */
const RECALL_MESSAGES = 16;

/** Options of an agent's memory. */
export interface AgentMemoryOptions {
  /** Maximum size of the recalled block in tokens. Defaults to 1000. */
  budgetTokens?: number;
  /** The name of the conversation. By default, sessions are opened and closed automatically. */
  session?: string;
  user?: string;
  agent?: string;
  /** The role of the message that contains the block. Defaults to `system`. */
  role?: string;
  /** Called if the memory cannot be reached; the loop then continues without memory. By default, such errors are thrown. */
  onError?: (error: BurrowError) => void;
}

/**
 * Recalls before and stores after each turn of a plain list of messages. Each instance belongs to one conversation.
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
 * import { AgentMemory } from "burrow-sandbox/agents";
 *
 * await using s = await Sandbox.create();
 * // Stands for a call of a model: takes messages and returns its answer.
 * let model = async (messages: { role: string; content: string }[]) => ({
 *   role: "assistant",
 *   content: messages.some(({ content }) => content.includes("Helix")) ? "Helix" : "I do not know",
 * });
 * model = new AgentMemory(s).wrap(model);
 * await model([{ role: "user", content: "my editor is Helix" }]);
 *
 * // Another conversation, days later:
 * const memory = new AgentMemory(s);
 * const messages = [{ role: "user", content: "which editor do I use?" }];
 * const asked = await memory.before(messages); // what to send to the model
 * console.log(asked.length, asked[0]?.role); // prints: 2 system
 * await memory.after(messages, "You use Helix."); // what it answered
 * ```
 */
export class AgentMemory {
  readonly memory: Memory;
  readonly #options: AgentMemoryOptions;
  #mark: Mark | undefined;

  constructor(memory: Memory | Sandbox, options: AgentMemoryOptions = {}) {
    this.memory = memory instanceof Sandbox ? memory.memory : memory;
    this.#options = options;
  }

  /** Returns the block of memory for this conversation, for APIs whose instructions are separate from the messages. */
  async block(messages: readonly TurnMessage[]): Promise<string> {
    const { budgetTokens, session } = this.#options;
    const said = conversation(messages).slice(-RECALL_MESSAGES);
    if (said.length === 0) return "";
    const found = await this.#guarded(() => this.memory.recall(said, given({ budgetTokens, session })));
    return found && found.ids.length > 0 ? found.text : "";
  }

  /** Returns the messages with the block of memory after the instructions. The list itself is not changed. */
  async before<M extends { role: string }>(messages: readonly M[]): Promise<M[]> {
    const block = await this.block(messages as readonly unknown[] as TurnMessage[]);
    return withBlock(messages, block, this.#options.role ?? "system");
  }

  /**
   * Stores the messages since the last call, and the model's reply: a text, a message, several messages, or the
   * response of a model client.
   */
  async after(messages: readonly { role: string }[], reply?: unknown): Promise<Schemas["StoredTurn"] | undefined> {
    const { session, user, agent } = this.#options;
    const said = conversation([...(messages as readonly unknown[] as TurnMessage[]), ...asMessages(reply)]);
    const fresh = unstored(said, this.#mark);
    if (fresh.length === 0) return undefined;
    const stored = await this.#guarded(() => this.memory.storeTurn(fresh, given({ session, user, agent })));
    if (stored) this.#mark = markOf(said);
    return stored;
  }

  /** Wraps a function that takes messages and returns a reply. */
  wrap<M extends { role: string } = TurnMessage, A = unknown, R extends unknown[] = []>(
    call: (messages: M[], ...rest: R) => Promise<A>,
  ): (messages: M[], ...rest: R) => Promise<A> {
    return async (messages, ...rest) => {
      const reply = await call(await this.before(messages), ...rest);
      await this.after(messages, reply);
      return reply;
    };
  }

  async #guarded<T>(call: () => Promise<T>): Promise<T | undefined> {
    const { onError } = this.#options;
    try {
      return await call();
    } catch (error) {
      if (!onError || !(error instanceof BurrowError)) throw error;
      onError(error);
      return undefined;
    }
  }
}

/** Removes options that are `undefined`, so that they are not sent. */
function given<T extends Record<string, unknown>>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

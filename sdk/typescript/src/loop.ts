/**
 * Memory for an agent loop, in two lines: recall before each turn of the model, store after it.
 *
 * ```ts
 * import { Sandbox } from "@burrow/sdk";
 * import { withMemory } from "@burrow/sdk/loop";
 *
 * await using s = await Sandbox.create();
 * // Stands for a call of a model: messages in, its answer out.
 * const model = async (messages: { role: string; content: string }[]) => {
 *   const known = messages.some(({ content }) => content.includes("db-2"));
 *   return { role: "assistant", content: known ? "It is on db-2." : "I do not know." };
 * };
 * const remembering = withMemory(s.memory, model);
 * await remembering([{ role: "user", content: "Remember: the deploy key is on db-2." }]);
 * // Another conversation, which knows nothing of the first:
 * const answer = await remembering([{ role: "user", content: "Where is the deploy key?" }]);
 * console.log(answer.content); // prints: It is on db-2.
 * ```
 */
import type { ContextBlock, Memory, TurnMessage } from "./memory/index.js";

/** How an agent loop remembers. */
export interface LoopOptions {
  /** Tokens that what is recalled may take; 1000 unless given. */
  budgetTokens?: number;
  /** The name of the conversation; sessions open and close by themselves unless given. */
  session?: string;
  /** Whose it is. */
  user?: string;
  agent?: string;
  /** The role of the message that carries what was recalled; `system` unless given. */
  role?: string;
  /**
   * What to do when memory cannot be reached: the turn goes on without it, and this is told. Unless given, the error is
   * thrown.
   */
  onError?: (error: unknown) => void;
}

/** Recalls before a turn and stores after it. One per conversation. */
export class MemoryLoop {
  readonly #memory: Memory;
  readonly #options: LoopOptions;

  constructor(memory: Memory, options: LoopOptions = {}) {
    this.#memory = memory;
    this.#options = options;
  }

  /** What to put before a turn; `undefined` where there is nothing to tell. */
  async context(messages: readonly TurnMessage[]): Promise<ContextBlock | undefined> {
    const { budgetTokens, session } = this.#options;
    const options = { ...(budgetTokens === undefined ? {} : { budgetTokens }), ...(session === undefined ? {} : { session }) };
    const block = await this.#guarded(() => this.#memory.recall([...messages], options));
    return block && block.text !== "" ? block : undefined;
  }

  /** The messages with what is remembered in them, before the last of the user's. Give these to the model, keep the others. */
  async before<M extends { role: string }>(messages: readonly M[]): Promise<M[]> {
    const block = await this.context(messages as readonly unknown[] as TurnMessage[]);
    if (!block) return [...messages];
    const recalled = { role: this.#options.role ?? "system", content: block.text } as unknown as M;
    // Behind the system's own messages, whose instructions come first.
    const at = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
    const place = at < 0 ? messages.length : at;
    return [...messages.slice(0, place), recalled, ...messages.slice(place)];
  }

  /** Remembers a turn: what was asked since the last answer, and what was answered. */
  async after(messages: readonly TurnMessage[], answer: TurnMessage | readonly TurnMessage[]): Promise<void> {
    const { session, user, agent } = this.#options;
    const whose = { ...(session === undefined ? {} : { session }), ...(user === undefined ? {} : { user }), ...(agent === undefined ? {} : { agent }) };
    const turn = [...sinceLastAnswer(messages), ...[answer].flat()] as TurnMessage[];
    if (turn.length > 0) await this.#guarded(() => this.#memory.storeTurn(turn, whose));
  }

  async #guarded<T>(call: () => Promise<T>): Promise<T | undefined> {
    const { onError } = this.#options;
    if (!onError) return call();
    try {
      return await call();
    } catch (error) {
      onError(error);
      return undefined;
    }
  }
}

/** A model that remembers: messages in, its answer out, as the model itself has it. */
export function withMemory<M extends { role: string }, A extends TurnMessage | TurnMessage[], R extends unknown[]>(
  memory: Memory,
  model: (messages: M[], ...rest: R) => Promise<A>,
  options: LoopOptions = {},
): (messages: readonly M[], ...rest: R) => Promise<A> {
  const loop = new MemoryLoop(memory, options);
  return async (messages, ...rest) => {
    const answer = await model(await loop.before(messages), ...rest);
    await loop.after(messages as readonly unknown[] as TurnMessage[], answer as TurnMessage);
    return answer;
  };
}

/** What the conversation gained since the model spoke last, without instructions, which are not its news. */
function sinceLastAnswer(messages: readonly TurnMessage[]): TurnMessage[] {
  const last = messages.findLastIndex(({ role }) => role === "assistant");
  return messages.slice(last + 1).filter(({ role }) => role !== "system" && role !== "developer");
}

/**
 * Memory for the OpenAI Agents SDK.
 *
 * ```ts no-run
 * import { Agent } from "@openai/agents";
 * import { Sandbox } from "burrow-sandbox";
 * import { RunMemory } from "burrow-sandbox/agents/openai-agents";
 *
 * const sandbox = await Sandbox.getOrCreate("assistant");
 * const agent = new Agent({ name: "assistant", instructions: "Answer shortly." });
 * const result = await new RunMemory(sandbox).run(agent, "Where is the deploy key?");
 * console.log(result.finalOutput);
 * ```
 */
import {
  type Agent,
  type AgentInputItem,
  type CallModelInputFilter,
  type NonStreamRunOptions,
  type RunResult,
  Runner,
  type StreamRunOptions,
  type StreamedRunResult,
} from "@openai/agents";
import type { Memory, TurnMessage } from "../memory/index.js";
import type { Sandbox } from "../sandbox.js";
import { AgentMemory, type AgentMemoryOptions } from "./index.js";

/** An agent with any context and output type. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type AnyAgent = Agent<any, any>;

/** Recalls before and stores after each call of the model in a run. Each instance belongs to one conversation. */
export class RunMemory {
  readonly memory: AgentMemory;
  readonly #runner: Runner;

  constructor(memory: Memory | Sandbox | AgentMemory, options: AgentMemoryOptions & { runner?: Runner } = {}) {
    const { runner, ...rest } = options;
    this.memory = memory instanceof AgentMemory ? memory : new AgentMemory(memory, rest);
    this.#runner = runner ?? new Runner();
  }

  /** Like `run` of the OpenAI Agents SDK, with memory. The messages of a streamed run are stored when it has ended. */
  run<A extends AnyAgent, C = undefined>(agent: A, input: string | AgentInputItem[], options?: NonStreamRunOptions<C, A>): Promise<RunResult<C, A>>;
  run<A extends AnyAgent, C = undefined>(agent: A, input: string | AgentInputItem[], options: StreamRunOptions<C, A>): Promise<StreamedRunResult<C, A>>;
  async run<A extends AnyAgent, C = undefined>(
    agent: A,
    input: string | AgentInputItem[],
    options: NonStreamRunOptions<C, A> | StreamRunOptions<C, A> = {},
  ): Promise<RunResult<C, A> | StreamedRunResult<C, A>> {
    const filter = this.filter(options.callModelInputFilter);
    const result = await this.#runner.run(agent, input, { ...options, callModelInputFilter: filter } as NonStreamRunOptions<C, A>);
    const store = () => this.memory.after(plain(result.history));
    if (!("completed" in result)) {
      await store();
      return result;
    }
    const streamed = result as unknown as StreamedRunResult<C, A>;
    this.#stored = streamed.completed.then(store);
    // `stored` reports a failure. Without a call of it, the failure must not count as an unhandled rejection.
    this.#stored.catch(() => undefined);
    return streamed;
  }

  #stored: Promise<unknown> = Promise.resolve();

  /** Waits until the messages of the last streamed run are stored. */
  async stored(): Promise<void> {
    await this.#stored;
  }

  /**
   * A filter for your own call of `run`: recalls before each call of the model, and stores the messages of the previous
   * call.
   */
  filter(next?: CallModelInputFilter): CallModelInputFilter {
    let calls = 0;
    return async (args) => {
      const data = next ? await next(args) : args.modelData;
      const said = plain(data.input);
      // The results of the previous call: its answer and those of the tools.
      if (calls > 0) await this.memory.after(said);
      calls += 1;
      const block = await this.memory.block(said);
      if (block === "") return data;
      return { ...data, instructions: data.instructions ? `${data.instructions}\n\n${block}` : block };
    };
  }
}

/** Converts items to messages: texts, tool calls, and their results. */
function plain(items: readonly AgentInputItem[]): TurnMessage[] {
  return items.flatMap((item): TurnMessage[] => {
    const { type, role, content, name, callId } = item as { type?: string; role?: string; content?: unknown; name?: string; callId?: string };
    const { arguments: given, output } = item as { arguments?: string; output?: unknown };
    if (role !== undefined && (type === undefined || type === "message")) return [{ role, content: textOf(content) }];
    if (type === "function_call") {
      const call = { id: callId, type: "function", function: { name, arguments: given } };
      return [{ role: "assistant", content: null, tool_calls: [call] }];
    }
    if (type === "function_call_result") return [{ role: "tool", tool_call_id: callId, content: textOf(output) }];
    return [];
  });
}

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  return [content].flat().map((part) => (part as { text?: unknown } | null)?.text).filter((text) => typeof text === "string").join("\n");
}

/**
 * Memory for LangChain.js and LangGraph.js.
 *
 * For agents of `createAgent`, which are LangGraph graphs:
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
 * import { memoryMiddleware } from "burrow-sandbox/agents/langchain";
 * import { FakeListChatModel } from "@langchain/core/utils/testing";
 * import { createAgent } from "langchain";
 *
 * await using s = await Sandbox.create();
 * const model = new FakeListChatModel({ responses: ["noted"] }); // any chat model
 * const agent = createAgent({ model, tools: [], middleware: [memoryMiddleware(s)] });
 * await agent.invoke({ messages: [{ role: "user", content: "my editor is Helix" }] });
 * const [hit] = await s.memory.retrieve("editor");
 * console.log(hit?.entry.text.includes("Helix")); // prints: true
 * ```
 *
 * For nodes of your own graph, and for chains, {@link withMemory} adds memory to a model.
 */
import type { BaseLanguageModelInput } from "@langchain/core/language_models/base";
import { BaseMessage, HumanMessage, SystemMessage, coerceMessageLikeToMessage } from "@langchain/core/messages";
import { type Runnable, RunnableLambda } from "@langchain/core/runnables";
import { type AgentMiddleware, createMiddleware } from "langchain";
import type { Memory, TurnMessage } from "../memory/index.js";
import type { Sandbox } from "../sandbox.js";
import { AgentMemory, type AgentMemoryOptions } from "./index.js";

const ROLES: Record<string, string> = { human: "user", ai: "assistant", system: "system", tool: "tool", developer: "developer" };

/** Recalls before and stores after each call of the model. The agent's state is not changed. */
export function memoryMiddleware(memory: Memory | Sandbox | AgentMemory, options: AgentMemoryOptions = {}): AgentMiddleware {
  const kept = agentMemory(memory, options);
  return createMiddleware({
    name: "BurrowMemory",
    wrapModelCall: async (request, handler) => {
      const block = await kept.block(plain(request.messages));
      const systemMessage = block === "" ? request.systemMessage : joined(request.systemMessage, block);
      const answer = await handler({ ...request, systemMessage });
      await kept.after(plain([...request.messages, ...replies(answer)]));
      return answer;
    },
  });
}

/**
 * Wraps a chat model so that it recalls before and stores after each call.
 *
 * ```ts
 * import { Sandbox } from "burrow-sandbox";
 * import { withMemory } from "burrow-sandbox/agents/langchain";
 * import { FakeListChatModel } from "@langchain/core/utils/testing";
 * import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
 *
 * await using s = await Sandbox.create();
 * const model = withMemory(new FakeListChatModel({ responses: ["noted"] }), s);
 * const graph = new StateGraph(MessagesAnnotation)
 *   .addNode("model", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
 *   .addEdge(START, "model")
 *   .addEdge("model", END)
 *   .compile();
 * await graph.invoke({ messages: [{ role: "user", content: "my editor is Helix" }] });
 * const [hit] = await s.memory.retrieve("editor");
 * console.log(hit?.entry.text.includes("Helix")); // prints: true
 * ```
 */
export function withMemory<A>(
  model: Runnable<BaseLanguageModelInput, A>,
  memory: Memory | Sandbox | AgentMemory,
  options: AgentMemoryOptions = {},
): Runnable<BaseLanguageModelInput, A> {
  const kept = agentMemory(memory, options);
  return RunnableLambda.from(async (input: BaseLanguageModelInput, config) => {
    const messages = messagesOf(input);
    const block = await kept.block(plain(messages));
    const first = messages.findIndex((message) => message.getType() !== "system");
    const at = first < 0 ? messages.length : first;
    const asked = block === "" ? messages : [...messages.slice(0, at), new SystemMessage(block), ...messages.slice(at)];
    const answer = await model.invoke(asked, config);
    await kept.after(plain([...messages, ...replies(answer)]));
    return answer;
  }) as Runnable<BaseLanguageModelInput, A>;
}

function agentMemory(memory: Memory | Sandbox | AgentMemory, options: AgentMemoryOptions): AgentMemory {
  return memory instanceof AgentMemory ? memory : new AgentMemory(memory, options);
}

function messagesOf(input: BaseLanguageModelInput): BaseMessage[] {
  if (typeof input === "string") return [new HumanMessage(input)];
  if (Array.isArray(input)) return input.map((message) => coerceMessageLikeToMessage(message));
  return (input as { toChatMessages(): BaseMessage[] }).toChatMessages();
}

function replies(answer: unknown): BaseMessage[] {
  return BaseMessage.isInstance(answer) ? [answer as BaseMessage] : [];
}

function joined(system: SystemMessage | undefined, block: string): SystemMessage {
  if (!system || system.text === "") return new SystemMessage(block);
  return typeof system.content === "string"
    ? new SystemMessage(`${system.content}\n\n${block}`)
    : new SystemMessage({ content: [...system.content, { type: "text", text: block }] });
}

/** Converts messages to the format of model APIs. */
function plain(messages: readonly BaseMessage[]): TurnMessage[] {
  return messages.map((message) => {
    const { tool_calls: calls, tool_call_id: answers } = message as { tool_calls?: { id?: string; name: string; args: unknown }[]; tool_call_id?: string };
    return {
      role: ROLES[message.getType()] ?? message.getType(),
      content: message.content,
      ...(calls && calls.length > 0
        ? { tool_calls: calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: JSON.stringify(args) } })) }
        : {}),
      ...(answers === undefined ? {} : { tool_call_id: answers }),
    };
  });
}

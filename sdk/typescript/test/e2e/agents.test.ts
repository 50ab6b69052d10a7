import assert from "node:assert/strict";
import { test } from "node:test";
import type { BaseMessage } from "@langchain/core/messages";
import { AIMessage } from "@langchain/core/messages";
import { RunnableLambda } from "@langchain/core/runnables";
import { FakeListChatModel } from "@langchain/core/utils/testing";
import { Agent, type Model, type ModelRequest, type ModelResponse, Runner, type StreamEvent, Usage, setTracingDisabled, tool } from "@openai/agents";
import { createAgent } from "langchain";
import { z } from "zod";
import { AgentMemory } from "../../src/agents/index.js";
import { memoryMiddleware, withMemory } from "../../src/agents/langchain.js";
import { RunMemory } from "../../src/agents/openai-agents.js";
import { BurrowError, Client, type Memory, Sandbox } from "../../src/index.js";

setTracingDisabled(true);

async function texts(memory: Memory): Promise<string[]> {
  const found: string[] = [];
  for await (const entry of memory.list()) found.push(entry.text);
  return found.reverse();
}

test("a plain loop recalls messages of another conversation, and stores each message once", async () => {
  await using s = await Sandbox.create();
  const seen: { role: string; content: string }[][] = [];
  const model = async (messages: { role: string; content: string }[]) => {
    seen.push(messages);
    return { role: "assistant", content: `answer ${seen.length}` };
  };
  const first = new AgentMemory(s).wrap(model);
  const messages = [{ role: "system", content: "be short" }, { role: "user", content: "the deploy key is on db-2" }];
  messages.push(await first(messages), { role: "user", content: "and the port is 2222" });
  messages.push(await first(messages));
  assert.deepEqual(messages.map(({ role }) => role), ["system", "user", "assistant", "user", "assistant"], "the caller's list stays as it is");
  const stored = await texts(s.memory);
  assert.equal(stored.length, 4, JSON.stringify(stored));
  assert.ok(!stored.some((text) => text.includes("be short")), "instructions are not remembered");
  const second = new AgentMemory(s).wrap(model);
  await second([{ role: "system", content: "be short" }, { role: "user", content: "where is the deploy key?" }]);
  const asked = seen.at(-1)!;
  assert.deepEqual(asked.map(({ role }) => role), ["system", "system", "user"]);
  assert.match(asked[1]!.content, /db-2/);
});

test("with onError, a loop continues without its memory", async () => {
  const lost = new Client().memory("no-such-sandbox");
  const model = async () => "fine";
  await assert.rejects(new AgentMemory(lost).wrap(model)([{ role: "user", content: "hello" }]), BurrowError);
  const told: string[] = [];
  const remembering = new AgentMemory(lost, { onError: ({ code }) => told.push(code) }).wrap(model);
  assert.equal(await remembering([{ role: "user", content: "hello" }]), "fine");
  assert.deepEqual(told, ["not_found", "not_found"]);
});

test("a LangChain agent with the middleware recalls and stores messages", async () => {
  await using s = await Sandbox.create();
  const agent = createAgent({
    model: new FakeListChatModel({ responses: ["noted, the editor is Helix"] }),
    tools: [],
    systemPrompt: "be short",
    middleware: [memoryMiddleware(s)],
  });
  const result = await agent.invoke({ messages: [{ role: "user", content: "my editor is Helix" }] });
  assert.equal(result.messages.length, 2, "the state holds the conversation alone");
  const stored = await texts(s.memory);
  assert.equal(stored.length, 2, JSON.stringify(stored));
  const seen: BaseMessage[][] = [];
  class Listening extends FakeListChatModel {
    // The method of the class creates another model.
    override bindTools(): this {
      return this;
    }
    override invoke(...[messages, ...rest]: Parameters<FakeListChatModel["invoke"]>) {
      seen.push(messages as BaseMessage[]);
      return super.invoke(messages, ...rest);
    }
  }
  const other = createAgent({ model: new Listening({ responses: ["Helix"] }), tools: [], systemPrompt: "be short", middleware: [memoryMiddleware(s.memory)] });
  await other.invoke({ messages: [{ role: "user", content: "which editor do I use?" }] });
  assert.match(seen[0]![0]!.text, /^be short[\s\S]*Helix/);
});

test("a model with memory in a graph or chain recalls and stores messages", async () => {
  await using s = await Sandbox.create();
  const seen: BaseMessage[][] = [];
  const model = RunnableLambda.from(async (input) => {
    seen.push(input as BaseMessage[]);
    return new AIMessage("noted");
  });
  await withMemory(model, s).invoke("the port is 2222");
  const answer = await withMemory(model, s).invoke([["system", "be short"], ["human", "which port is it?"]]);
  assert.equal(answer.text, "noted");
  assert.deepEqual(seen[1]!.map((message) => message.getType()), ["system", "system", "human"]);
  assert.match(seen[1]![1]!.text, /2222/);
});

/** Returns the given answers one after the other, and records the requests. */
class ScriptedModel implements Model {
  readonly requests: ModelRequest[] = [];
  constructor(private readonly outputs: ModelResponse["output"][]) {}

  async getResponse(request: ModelRequest): Promise<ModelResponse> {
    this.requests.push(request);
    return { usage: new Usage(), output: this.outputs.shift() ?? [] };
  }

  async *getStreamedResponse(request: ModelRequest): AsyncIterable<StreamEvent> {
    const { output } = await this.getResponse(request);
    yield {
      type: "response_done",
      response: { id: "r1", output, usage: { inputTokens: 0, outputTokens: 0, totalTokens: 0 } },
    } as StreamEvent;
  }
}

const said = (text: string): ModelResponse["output"] => [
  { type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text }] },
];

test("a run of the OpenAI Agents SDK recalls and stores messages, including tool calls", async () => {
  await using s = await Sandbox.create();
  const run = tool({
    name: "run",
    description: "runs a command",
    parameters: z.object({ command: z.string() }),
    execute: async ({ command }) => (await s.run(command)).stdout,
  });
  const call: ModelResponse["output"] = [
    { type: "function_call", callId: "c1", name: "run", arguments: JSON.stringify({ command: "echo port 2222" }), status: "completed" },
  ];
  const model = new ScriptedModel([call, said("it is 2222")]);
  const agent = new Agent({ name: "a", instructions: "be short", model, tools: [run] });
  const result = await new RunMemory(s).run(agent, "find out the port");
  assert.equal(result.finalOutput, "it is 2222");
  const stored = await texts(s.memory);
  for (const part of ["find out the port", "echo port 2222", "it is 2222"]) {
    assert.equal(stored.filter((text) => text.includes(part)).length >= 1, true, `${part}: ${JSON.stringify(stored)}`);
  }
  assert.equal(stored.filter((text) => text.includes("find out the port")).length, 1, JSON.stringify(stored));
  const second = new ScriptedModel([said("2222")]);
  const memory = new RunMemory(s.memory, { runner: new Runner() });
  const streamed = await memory.run(new Agent({ name: "b", instructions: "be short", model: second }), "which port is it?", { stream: true });
  await streamed.completed;
  await memory.stored();
  assert.match(second.requests[0]!.systemInstructions ?? "", /^be short[\s\S]*2222/);
  assert.ok((await texts(s.memory)).some((text) => text.includes("which port is it?")));
});

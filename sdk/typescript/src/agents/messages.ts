/** Messages of agent loops, in the shapes that model APIs give and take. */
import { createHash } from "node:crypto";
import type { TurnMessage } from "../memory/index.js";

/** Whose words are instructions of the program and not part of the conversation. */
const INSTRUCTIONS = ["system", "developer"];
/** What a block of memory begins with, and no message of anybody else does. */
const BLOCK = /^<memory-[\s\S]{0,90}Stored earlier\./;

/** What a model answered, as messages: a text, a message, several, or an answer as the usual clients give it. */
export function asMessages(reply: unknown): TurnMessage[] {
  if (reply === undefined || reply === null) return [];
  if (typeof reply === "string") return [{ role: "assistant", content: reply }];
  if (Array.isArray(reply)) return reply.flatMap(asMessages);
  const { choices, role, content } = reply as { choices?: { message?: unknown }[]; role?: unknown; content?: unknown };
  if (Array.isArray(choices)) return asMessages(choices[0]?.message);
  if (typeof role === "string") return [reply as TurnMessage];
  return content === undefined ? [] : [{ role: "assistant", content }];
}

/** What people, models and tools said, without instructions and blocks of memory. */
export function conversation(messages: readonly TurnMessage[]): TurnMessage[] {
  return messages.filter((message) => !INSTRUCTIONS.includes(message.role) && !isBlock(message));
}

/** The messages with a block of memory behind the instructions, in place of the one that was there. */
export function withBlock<M extends { role: string }>(messages: readonly M[], block: string, role: string): M[] {
  const rest = messages.filter((message) => !isBlock(message as unknown as TurnMessage));
  if (block === "") return rest;
  const first = rest.findIndex((message) => !INSTRUCTIONS.includes(message.role));
  const at = first < 0 ? rest.length : first;
  return [...rest.slice(0, at), { role, content: block } as unknown as M, ...rest.slice(at)];
}

/** What came after the last message that was stored; without one, the turn that the last question began. */
export function unstored(messages: TurnMessage[], last: string | undefined): TurnMessage[] {
  const known = last === undefined ? -1 : messages.findLastIndex((message) => fingerprint(message) === last);
  if (known >= 0) return messages.slice(known + 1);
  const asked = messages.findLastIndex(({ role }) => role === "user");
  return messages.slice(Math.max(asked, 0));
}

/** What tells a message from others. */
export function fingerprint(message: TurnMessage): string {
  return createHash("sha256").update(JSON.stringify(message)).digest("hex");
}

function isBlock(message: TurnMessage): boolean {
  return typeof message.content === "string" && BLOCK.test(message.content);
}

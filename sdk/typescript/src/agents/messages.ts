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

/** Where a conversation was when it was stored: how much of it, and how it ended. */
export interface Mark {
  count: number;
  whole: string;
  end: string[];
}

/** Messages that tell where one left off in a conversation whose beginning was cut away. */
const END = 4;

export function markOf(messages: readonly TurnMessage[]): Mark {
  return { count: messages.length, whole: fingerprint(messages), end: messages.slice(-END).map(fingerprint) };
}

/**
 * What came after the mark. Where the beginning was cut away or rewritten meanwhile it is found by how it ended; without a
 * mark, or if that is gone, too, it is the turn that the last question began.
 */
export function unstored(messages: TurnMessage[], mark: Mark | undefined): TurnMessage[] {
  if (mark !== undefined) {
    if (fingerprint(messages.slice(0, mark.count)) === mark.whole) return messages.slice(mark.count);
    const prints = messages.map(fingerprint);
    for (let end = prints.length; end >= mark.end.length; end--) {
      if (mark.end.every((print, at) => prints[end - mark.end.length + at] === print)) return messages.slice(end);
    }
  }
  const asked = messages.findLastIndex(({ role }) => role === "user");
  return messages.slice(Math.max(asked, 0));
}

function fingerprint(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}

function isBlock(message: TurnMessage): boolean {
  return typeof message.content === "string" && BLOCK.test(message.content);
}

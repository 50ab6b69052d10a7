/** Messages of agent loops, in the formats of model APIs. */
import { createHash } from "node:crypto";
import type { TurnMessage } from "../memory/index.js";

/** Roles whose messages are instructions of the program and not part of the conversation. */
const INSTRUCTIONS = ["system", "developer"];
/** The beginning of a block of memory, which distinguishes it from other messages. */
const BLOCK = /^<memory-[\s\S]{0,90}Stored earlier\./;

/** Converts a model's reply to messages: a text, a message, several messages, or the response of a common model client. */
export function asMessages(reply: unknown): TurnMessage[] {
  if (reply === undefined || reply === null) return [];
  if (typeof reply === "string") return [{ role: "assistant", content: reply }];
  if (Array.isArray(reply)) return reply.flatMap(asMessages);
  const { choices, role, content } = reply as { choices?: { message?: unknown }[]; role?: unknown; content?: unknown };
  if (Array.isArray(choices)) return asMessages(choices[0]?.message);
  if (typeof role === "string") return [reply as TurnMessage];
  return content === undefined ? [] : [{ role: "assistant", content }];
}

/** The messages of users, models and tools, without instructions and blocks of memory. */
export function conversation(messages: readonly TurnMessage[]): TurnMessage[] {
  return messages.filter((message) => !INSTRUCTIONS.includes(message.role) && !isBlock(message));
}

/** Returns the messages with a block of memory after the instructions, replacing an existing block. */
export function withBlock<M extends { role: string }>(messages: readonly M[], block: string, role: string): M[] {
  const rest = messages.filter((message) => !isBlock(message as unknown as TurnMessage));
  if (block === "") return rest;
  const first = rest.findIndex((message) => !INSTRUCTIONS.includes(message.role));
  const at = first < 0 ? rest.length : first;
  return [...rest.slice(0, at), { role, content: block } as unknown as M, ...rest.slice(at)];
}

/**
 * The position up to which a conversation was stored: the number of messages, and fingerprints of all and of the last
 * ones.
 */
export interface Mark {
  count: number;
  whole: string;
  end: string[];
}

/** Number of last messages that identify the position in a conversation whose beginning was removed. */
const END = 4;

export function markOf(messages: readonly TurnMessage[]): Mark {
  return { count: messages.length, whole: fingerprint(messages), end: messages.slice(-END).map(fingerprint) };
}

/**
 * Returns the messages after the mark. If the beginning of the conversation was removed or rewritten, the position is found by
 * the last stored messages. Without a mark, or if those are missing too, returns the messages from the last user message on.
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

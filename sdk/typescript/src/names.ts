/**
 * Names: `ramMib` here is `ram_mib` on the wire.
 *
 * Only names that the API's own document has are turned. What lies in a place for a user's own data (environment,
 * labels, metadata, values of keys, messages) is never looked into.
 */
import { opaqueNames, wireNames } from "./generated/api.js";

/** Names of routes that are newer than the document. */
const aheadNames = { mergeWinner: "merge_winner", newBytes: "new_bytes", oldBytes: "old_bytes", waitMs: "wait_ms" };
const allNames: Readonly<Record<string, string>> = { ...aheadNames, ...wireNames };
const ourNames = new Map(Object.entries(allNames).map(([ours, wire]) => [wire, ours]));

/** As the daemon writes it. */
export function toWire(value: unknown): unknown {
  return turn(value, (name) => (Object.hasOwn(allNames, name) ? allNames[name]! : name), (name) => name);
}

/** As we write it. */
export function fromWire(value: unknown): unknown {
  const ours = (name: string) => ourNames.get(name) ?? name;
  return turn(value, ours, ours);
}

function turn(value: unknown, name: (key: string) => string, ours: (key: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => turn(item, name, ours));
  if (typeof value !== "object" || value === null) return value;
  const turned: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    turned[name(key)] = opaqueNames.has(ours(key)) ? inner : turn(inner, name, ours);
  }
  return turned;
}

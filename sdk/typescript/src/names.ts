/**
 * Converts names between the SDK and the wire: `ramMib` is `ram_mib` on the wire.
 *
 * Only names that occur in the OpenAPI document are converted. User data (environment, labels, metadata, values of keys,
 * messages) is never converted.
 */
import { opaqueNames, wireNames } from "./generated/api.js";

/** Names of routes that the OpenAPI document does not contain. */
const aheadNames = { mergeWinner: "merge_winner", newBytes: "new_bytes", oldBytes: "old_bytes", waitMs: "wait_ms" };
const allNames: Readonly<Record<string, string>> = { ...aheadNames, ...wireNames };
const ourNames = new Map(Object.entries(allNames).map(([ours, wire]) => [wire, ours]));

/** Converts a value to the names of the wire format. */
export function toWire(value: unknown): unknown {
  return turn(value, (name) => (Object.hasOwn(allNames, name) ? allNames[name]! : name), (name) => name);
}

/** Converts a value to the names of the SDK. */
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

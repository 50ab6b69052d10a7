/** Whose memory, and of when: what every call about memory begins with. */
import type { Transport } from "../transport.js";

export interface Scope {
  transport: Transport;
  /** A route's parts. */
  path(parts?: Record<string, string>): Record<string, string>;
  /** As of the moment asked for, in the space asked for. */
  reading(): { asOf?: string; space?: string };
  /** In all spaces at once, as of the moment asked for. */
  looking(): { asOf?: string };
  /** Into the space asked for. A moment of the past cannot be written to. */
  writing(): { space?: string };
}

export function scopeOf(transport: Transport, of: string, asOf: string | undefined, space: string | undefined): Scope {
  const then = asOf === undefined ? {} : { asOf };
  const where = space === undefined ? {} : { space };
  return {
    transport,
    path: (parts = {}) => ({ of, ...parts }),
    reading: () => ({ ...then, ...where }),
    looking: () => ({ ...then }),
    writing: () => ({ ...where }),
  };
}

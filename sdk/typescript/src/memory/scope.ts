/** The scope of memory calls: whose memory, at which moment, in which space. */
import type { Transport } from "../transport.js";

export interface Scope {
  transport: Transport;
  /** The path parameters of a route. */
  path(parts?: Record<string, string>): Record<string, string>;
  /** Query of a read: the requested moment and space. */
  reading(): { asOf?: string; space?: string };
  /** Query of a search: the requested moment, in all spaces. */
  looking(): { asOf?: string };
  /** Query of a write: the requested space. A past moment cannot be written to. */
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

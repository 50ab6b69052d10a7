/**
 * Selects the daemon and the key: from the options, else from the environment, else the defaults of the command-line
 * tool.
 */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { errorOf } from "./errors.js";

/** How to connect to a daemon. Every option is optional. */
export interface ConnectOptions {
  /** `http://host:7700` or `https://host:7700`. Defaults to `BURROW_URL`, then to the daemon on this machine. */
  url?: string;
  /**
   * Defaults to `BURROW_API_KEY`, then `~/.config/burrow/key`, then, for the daemon on this machine, the admin key if
   * it is readable.
   */
  apiKey?: string;
  /** PEM file of a CA to trust instead of the system's CAs. Defaults to `BURROW_CA_FILE`. */
  caFile?: string;
  /** Maximum number of retries of a call that is safe to repeat, when its connection breaks. Defaults to 8. */
  retries?: number;
}

export interface Config {
  url: URL;
  apiKey: string | undefined;
  ca: string | undefined;
  retries: number;
}

const ADMIN_KEY = "/etc/burrow/admin.key";
/** With the delays between attempts, about ten seconds: longer than a restart of the daemon takes. */
const RETRIES = 8;

export function resolveConfig(options: ConnectOptions): Config {
  const text = options.url ?? (process.env["BURROW_URL"] || "http://127.0.0.1:7700");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol)) {
    throw errorOf({
      code: "invalid_request",
      message: `invalid daemon URL \`${text}\`: expected an http or https URL`,
      hint: "pass a URL such as `http://host:7700` or `https://host:7700`",
    });
  }
  const caFile = options.caFile ?? (process.env["BURROW_CA_FILE"] || undefined);
  return {
    url,
    apiKey: (options.apiKey ?? (process.env["BURROW_API_KEY"] || keyOnDisk(url)))?.trim(),
    ca: caFile === undefined ? undefined : readFileSync(caFile, "utf8"),
    retries: options.retries ?? RETRIES,
  };
}

/** An unreadable key file counts as a missing one: the daemon then answers that the key is missing. */
function keyOnDisk(url: URL): string | undefined {
  const config = process.env["XDG_CONFIG_HOME"] || join(homedir(), ".config");
  const files = [join(config, "burrow", "key")];
  if (isLoopback(url.hostname)) files.push(ADMIN_KEY);
  for (const file of files) {
    try {
      return readFileSync(file, "utf8");
    } catch {
      continue;
    }
  }
  return undefined;
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

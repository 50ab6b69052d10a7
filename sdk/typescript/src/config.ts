/** Which daemon, and with which key: what is given, else the environment, else what the command line tool would use. */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { errorOf } from "./errors.js";

/** How to reach a daemon. Everything is optional. */
export interface ConnectOptions {
  /** `http://host:7700` or `https://host:7700`; `BURROW_URL`, else this machine's. */
  url?: string;
  /** `BURROW_API_KEY`, else `~/.config/burrow/key`, else on this machine the admin's key where it can be read. */
  apiKey?: string;
  /** PEM file of a CA to trust instead of the system's; `BURROW_CA_FILE`. */
  caFile?: string;
  /** How often a call that is safe to repeat is repeated when its connection breaks; 8 unless given. */
  retries?: number;
}

export interface Config {
  url: URL;
  apiKey: string | undefined;
  ca: string | undefined;
  retries: number;
}

const ADMIN_KEY = "/etc/burrow/admin.key";
/** With the pauses between them about ten seconds: longer than a daemon takes to restart. */
const RETRIES = 8;

export function resolveConfig(options: ConnectOptions): Config {
  const text = options.url ?? (process.env["BURROW_URL"] || "http://127.0.0.1:7700");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol)) {
    throw errorOf({
      code: "invalid_request",
      message: `\`${text}\` is not an http or https address`,
      hint: "give the address as `http://host:7700` or `https://host:7700`",
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

/** A key that is not readable is as good as none: the daemon then says that one is missing. */
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

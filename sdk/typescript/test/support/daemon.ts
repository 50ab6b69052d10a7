/** A daemon for the tests, on a copy of the prepared pool. Its resources are removed at the end. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../../src/index.js";

/** Longer than any start or shutdown takes on a busy machine. */
const PATIENCE_MS = 120_000;
const POLL_MS = 25;

function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run scripts/test-sdk-typescript.sh`);
  return value;
}

export class Daemon {
  readonly #folder: string;
  readonly #pool: string;
  readonly #name: string;
  #child: ChildProcess | undefined;
  #listen = "127.0.0.1:0";
  url = "";
  key = "";

  private constructor() {
    this.#folder = mkdtempSync(join(tmpdir(), "burrow-sdk-ts-"));
    this.#name = basename(this.#folder);
    const pool = given("BURROW_TEST_POOL");
    this.#pool = join(pool, "daemons", this.#name);
    for (const part of ["images", "staged", "sandboxes"]) mkdirSync(join(this.#pool, part), { recursive: true });
    for (const image of readdirSync(join(pool, "code/images"))) {
      const [from, to] = [join(pool, "code/images", image), join(this.#pool, "images", image)];
      execFileSync("btrfs", ["-q", "subvolume", "snapshot", "-r", from, to]);
    }
    mkdirSync(join(this.#folder, "state"));
    for (const part of ["catalog.db", "catalog.db-wal"]) {
      const from = join(pool, "code", part);
      if (existsSync(from)) copyFileSync(from, join(this.#folder, "state", part));
    }
  }

  static async start(): Promise<Daemon> {
    const daemon = new Daemon();
    try {
      await daemon.#launch();
    } catch (error) {
      await daemon.remove();
      throw error;
    }
    return daemon;
  }

  /** Shuts the daemon down and starts it again at the same address. */
  async restart(): Promise<void> {
    await this.#end("SIGTERM");
    this.#listen = new URL(this.url).host;
    await this.#launch();
  }

  /** Shuts the daemon down and removes its resources. */
  async remove(): Promise<void> {
    if (this.url !== "") {
      const client = new Client({ url: this.url, apiKey: this.key });
      for (const sandbox of await client.list()) await sandbox.delete({ snapshots: true });
      for (const snapshot of await client.snapshots.list()) await client.snapshots.delete(snapshot.id);
      client.close();
    }
    await this.#end("SIGTERM");
    this.#sweep();
  }

  log(): string {
    return readFileSync(join(this.#folder, "log"), "utf8").split("\n").slice(-60).join("\n");
  }

  async #launch(): Promise<void> {
    const at = (name: string) => join(this.#folder, name);
    const criu = process.env["BURROW_CRIU"];
    const lines = [
      `listen = "${this.#listen}"`,
      `state_dir = "${at("state")}"`,
      `run_dir = "${at("run")}"`,
      `admin_key_file = "${at("admin.key")}"`,
      `sdk_dir = "${resolve("../../target/sdk")}"`,
      `[pool]\npath = "${this.#pool}"`,
      `[runtime]\nguest = "${given("BURROW_TEST_GUEST")}"\ncgroup = "${this.#name}"`,
      ...(criu && existsSync(criu) ? [`criu = "${criu}"`] : []),
    ];
    writeFileSync(at("config.toml"), lines.join("\n") + "\n");
    rmSync(at("run/address"), { force: true });
    const log = openSync(at("log"), "a");
    this.#child = spawn(given("BURROW_TEST_BURROW"), ["serve", "--config", at("config.toml")], {
      stdio: ["ignore", log, log],
      detached: true,
    });
    await this.#until("come up", () => existsSync(at("run/address")) && readFileSync(at("run/address"), "utf8").trim() !== "");
    this.url = `http://${readFileSync(at("run/address"), "utf8").trim()}`;
    this.key = readFileSync(at("admin.key"), "utf8").trim();
    await this.#until("be ready", async () => (await fetch(`${this.url}/readyz`)).ok);
  }

  async #until(what: string, done: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = Date.now() + PATIENCE_MS;
    while (!(await done())) {
      if (this.#child?.exitCode !== null) throw new Error(`the daemon exited during startup:\n${this.log()}`);
      if (Date.now() > deadline) throw new Error(`the daemon did not ${what}:\n${this.log()}`);
      await sleep(POLL_MS);
    }
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    const late = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    await ended;
    clearTimeout(late);
  }

  #sweep(): void {
    const run = join(this.#folder, "run");
    const mounts = readFileSync("/proc/mounts", "utf8").split("\n").map((line) => line.split(" "));
    for (const [, place] of mounts) if (place?.startsWith(run)) execFileSync("umount", ["-l", place]);
    for (const part of ["sandboxes", "staged", "images", "snapshots", "replacing", "volumes", "volume-snapshots"]) {
      const folder = join(this.#pool, part);
      for (const volume of existsSync(folder) ? readdirSync(folder) : []) {
        execFileSync("btrfs", ["-q", "property", "set", "-f", join(folder, volume), "ro", "false"]);
        execFileSync("btrfs", ["-q", "subvolume", "delete", join(folder, volume)]);
      }
    }
    for (const [, place, kind] of mounts) {
      const group = join(place ?? "", this.#name);
      if (kind?.startsWith("cgroup") && existsSync(group)) execFileSync("find", [group, "-depth", "-type", "d", "-delete"]);
    }
    rmSync(this.#pool, { recursive: true, force: true });
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

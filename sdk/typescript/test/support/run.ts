/** Starts a daemon, runs the given tests against it, and removes it: `node run.js FILE…`. */
import { spawn } from "node:child_process";
import { Daemon } from "./daemon.js";

const daemon = await Daemon.start();
const tests = spawn(process.execPath, ["--test", "--test-reporter=spec", ...process.argv.slice(2)], {
  stdio: "inherit",
  env: { ...process.env, BURROW_URL: daemon.url, BURROW_API_KEY: daemon.key },
});
const code = await new Promise<number>((resolve) => tests.on("exit", (exit) => resolve(exit ?? 1)));
if (code !== 0) console.error(`--- log of the daemon\n${daemon.log()}`);
await daemon.remove();
process.exitCode = code;

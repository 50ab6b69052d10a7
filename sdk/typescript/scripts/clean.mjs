// Removes build output, so that it contains no outdated files: `node scripts/clean.mjs FOLDER…`.
import { rm } from "node:fs/promises";

for (const folder of process.argv.slice(2)) {
  await rm(new URL(`../${folder}/`, import.meta.url), { recursive: true, force: true });
}

// Removes build output, so that what was renamed or deleted does not linger in it: `node scripts/clean.mjs FOLDER…`.
import { rm } from "node:fs/promises";

for (const folder of process.argv.slice(2)) {
  await rm(new URL(`../${folder}/`, import.meta.url), { recursive: true, force: true });
}

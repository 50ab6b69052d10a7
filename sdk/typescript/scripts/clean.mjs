// Removes build output, so that what was renamed or deleted does not linger in it: `node scripts/clean.mjs FOLDER`.
import { rm } from "node:fs/promises";

await rm(new URL(`../${process.argv[2]}/`, import.meta.url), { recursive: true, force: true });

// Copies a folder: `node scripts/copy.mjs FROM TO`. The tests compile everything once and run the files that are published.
import { cp } from "node:fs/promises";

const [from, to] = process.argv.slice(2);
await cp(new URL(`../${from}/`, import.meta.url), new URL(`../${to}/`, import.meta.url), { recursive: true });

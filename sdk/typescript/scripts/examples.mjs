// Extracts the examples from doc comments and guides, so that the compiler checks them and the tests run them: each block
// that begins with ```ts becomes doc-examples/NAME-LINE.ts.
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";

const root = new URL("../", import.meta.url);
const target = new URL("doc-examples/", root);

async function sources() {
  const files = await readdir(new URL("src/", root), { recursive: true });
  const ours = files.filter((name) => name.endsWith(".ts") && !name.includes("generated")).map((name) => `src/${name}`);
  return [...ours.sort(), "README.md", "../../docs/sdk-typescript.md"];
}

/** Yields the blocks with their first line. In comments, each line begins with an asterisk. */
function* blocks(text) {
  let block;
  for (const [at, raw] of text.split("\n").entries()) {
    const line = raw.replace(/^\s*\* ?/, "");
    if (block) {
      if (line.startsWith("```")) {
        yield block;
        block = undefined;
      } else {
        block.lines.push(line);
      }
    } else if (/^```ts\b/.test(line)) {
      block = { line: at + 1, run: !line.includes("no-run"), lines: [] };
    }
  }
}

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
for (const file of await sources()) {
  const text = await readFile(new URL(file, root), "utf8").catch(() => "");
  for (const { line, run, lines } of blocks(text)) {
    const folder = file.split("/").at(-2) ?? "";
    const name = `${folder}-${basename(file).replace(/\W/g, "-")}-${line}`.replace(/^-/, "");
    // `export {}` makes it a module even if it imports nothing.
    await writeFile(new URL(`${name}${run ? "" : ".only-compiled"}.ts`, target), `${lines.join("\n")}\nexport {};\n`);
  }
}

/** Runs every example of the doc comments and guides. Each must print what its `prints:` comments say. */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const folder = new URL("../../doc-examples/", import.meta.url);
const sources = new URL("../../../doc-examples/", import.meta.url);
const examples = readdirSync(folder).filter((name) => name.endsWith(".js") && !name.includes(".only-compiled"));

test("the documentation has examples", () => assert.ok(examples.length > 5, examples.join(", ")));

for (const name of examples) {
  test(`the example ${name.replace(/\.js$/, "")} prints what its comments say`, async (t) => {
    const source = readFileSync(new URL(name.replace(/\.js$/, ".ts"), sources), "utf8");
    const expected = [...source.matchAll(/\/\/ prints: (.*)$/gm)].map(([, text]) => text!.trim());
    const printed: string[] = [];
    t.mock.method(console, "log", (...parts: unknown[]) => printed.push(parts.map(String).join(" ").trim()));
    await import(new URL(name, folder).href);
    assert.deepEqual(printed, expected);
  });
}

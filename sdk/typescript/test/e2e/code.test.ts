import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, type CodeError, type CodeResult, InvalidRequestError, NotFoundError, Sandbox } from "../../src/index.js";

/** The image that runs code. `scripts/test-e2b.sh` builds it, because it takes minutes and more than a GiB. */
const image = "python-interpreter";
const there = await new Client().images.get(image).then(
  () => true,
  (error: unknown) => {
    if (error instanceof NotFoundError) return false;
    throw error;
  },
);
// The format that the summary of `scripts/test.sh` searches for.
if (!there) console.log(`skipped: typescript sdk: running code: the daemon has no image \`${image}\``);
const skip = there ? false : `no image \`${image}\``;

test("variables are kept, and the last line has a value", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  assert.equal((await s.runCode("x = 41", { check: true })).text, undefined);
  let heard = "";
  const run = await s.runCode("import sys; print('out'); print('err', file=sys.stderr); x + 1", {
    check: true,
    onStdout: (text) => (heard += text),
  });
  assert.deepEqual([run.text, run.stdout, run.stderr, heard], ["42", "out\n", "err\n", "out\n"]);
  assert.deepEqual((await s.contexts.list()).map(({ id, language, state }) => [id, language, state]), [["default", "python", "idle"]]);
  assert.equal((await s.runCode("import os; os.environ['WHOSE']", { env: { WHOSE: "yours" }, check: true })).text, "yours");
});

test("code that fails returns its error, and its context can still be used", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  const errors: CodeError[] = [];
  const run = await s.runCode("y = 7\n1 / 0", { onError: (error) => errors.push(error) });
  assert.equal(run.status, "error");
  assert.deepEqual(errors, [run.error]);
  assert.equal(errors[0]?.name, "ZeroDivisionError");
  assert.match(errors[0]!.traceback, /1 \/ 0/);
  assert.equal((await s.runCode("y", { check: true })).text, "7");
});

test("plots and tables are returned in every format", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  const shown: CodeResult[] = [];
  const plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nplt.title('growth')\nplt.show()";
  const run = await s.runCode(plot, { onResult: (result) => shown.push(result), check: true });
  assert.deepEqual(shown, run.results);
  const figure = shown.find(({ png }) => png)!;
  assert.deepEqual([...Buffer.from(figure.png!, "base64").subarray(1, 4)], [...Buffer.from("PNG")]);
  const chart = figure.chart as { type: string; title: string };
  assert.deepEqual([chart.type, chart.title], ["line", "growth"]);
  const table = await s.runCode("import pandas as pd; pd.DataFrame({'a_b': [1, 2], 'c': ['x', 'y']})", { check: true });
  assert.deepEqual(table.main?.data, { a_b: [1, 2], c: ["x", "y"] });
  assert.match(table.main?.html ?? "", /<table/);
});

test("timeouts, output limits, interrupts and aborts end only the run", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  const forever = "print('begun', flush=True)\nimport time\ntime.sleep(1000)";
  await s.runCode("kept = 'still there'", { check: true });
  assert.equal((await s.runCode(forever, { timeoutMs: 500 })).timedOut, true);
  assert.equal((await s.runCode("while True: print('x' * 1000)", { outputBytesMax: 100_000 })).status, "output_limit");
  const interrupted = await s.runCode(forever, { onStdout: () => void s.contexts.interrupt("default") });
  assert.equal(interrupted.status, "interrupted");
  const stop = new AbortController();
  await assert.rejects(s.runCode(forever, { signal: stop.signal, onStdout: () => stop.abort() }), { code: "aborted" });
  // Waits for the end of the aborted run, which would otherwise take a quarter of an hour.
  assert.equal((await s.runCode("kept", { check: true })).text, "still there");
});

test("contexts do not share variables", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  const one = await s.contexts.create({ cwd: "/tmp", env: { WHOSE: "one" } });
  const other = await s.contexts.create();
  await s.runCode("whose = 'mine'", { context: one, check: true });
  const here = await s.runCode("import os; (os.getcwd(), os.environ['WHOSE'], whose)", { context: one, check: true });
  assert.equal(here.text, "('/tmp', 'one', 'mine')");
  assert.equal((await s.runCode("whose", { context: other.id })).error?.name, "NameError");
  assert.equal((await s.contexts.restart(one)).id, one.id);
  assert.equal((await s.runCode("whose", { context: one })).status, "error");
  await s.contexts.remove(other);
  await assert.rejects(s.contexts.get(other), NotFoundError);
  await assert.rejects(s.runCode("1", { language: "no-such-language" }), InvalidRequestError);
});

test("variables survive sleep and are forked", { skip }, async () => {
  await using s = await Sandbox.create({ image });
  await s.runCode("n = 1", { check: true });
  await s.sleep();
  assert.equal((await s.runCode("n += 1; n", { check: true })).text, "2");
  const [child] = await s.fork(1);
  await using forked = child!;
  assert.equal((await forked.runCode("n += 10; n", { check: true })).text, "12");
  assert.equal((await s.runCode("n", { check: true })).text, "2");
});

import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { BrokenError, type CodeContext, CodeRunError, InvalidRequestError, type RunCodeOptions, type Sandbox, UnavailableError } from "../../src/index.js";
import { answering, json, refused } from "../support/server.js";

const wireContext = { id: "ctx1", language: "python", cwd: "/home/user", state: "idle", execution_count: 4 };
const context: CodeContext = { id: "ctx1", language: "python", cwd: "/home/user", state: "idle", executionCount: 4 };
const end = { kind: "end", status: "ok", execution_count: 3, duration_ms: 12 };

type Line = Record<string, unknown>;

interface Interpreter extends AsyncDisposable {
  sandbox: Sandbox;
  asked: { what: string; body: unknown }[];
}

/** A daemon whose runs are answered by `say`, which ends the response or leaves it open. */
async function interpreting(say: (response: ServerResponse) => void): Promise<Interpreter> {
  const asked: Interpreter["asked"] = [];
  const daemon = await answering((request, response, body) => {
    const url = request.url!.replace("/prefix/v1/sandboxes", "").split("?")[0]!;
    asked.push({ what: `${request.method} ${url}`, body: body === "" ? undefined : JSON.parse(body) });
    if (url.endsWith("/run")) say(response);
    else if (request.method === "DELETE" || url.endsWith("/interrupt")) response.writeHead(204).end();
    else if (url === "") json(response, 201, { id: "sbx1", state: "running" });
    else json(response, 200, request.method === "GET" && url.endsWith("/contexts") ? { items: [wireContext] } : wireContext);
  });
  return { sandbox: await daemon.client.create(), asked, [Symbol.asyncDispose]: () => daemon[Symbol.asyncDispose]() };
}

function write(response: ServerResponse, line: Line): void {
  response.write(JSON.stringify(line) + "\n");
}

const lines =
  (...all: Line[]) =>
  (response: ServerResponse): void => {
    for (const line of all) write(response, line);
    response.end();
  };

/** A run that does not end, and reports when the client stops reading. */
function endless(): { say: (response: ServerResponse) => void; hungUp: Promise<void> } {
  let told: () => void;
  const hungUp = new Promise<void>((resolve) => (told = resolve));
  const say = (response: ServerResponse) => {
    response.on("close", () => told());
    write(response, { kind: "stdout", text: "begun" });
  };
  return { say, hungUp };
}

test("the events of a run are combined into its result", async () => {
  await using daemon = await interpreting(
    lines(
      { kind: "stdout", text: "one " },
      { kind: "stderr", text: "careful" },
      { kind: "result", main: false, png: "iVBO", chart: { type: "line", x_label: "t" } },
      { kind: "of-the-future", text: "not for us" },
      { kind: "stdout", text: "two\n" },
      { kind: "result", main: true, text: "42", data: { a_b: [1, null] }, json: { c_d: 1 }, extra: { "x/y": { e_f: 2 } } },
      end,
    ),
  );
  const run = await daemon.sandbox.runCode("x", { timeoutMs: 1500, env: { SOME_name: "a_b" }, outputBytesMax: 4096, check: true });
  assert.deepEqual(daemon.asked.at(-1), {
    what: "POST /sbx1/contexts/default/run",
    body: { code: "x", timeout_ms: 1500, env: { SOME_name: "a_b" }, output_bytes_max: 4096 },
  });
  assert.deepEqual([run.status, run.ok, run.stdout, run.stderr, run.error], ["ok", true, "one two\n", "careful", undefined]);
  assert.deepEqual([run.executionCount, run.durationMs, run.text], [3, 12, "42"]);
  // The contents of a result are user data and keep their names.
  assert.deepEqual(run.results, [
    { main: false, png: "iVBO", chart: { type: "line", x_label: "t" } },
    { main: true, text: "42", data: { a_b: [1, null] }, json: { c_d: 1 }, extra: { "x/y": { e_f: 2 } } },
  ]);
  assert.equal(run.main, run.results[1]);
});

test("code that fails returns its error", async () => {
  const error = { name: "ZeroDivisionError", value: "division by zero", traceback: "line 1\n" };
  await using daemon = await interpreting(lines({ kind: "error", ...error }, { ...end, status: "error" }));
  const run = await daemon.sandbox.runCode("1 / 0");
  assert.deepEqual([run.ok, run.text, run.error], [false, undefined, error]);
  await assert.rejects(daemon.sandbox.runCode("1 / 0", { check: true }), (thrown: CodeRunError) => {
    assert.ok(thrown instanceof CodeRunError);
    assert.match(thrown.message, /ZeroDivisionError: division by zero/);
    assert.deepEqual(thrown.run.error, error);
    return true;
  });
});

test("a run that was ended reports the reason", async () => {
  for (const status of ["interrupted", "timed_out", "output_limit", "kernel_died"]) {
    await using daemon = await interpreting(lines({ kind: "end", status, execution_count: null, duration_ms: 1 }));
    const run = await daemon.sandbox.runCode("x");
    assert.deepEqual([run.status, run.ok, run.timedOut, run.executionCount], [status, false, status === "timed_out", undefined]);
    assert.throws(() => run.check(), { code: "code_failed", message: new RegExp(status.replace("_", " ")) });
  }
});

test("callbacks are called while the code runs", async () => {
  const said: Line[] = [
    { kind: "stdout", text: "out" },
    { kind: "stderr", text: "err" },
    { kind: "result", main: true, text: "value" },
    { kind: "error", name: "E", value: "v", traceback: "t" },
    { ...end, status: "error" },
  ];
  let next = (): void => undefined;
  await using daemon = await interpreting((response) => {
    // The code continues only after the previous callback was called.
    next = () => {
      write(response, said.shift()!);
      if (said.length === 0) response.end();
    };
    next();
  });
  const heard: unknown[] = [];
  const hear = (value: unknown) => {
    heard.push(value);
    next();
  };
  const run = await daemon.sandbox.runCode("x", { onStdout: hear, onStderr: hear, onResult: hear, onError: hear });
  assert.deepEqual(heard, ["out", "err", run.main, run.error]);
});

test("an image of seven mebibytes is returned completely", async () => {
  const png = "ab".repeat(7 << 19);
  await using daemon = await interpreting(lines({ kind: "result", main: true, png }, end));
  const { results } = await daemon.sandbox.runCode("x");
  assert.ok(results[0]?.png === png);
});

test("a callback that throws, and an abort, end the run", async () => {
  const { say, hungUp } = endless();
  await using daemon = await interpreting(say);
  const onStdout = () => {
    throw new Error("enough");
  };
  await assert.rejects(daemon.sandbox.runCode("x", { onStdout }), /enough/);
  await hungUp;
  const other = endless();
  await using second = await interpreting(other.say);
  const stop = new AbortController();
  await assert.rejects(second.sandbox.runCode("x", { signal: stop.signal, onStdout: () => stop.abort() }), { code: "aborted" });
  await other.hungUp;
  await assert.rejects(second.sandbox.runCode("x", { signal: stop.signal }), { code: "aborted" });
  assert.equal(second.asked.filter(({ what }) => what.endsWith("/run")).length, 1, "what was aborted before is not begun");
});

test("a run is sent once, and a broken connection is an error", async () => {
  const begun = { kind: "stdout", text: "begun" };
  await using daemon = await interpreting(lines(begun));
  await assert.rejects(daemon.sandbox.runCode("x"), BrokenError);
  await using cut = await interpreting((response) => {
    write(response, begun);
    response.socket!.end();
  });
  await assert.rejects(cut.sandbox.runCode("x"), BrokenError);
  await using gone = await interpreting(lines(begun, { kind: "broken", ...refused("guest_unreachable") }));
  await assert.rejects(gone.sandbox.runCode("x"), UnavailableError);
  for (const { asked } of [daemon, cut, gone]) assert.equal(asked.filter(({ what }) => what.endsWith("/run")).length, 1);
  await using without = await interpreting((response) => json(response, 422, refused("unprocessable", "take another image")));
  await assert.rejects(without.sandbox.runCode("x"), { name: "InvalidRequestError", hint: "take another image" });
});

test("code runs in the selected context or language", async () => {
  await using daemon = await interpreting(lines(end));
  const table: [RunCodeOptions, string][] = [
    [{}, "default"],
    [{ language: "python" }, "default"],
    [{ language: "r" }, "default-r"],
    [{ context: "ctx/1" }, "ctx%2F1"],
    [{ context }, "ctx1"],
  ];
  for (const [options, id] of table) {
    await daemon.sandbox.runCode("x", options);
    assert.deepEqual(daemon.asked.at(-1), { what: `POST /sbx1/contexts/${id}/run`, body: { code: "x" } });
  }
  await assert.rejects(daemon.sandbox.runCode("x", { context, language: "r" }), InvalidRequestError);
});

test("contexts are created, listed and removed", async () => {
  await using daemon = await interpreting(lines(end));
  const { contexts } = daemon.sandbox;
  assert.deepEqual(await contexts.create({ language: "r", cwd: "/srv", env: { SOME_name: "b" } }), context);
  assert.deepEqual(await contexts.list(), [context]);
  assert.deepEqual(await contexts.get("ctx1"), context);
  await contexts.interrupt(context);
  assert.deepEqual(await contexts.restart(context), context);
  await contexts.remove(context);
  assert.deepEqual(daemon.asked.slice(1), [
    { what: "POST /sbx1/contexts", body: { language: "r", cwd: "/srv", env: { SOME_name: "b" } } },
    { what: "GET /sbx1/contexts", body: undefined },
    { what: "GET /sbx1/contexts/ctx1", body: undefined },
    { what: "POST /sbx1/contexts/ctx1/interrupt", body: undefined },
    { what: "POST /sbx1/contexts/ctx1/restart", body: undefined },
    { what: "DELETE /sbx1/contexts/ctx1", body: undefined },
  ]);
});

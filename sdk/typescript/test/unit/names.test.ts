import assert from "node:assert/strict";
import { test } from "node:test";
import { fromWire, toWire } from "../../src/names.js";

test("names are converted in both directions, and data is not changed", () => {
  const ours = { ramMib: 1, limits: [{ cpuMillis: 2 }], env: { MY_var: "a_b", ramMib: "x" }, metadata: { ram_mib: { cpu_millis: 1 } }, name: null };
  const wire = { ram_mib: 1, limits: [{ cpu_millis: 2 }], env: { MY_var: "a_b", ramMib: "x" }, metadata: { ram_mib: { cpu_millis: 1 } }, name: null };
  assert.deepEqual(toWire(ours), wire);
  assert.deepEqual(fromWire(wire), ours);
});

test("unknown names are not converted, including those of a policy", () => {
  const policy = { egress: { rules: [{ budget: { requestsPerMinute: 1, bytesOutPerDay: "1MB" } }] }, egressAuth: [{ authRef: "x" }] };
  assert.deepEqual(toWire(policy), policy);
  assert.deepEqual(fromWire({ not_in_the_document: 1 }), { not_in_the_document: 1 });
  assert.deepEqual(toWire({ constructor: 1, __x: 2 }), { constructor: 1, __x: 2 });
});

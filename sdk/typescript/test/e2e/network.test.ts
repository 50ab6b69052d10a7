import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Client, Sandbox, UnavailableError } from "../../src/index.js";

const serve = "cd /srv && echo page > index.html && exec python3 -m http.server 8000 --bind 127.0.0.1";

test("npm installs the package that the daemon serves", () => {
  const folder = mkdtempSync(join(tmpdir(), "burrow-npm-"));
  try {
    execFileSync("npm", ["install", "--silent", "--prefix", folder, `${process.env["BURROW_URL"]}/sdk/typescript`]);
    const installed = JSON.parse(readFileSync(join(folder, "node_modules/burrow-sandbox/package.json"), "utf8"));
    assert.equal(installed.version, JSON.parse(readFileSync("package.json", "utf8")).version);
    const check = "const { Sandbox } = await import('burrow-sandbox'); if (!Sandbox.create) process.exit(1)";
    execFileSync("node", ["--input-type=module", "-e", check], { cwd: folder });
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a server in a sandbox is reached by a link, by a connection and by a forwarded port", async () => {
  await using s = await Sandbox.create();
  await s.spawn(serve);
  const port = await s.ports.wait(8000, { timeoutMs: 60_000 });
  assert.equal(port.published, false);
  const url = await s.getUrl(8000, { expiresSeconds: 60 });
  assert.match(url, /8000/);
  const request = "GET /index.html HTTP/1.0\r\n\r\n";
  const direct = await s.ports.connect(8000);
  direct.end(request);
  assert.match(await text(direct), /200 OK[\s\S]*page\n$/);
  {
    await using forwarded = await s.ports.forward(8000);
    const local = connect(forwarded.port, "127.0.0.1");
    local.end(request);
    assert.match(await text(local), /200 OK[\s\S]*page\n$/);
  }
  await s.ports.publish(8000);
  assert.equal((await s.ports.list()).find((one) => one.port === 8000)?.published, true);
  const client = new Client();
  const page = await fetch(`${process.env["BURROW_URL"]}/p/${s.id}/8000/index.html`);
  assert.equal(await page.text(), "page\n");
  client.close();
  await s.ports.unpublish(8000);
  await assert.rejects(s.ports.connect(8001), UnavailableError);
});

test("one connection transfers a mebibyte in each direction", async () => {
  await using s = await Sandbox.create();
  const echo = "import socket\ns=socket.create_server(('127.0.0.1',9000));c,_=s.accept()\nwhile True:\n d=c.recv(65536)\n if not d: break\n c.sendall(d)\nc.close()";
  await s.files.write("/srv/echo.py", echo);
  await s.spawn("python3 /srv/echo.py");
  await s.ports.wait(9000, { timeoutMs: 60_000 });
  const connection = await s.ports.connect(9000);
  const sent = "0123456789abcdef".repeat(1 << 16);
  connection.end(sent);
  assert.equal((await text(connection)) === sent, true);
});

test("egress rules are added, explained and removed", async () => {
  await using s = await Sandbox.create();
  assert.equal((await s.egress.explain("https://www.example.com/")).allowed, false);
  await s.egress.allow(["*.example.com", "tcp://db.example.net:5432"]);
  assert.equal((await s.egress.explain("https://www.example.com/")).allowed, true);
  assert.equal((await s.egress.status()).rules.length, 2);
  await s.egress.deny("*.example.com");
  assert.equal((await s.egress.explain("https://www.example.com/")).allowed, false);
  const refused = await s.run("getent hosts www.example.com");
  assert.notEqual(refused.exitCode, 0);
  // The log entry is written after the refusal.
  for await (const entry of s.egress.follow({ denied: true })) {
    if (entry.host.startsWith("www.example.com")) break;
  }
  assert.ok((await s.egress.log({ denied: true })).some(({ host }) => host.startsWith("www.example.com")));
  await s.egress.setMode("none");
  assert.equal((await s.egress.status()).network.mode, "none");
  assert.deepEqual(await s.egress.approvals(), []);
});

test("a secret is declared, used by a rule, rotated and removed, and never shown", async () => {
  const { secrets } = new Client();
  const set = await secrets.set("sdk-key", {
    value: "sk-very-secret-value",
    allow: [{ host: "api.example.com", methods: ["POST"], paths: ["/v1/**"] }],
    slot: { kind: "header", name: "Authorization", format: "Bearer {}" },
    placeholder: { env: "SDK_KEY", prefix: "sk-" },
  });
  assert.equal(set.version, 1);
  await using s = await Sandbox.create();
  await s.egress.allow("api.example.com", { secret: "sdk-key" });
  const explained = await s.egress.explain("https://api.example.com/v1/x", { method: "POST" });
  assert.equal(explained.request?.secret, "sdk-key");
  assert.match((await s.run("echo $SDK_KEY")).stdout, /^sk-/);
  assert.equal((await secrets.rotate("sdk-key", "sk-another-secret-value")).version, 2);
  assert.deepEqual((await secrets.get("sdk-key")).usedBy.map(({ id }) => id), [s.id]);
  await assert.rejects(secrets.remove("sdk-key"), { code: "conflict" });
  await secrets.remove("sdk-key", { force: true });
  assert.ok(!JSON.stringify(await secrets.list()).includes("sdk-key"));
});

test("apply replaces all rules of a policy, and keeps its names", async () => {
  await using s = await Sandbox.create();
  await s.egress.apply({
    egress: { rules: [{ host: "api.example.org", methods: ["GET"], budget: { requestsPerMinute: 5, bytesOutPerDay: "1MB" } }], allow: ["example.com"] },
  });
  const [rule] = (await s.egress.status()).requests ?? [];
  assert.equal(rule?.budget?.requestsPerMinute, 5);
});

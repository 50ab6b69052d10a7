// computesdk: a sandbox of its E2B provider, with commands, files, ports and snapshots.
import assert from 'node:assert/strict'
import { compute } from 'computesdk'
import { e2b } from '@computesdk/e2b'

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })

const sandbox = await compute.sandbox.create({ timeout: 600_000, envs: { GIVEN: 'yes' } })
try {
  const done = await sandbox.runCommand('echo out; echo err >&2; exit 3')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 3])
  const placed = await sandbox.runCommand('printf "%s %s %s" "$PWD" "$GIVEN" "$ONCE"', { cwd: '/tmp', env: { ONCE: 'now' } })
  assert.equal(placed.stdout.split(' ')[0], '/tmp')
  assert.equal(placed.stdout.split(' ')[1], 'yes')

  await sandbox.filesystem.mkdir('/home/user/made')
  await sandbox.filesystem.writeFile('/home/user/made/file.txt', 'content ä')
  assert.equal(await sandbox.filesystem.readFile('/home/user/made/file.txt'), 'content ä')
  assert.deepEqual((await sandbox.filesystem.readdir('/home/user/made')).map((one) => one.name), ['file.txt'])
  assert.equal(await sandbox.filesystem.exists('/home/user/made/file.txt'), true)
  await sandbox.filesystem.remove('/home/user/made/file.txt')
  assert.equal(await sandbox.filesystem.exists('/home/user/made/file.txt'), false)

  await sandbox.runCommand('python3 -m http.server 8000', { background: true })
  const url = await sandbox.getUrl({ port: 8000 })
  assert.match(url, new RegExp(`^https://8000-${sandbox.sandboxId}\\.`))

  const again = await compute.sandbox.getById(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  const listed = await compute.sandbox.list()
  assert.ok(listed.some((one) => one.sandboxId === sandbox.sandboxId))

  await sandbox.runCommand('echo kept > /home/user/kept')
  const snapshot = await compute.snapshot.create(sandbox.sandboxId, { name: 'computesdk' })
  const copy = await compute.sandbox.create({ snapshotId: snapshot.id, timeout: 600_000 })
  try {
    assert.equal((await copy.runCommand('cat /home/user/kept')).stdout, 'kept\n')
  } finally {
    await copy.destroy()
    await copy.getInstance().deleteSnapshot?.(snapshot.id)
  }
} finally {
  await sandbox.destroy()
}
assert.equal(await compute.sandbox.getById(sandbox.sandboxId), null)
console.log('ok computesdk')

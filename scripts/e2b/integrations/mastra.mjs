// mastra: a workspace with an E2B sandbox: processes, files, pause and resume, and the template that the library builds.
import assert from 'node:assert/strict'
import { Workspace } from '@mastra/core/workspace'
import { E2BSandbox, createDefaultMountableTemplate } from '@mastra/e2b'
import { Template } from 'e2b'

const sandbox = new E2BSandbox({ id: `mastra-test-${process.pid}`, timeout: 600_000, env: { GIVEN: 'yes' } })
const workspace = new Workspace({ sandbox })
await workspace.init()
try {
  // Without a template, the library builds one with its packages and reuses it later.
  assert.ok(await Template.exists(createDefaultMountableTemplate().id))
  assert.equal((await sandbox.executeCommand('which', ['s3fs'])).exitCode, 0)

  const done = await sandbox.executeCommand('sh', ['-c', 'echo "$GIVEN"; echo err >&2'])
  assert.deepEqual([done.stdout, done.stderr, done.exitCode, done.success], ['yes\n', 'err\n', 0, true])
  const failed = await sandbox.executeCommand('sh', ['-c', 'exit 3'])
  assert.deepEqual([failed.exitCode, failed.success], [3, false])

  await sandbox.writeFiles([
    { path: '/home/user/text', content: 'ä' },
    { path: '/home/user/bytes', content: Buffer.from([0, 255]) },
  ])
  assert.equal(await sandbox.e2b.files.read('/home/user/text'), 'ä')
  assert.deepEqual([...(await sandbox.e2b.files.read('/home/user/bytes', { format: 'bytes' }))], [0, 255])

  const handle = await sandbox.processes.spawn('read line; echo "got $line"; sleep 600')
  await handle.sendStdin('input\n')
  while (!handle.stdout.includes('got input')) await new Promise((resolve) => setTimeout(resolve, 50))
  assert.ok((await sandbox.processes.list()).some((one) => one.pid === handle.pid))

  // A pause keeps the processes; the next start finds the sandbox by its labels.
  const id = sandbox.e2b.sandboxId
  await sandbox.stop()
  const again = new E2BSandbox({ id: sandbox.id, timeout: 600_000 })
  await again.start()
  assert.equal(again.e2b.sandboxId, id)
  assert.ok((await again.processes.list()).some((one) => one.pid === handle.pid))
  const other = await again.processes.get(handle.pid)
  assert.equal(await other.kill(), true)
  assert.match(await again.networking.getPortUrl(3000), new RegExp(`^https://3000-${id}\\.`))
  await again.destroy()
} finally {
  await sandbox.destroy()
}
console.log('ok mastra')
// Open keep-alive connections would prevent the process from exiting.
process.exit(0)

// One scenario for every version of E2B's npm client, against a real daemon. Same output format as scenario.py.
// With `E2B_DOMAIN` set, the checks that depend on the address of the daemon are repeated by host name and over TLS.

import { createHash } from 'node:crypto'
import dns from 'node:dns'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { tmpdir } from 'node:os'
import * as e2b from 'e2b'
import * as calls from './calls.mjs'

const { Sandbox, Template, CommandExitError, TimeoutError, NotFoundError, AuthenticationError, BuildError } = e2b
const failed = []

class Absent extends Error {}

function assert(fact, said) {
  if (!fact) throw new Error(`assertion failed: ${said ?? ''}`)
}

// Ignores the order of fields in objects.
function text(value) {
  const plain = value && typeof value === 'object' && !Array.isArray(value)
  return JSON.stringify(plain ? Object.entries(value).sort() : value)
}

function same(left, right) {
  const [a, b] = [text(left), text(right)]
  if (a !== b) throw new Error(`${a} is not ${b}`)
}

async function until(what, look) {
  const end = Date.now() + 60_000
  while (Date.now() < end) {
    if (await look()) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`timed out waiting for ${what}`)
}

async function refused(kind, work) {
  try {
    await work()
  } catch (error) {
    assert(error instanceof kind, `${error?.name}: ${error?.message}`)
    return error
  }
  throw new Error(`${kind.name} was not thrown`)
}

async function check(name, work) {
  try {
    await work()
    console.log(`ok ${name}`)
  } catch (error) {
    if (error instanceof Absent) return console.log(`absent ${name}`)
    failed.push(name)
    console.log(`FAILED ${name}: ${error?.name}: ${error?.message}`)
    console.error(error)
  }
}

function fetchFrom(host, path, headers = {}) {
  const base = new URL(process.env.E2B_API_URL)
  return new Promise((resolve, reject) => {
    const options = { host: base.hostname, port: base.port, path, headers: { host, ...headers } }
    const request = http.get(options, (answer) => {
      let text = ''
      answer.on('data', (piece) => (text += piece))
      answer.on('end', () => resolve({ status: answer.statusCode, text }))
    })
    request.on('error', reject)
  })
}

async function removeTemplate(name) {
  const headers = { 'X-API-Key': process.env.E2B_API_KEY }
  const answer = await fetch(`${process.env.E2B_API_URL}/templates/${name}`, { method: 'DELETE', headers })
  same(answer.status, 204)
}

async function serve(sandbox) {
  await sandbox.files.write('/tmp/web/index.html', 'served')
  await sandbox.commands.run('cd /tmp/web && exec python3 -m http.server 8000', { background: true, timeoutMs: 0 })
}

// Returns the status of a request to the server inside, by the host name that the client returns, once it answers.
async function asked(sandbox, headers) {
  let answer
  await until('an answer from inside', async () => {
    answer = await fetchFrom(sandbox.getHost(8000), '/index.html', headers)
    return answer.status === 200 || answer.status === 403
  })
  assert(answer.status !== 200 || answer.text === 'served', answer.text)
  return answer.status
}

async function byName() {
  // Not every resolver resolves names below `localhost` to this machine.
  const usual = dns.lookup
  dns.lookup = (host, ...rest) => usual(host.endsWith('.localhost') ? '127.0.0.1' : host, ...rest)
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, network: { allowPublicTraffic: true } })
  try {
    same(sandbox.getHost(8000), `8000-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)
    same((await sandbox.commands.run('echo by name')).stdout, 'by name\n')
    await sandbox.files.write('/tmp/a', 'b')
    same(await sandbox.files.read('/tmp/a'), 'b')
    same(await (await fetch(await sandbox.downloadUrl('/tmp/a'))).text(), 'b')
    await serve(sandbox)
    await until('the server inside', async () => {
      const answer = await fetch(`https://${sandbox.getHost(8000)}/index.html`)
      return (await answer.text()) === 'served'
    })
  } finally {
    assert(await sandbox.kill())
  }
  assert(!(await sandbox.isRunning()))
}

// Sends one message to the MCP server of a sandbox, and returns the status and the result.
async function askMcp(sandbox, token, method, params) {
  const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', Authorization: `Bearer ${token}` }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const answer = await fetch(sandbox.getMcpUrl(), { method: 'POST', headers, body })
  const said = await answer.text()
  const event = said.split('\n').find((line) => line.startsWith('data: '))
  return [answer.status, answer.ok ? JSON.parse(event?.slice(6) ?? said).result : said]
}

async function mcpByName() {
  const sandbox = await Sandbox.create({ timeoutMs: 600_000, mcp: { time: {} } })
  try {
    same(sandbox.getMcpUrl(), `https://50005-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}/mcp`)
    const token = await sandbox.getMcpToken()
    const run = { name: 'sandbox_run', arguments: { command: 'echo from $((40 + 2))' } }
    const [status, said] = await askMcp(sandbox, token, 'tools/call', run)
    assert(status === 200 && !said.isError && JSON.stringify(said).includes('from 42'), `${status} ${JSON.stringify(said)}`)
    same((await askMcp(sandbox, `${token}x`, 'tools/list', {}))[0], 401)
  } finally {
    await sandbox.kill()
  }
}

if (process.env.E2B_DOMAIN) {
  await check('domain mode, TLS', byName)
  await check('domain mode, TLS: mcp', mcpByName)
  process.exit(failed.length ? 1 : 0)
}

const metadata = { who: 'scenario', said: 'ä = b & c%20' }
// Only the newest tested client must have no method that this scenario does not call.
const isNewest = JSON.parse(await readFile('node_modules/e2b/package.json', 'utf8')).version === process.env.E2B_NEWEST
if (isNewest) calls.record()
const sandbox = await Sandbox.create({ timeoutMs: 600_000, metadata, envs: { SET: 'by-create' } })
if (isNewest) await calls.recordInside(sandbox)

await check('info', async () => {
  const info = await sandbox.getInfo()
  same(info.sandboxId, sandbox.sandboxId)
  same(info.metadata, metadata)
  same(info.state, 'running')
  assert(await sandbox.isRunning())
})

await check('list, filters, pages', async () => {
  const found = await Sandbox.list({ query: { metadata: { said: metadata.said } } }).nextItems()
  same(found.map((one) => one.sandboxId), [sandbox.sandboxId])
  const listed = async (query) => (await Sandbox.list({ query }).nextItems()).map((one) => one.sandboxId)
  same(await listed({ state: ['running'] }), [sandbox.sandboxId])
  same(await listed({ state: ['paused'] }), [])
  const other = await Sandbox.create({ timeoutMs: 600_000 })
  try {
    const pages = Sandbox.list({ limit: 1 })
    const seen = []
    while (pages.hasNext) seen.push(...(await pages.nextItems()).map((one) => one.sandboxId))
    same(seen, [other.sandboxId, sandbox.sandboxId])
  } finally {
    await other.kill()
  }
})

await check('timeout, connect', async () => {
  await sandbox.setTimeout(1_200_000)
  const left = (await sandbox.getInfo()).endAt.getTime() - Date.now()
  assert(left > 1_100_000 && left < 1_300_000, left)
  const again = await Sandbox.connect(sandbox.sandboxId)
  same((await again.commands.run('echo here')).stdout, 'here\n')
})

await check('metrics', async () => {
  const found = await sandbox.getMetrics()
  assert(found.length > 0 && found[0].memTotal > 0)
  await until('a history', async () => (await sandbox.getMetrics()).length > 1)
  same(await sandbox.getMetrics({ end: new Date(Date.now() - 2 * 3600_000) }), [])
})

await check('commands: run', async () => {
  const done = await sandbox.commands.run('echo out; echo err >&2; whoami; pwd')
  same([done.stdout, done.stderr, done.exitCode], ['out\nuser\n/home/user\n', 'err\n', 0])
  const error = await refused(CommandExitError, () => sandbox.commands.run('exit 7'))
  same(error.exitCode, 7)
})

await check('commands: envs, cwd, user', async () => {
  const options = { envs: { A: 'b c' }, cwd: '/tmp', user: 'root' }
  const done = await sandbox.commands.run('echo $A $SET; pwd; whoami', options)
  same(done.stdout, 'b c by-create\n/tmp\nroot\n')
})

await check('commands: background, list, kill', async () => {
  const handle = await sandbox.commands.run('sleep 1000', { background: true })
  assert((await sandbox.commands.list()).some((one) => one.pid === handle.pid))
  assert(await handle.kill())
  await refused(CommandExitError, () => handle.wait())
  await until('its end', async () => !(await sandbox.commands.list()).some((one) => one.pid === handle.pid))
})

await check('commands: disconnect, connect', async () => {
  const command = 'sleep 1; read line; echo got $line'
  const handle = await sandbox.commands.run(command, { background: true, stdin: true })
  await handle.disconnect()
  const again = await sandbox.commands.connect(handle.pid)
  await sandbox.commands.sendStdin(handle.pid, 'word\n')
  same((await again.wait()).stdout, 'got word\n')
})

await check('commands: stdin', async () => {
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'one\n')
  if (!sandbox.commands.closeStdin) {
    await handle.kill()
    throw new Absent()
  }
  await sandbox.commands.closeStdin(handle.pid)
  same((await handle.wait()).stdout, 'one\n')
})

await check('commands: handles', async () => {
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  if (!handle.sendStdin) {
    await handle.kill()
    throw new Absent()
  }
  await handle.sendStdin('by its handle\n')
  await handle.closeStdin()
  same((await handle.wait()).stdout, 'by its handle\n')
})

await check('commands: timeout', async () => {
  await refused(TimeoutError, () => sandbox.commands.run('exec sleep 4242', { timeoutMs: 1_000 }))
  await until('its end', async () => {
    return (await sandbox.commands.run("pgrep -x -f 'sleep 4242' || echo none")).stdout === 'none\n'
  })
})

await check('commands: 10 MiB of output', async () => {
  const line = '0123456789abcdef'.repeat(4) + '\n'
  const count = Math.floor((10 << 20) / line.length)
  const seen = createHash('sha256')
  const onStdout = (text) => void seen.update(text)
  await sandbox.commands.run(`yes ${line.trim()} | head -n ${count}`, { onStdout, timeoutMs: 300_000 })
  same(seen.digest('hex'), createHash('sha256').update(line.repeat(count)).digest('hex'))
})

await check('pty', async () => {
  let text = ''
  const onData = (data) => void (text += new TextDecoder().decode(data))
  const handle = await sandbox.pty.create({ cols: 100, rows: 30, onData })
  await sandbox.pty.resize(handle.pid, { cols: 120, rows: 40 })
  await sandbox.pty.sendInput(handle.pid, new TextEncoder().encode('stty size; exit 3\n'))
  await refused(CommandExitError, () => handle.wait())
  assert(text.includes('40 120'), text)
})

await check('pty: connect, kill', async () => {
  const first = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  await first.disconnect()
  let text = ''
  const again = await sandbox.pty.connect(first.pid, { onData: (data) => void (text += new TextDecoder().decode(data)) })
  await sandbox.pty.sendInput(first.pid, new TextEncoder().encode('echo from-$((1+1)); exit\n'))
  await again.wait()
  assert(text.includes('from-2'), text)
  const other = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert(await sandbox.pty.kill(other.pid))
  await until('its end', async () => !(await sandbox.pty.kill(other.pid)))
})

await check('git', async () => {
  const { git } = sandbox
  if (!git?.getConfig) throw new Absent()
  const [here, there] = ['/home/user/work', '/home/user/remote.git']
  await git.init(there, { bare: true, initialBranch: 'main' })
  await git.init(here, { initialBranch: 'main' })
  await git.configureUser('A B', 'a@example.com')
  same(await git.getConfig('user.email'), 'a@example.com')
  await git.setConfig('core.abbrev', '12', { scope: 'local', path: here })
  same(await git.getConfig('core.abbrev', { scope: 'local', path: here }), '12')
  await sandbox.files.write(`${here}/one`, '1')
  same((await git.status(here)).fileStatus.map((one) => one.name), ['one'])
  await git.add(here)
  await git.commit(here, 'first')
  await git.createBranch(here, 'side')
  await git.checkoutBranch(here, 'main')
  const { currentBranch, branches } = await git.branches(here)
  same([currentBranch, ...branches.sort()], ['main', 'main', 'side'])
  await git.deleteBranch(here, 'side', { force: true })
  await git.remoteAdd(here, 'origin', there)
  same(await git.remoteGet(here, 'origin'), there)
  await git.push(here, { remote: 'origin', branch: 'main' })
  const other = '/home/user/other'
  await sandbox.commands.run(`git clone -q ${there} ${other} && cd ${other} && echo 2 > two && git add two && git commit -qm second && git push -q`)
  await git.pull(here, { remote: 'origin', branch: 'main' })
  same(await sandbox.files.read(`${here}/two`), '2\n')
  await sandbox.files.write(`${here}/one`, 'changed')
  await git.add(here)
  await git.reset(here, { paths: ['one'] })
  await git.restore(here, { paths: ['one'] })
  same(await sandbox.files.read(`${here}/one`), '1')
  assert((await git.status(here)).isClean)
})

await check('files: read, write', async () => {
  const written = await sandbox.files.write('notes/a b.txt', 'häl\nlo')
  same(written.path, '/home/user/notes/a b.txt')
  same(await sandbox.files.read('notes/a b.txt'), 'häl\nlo')
  const raw = new Uint8Array(300_000).map((_, index) => index % 251)
  await sandbox.files.write('/tmp/raw', raw.buffer)
  same(Buffer.from(await sandbox.files.read('/tmp/raw', { format: 'bytes' })).equals(Buffer.from(raw)), true)
  await refused(NotFoundError, () => sandbox.files.read('/no/such'))
})

await check('files: several at once', async () => {
  const several = [0, 1, 2].map((index) => ({ path: `/tmp/many/${index}`, data: `number ${index}` }))
  const write = sandbox.files.writeFiles ? (all) => sandbox.files.writeFiles(all) : (all) => sandbox.files.write(all)
  await write(several)
  for (const one of several) same(await sandbox.files.read(one.path), one.data)
})

await check('files: large, gzip', async () => {
  const raw = new Uint8Array(24 << 20).map((_, index) => index % 251)
  await sandbox.files.write('/tmp/large', raw.buffer)
  const found = (await sandbox.commands.run('sha256sum < /tmp/large')).stdout.split(' ')[0]
  same(found, createHash('sha256').update(raw).digest('hex'))
  await sandbox.files.write('/tmp/packed', 'word '.repeat(100_000), { gzip: true })
  same(await sandbox.files.read('/tmp/packed'), 'word '.repeat(100_000))
})

await check('files: metadata', async () => {
  await sandbox.files.write('/tmp/m', 'x', { metadata: { a: 'b c' } })
  same((await sandbox.files.getInfo('/tmp/m')).metadata, { a: 'b c' })
})

await check('files: directories', async () => {
  assert(await sandbox.files.makeDir('/tmp/d/e'))
  assert(!(await sandbox.files.makeDir('/tmp/d/e')))
  await sandbox.files.write('/tmp/d/f', '12345')
  same((await sandbox.files.list('/tmp/d')).map((one) => one.name).sort(), ['e', 'f'])
  same((await sandbox.files.getInfo('/tmp/d/f')).size, 5)
  same((await sandbox.files.rename('/tmp/d/f', '/tmp/d/g')).path, '/tmp/d/g')
  assert(!(await sandbox.files.exists('/tmp/d/f')))
  await sandbox.files.remove('/tmp/d')
  assert(!(await sandbox.files.exists('/tmp/d')))
})

await check('files: watch', async () => {
  await sandbox.files.makeDir('/tmp/watched')
  const seen = []
  const watch = await sandbox.files.watchDir('/tmp/watched', (event) => void seen.push(`${event.type} ${event.name}`))
  await sandbox.files.write('/tmp/watched/new', 'x')
  await until('a change', () => seen.includes('write new'))
  same(seen, ['create new', 'chmod new', 'write new'])
  await sandbox.commands.run('chmod 600 /tmp/watched/new')
  await until('a chmod', () => seen.length > 3)
  same(seen[3], 'chmod new')
  await watch.stop()
})

await check('files: signed addresses', async () => {
  await sandbox.files.write('/tmp/signed', 'for whoever has the address')
  const url = await sandbox.downloadUrl('/tmp/signed')
  same(await (await fetch(url)).text(), 'for whoever has the address')
  same((await fetch(url.replace('signed', 'other'))).status, 401)
  const form = new FormData()
  form.append('file', new Blob(['by form']), 'x')
  same((await fetch(await sandbox.uploadUrl('/tmp/uploaded'), { method: 'POST', body: form })).status, 200)
  same(await sandbox.files.read('/tmp/uploaded'), 'by form')
})

await check('ports: get_host, by token', async () => {
  await serve(sandbox)
  same(await asked(sandbox), 403)
  same(await asked(sandbox, { 'e2b-traffic-access-token': sandbox.trafficAccessToken }), 200)
  same(await asked(sandbox, { 'e2b-traffic-access-token': 'bst_nonsense' }), 403)
  same(await asked(sandbox, { 'X-API-Key': process.env.E2B_API_KEY }), 200)
})

await check('ports: get_host, public', async () => {
  const other = await Sandbox.create({ timeoutMs: 600_000, network: { allowPublicTraffic: true } })
  try {
    await serve(other)
    same(await asked(other), 200)
  } finally {
    await other.kill()
  }
})

await check('one token, one sandbox', async () => {
  const other = await Sandbox.create({ timeoutMs: 600_000 })
  try {
    const status = async (of, by) => {
      const headers = { 'e2b-sandbox-id': of.sandboxId, 'e2b-sandbox-port': '49983' }
      if (by) headers['X-Access-Token'] = by.envdAccessToken
      return (await fetch(`${process.env.E2B_SANDBOX_URL}/health`, { headers })).status
    }
    same(await status(sandbox, sandbox), 204)
    same(await status(sandbox, other), 401)
    same(await status(sandbox, null), 401)
  } finally {
    await other.kill()
  }
})

await check('pause, resume', async () => {
  await sandbox.files.write('/tmp/kept', 'yes')
  await sandbox.pause()
  same((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
  same(await again.files.read('/tmp/kept'), 'yes')
})

await check('pause without memory', async () => {
  await sandbox.files.write('/home/user/kept', 'yes')
  await sandbox.pause({ keepMemory: false })
  same((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).length, 1)
  await sandbox.connect({ timeoutMs: 600_000 })
  assert(await sandbox.isRunning())
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
  same(await again.files.read('/home/user/kept'), 'yes')
})

await check('auto-resume', async () => {
  await sandbox.pause()
  same((await sandbox.commands.run('echo awake')).stdout, 'awake\n')
})

await check('snapshots', async () => {
  await sandbox.files.write('/tmp/in-snapshot', 'then')
  const taken = await sandbox.createSnapshot()
  const child = await Sandbox.create(taken.snapshotId, { timeoutMs: 60_000 })
  same(await child.files.read('/tmp/in-snapshot'), 'then')
  await child.kill()
  const listed = await sandbox.listSnapshots().nextItems()
  assert(listed.some((one) => one.snapshotId === taken.snapshotId))
  assert(await Sandbox.deleteSnapshot(taken.snapshotId))
  assert(!(await Sandbox.deleteSnapshot(taken.snapshotId)))
})

await check('fork', async () => {
  await sandbox.files.write('/tmp/forked', 'common')
  for (const child of await sandbox.fork({ count: 2, timeoutMs: 60_000 })) {
    assert(!(child instanceof Error), child?.message)
    same(await child.files.read('/tmp/forked'), 'common')
    await child.kill()
  }
})

await check('network', async () => {
  await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['*.example.com'] })
  same((await sandbox.getInfo()).network?.allowOut ?? ['*.example.com'], ['*.example.com'])
  await sandbox.updateNetwork({ denyOut: ['192.0.2.0/24', '198.51.100.7'], allowOut: ['192.0.2.8/30'] })
  const { network } = await sandbox.getInfo()
  if (network) {
    same([network.denyOut, network.allowOut], [['192.0.2.0/24', '198.51.100.7'], ['192.0.2.8/30']])
  }
  await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['*'] })
  await refused(Error, () => sandbox.updateNetwork({ allowOut: ['example.com'] }))
  await refused(Error, () => sandbox.updateNetwork({ denyOut: ['example.com'] }))
})

await check('kill', async () => {
  assert(await sandbox.kill())
  assert(!(await sandbox.isRunning()))
  assert(!(await Sandbox.kill(sandbox.sandboxId)))
})

await check('auto-pause', async () => {
  const short = await Sandbox.create({ timeoutMs: 2_000, lifecycle: { onTimeout: 'pause' } })
  await short.files.write('/tmp/kept', 'yes')
  const isPaused = async () => (await Sandbox.getInfo(short.sandboxId)).state === 'paused'
  await until('its pause', isPaused)
  await refused(Error, () => short.commands.run('true'))
  assert(await isPaused(), 'without auto-resume only `connect` wakes it')
  const again = await Sandbox.connect(short.sandboxId, { timeoutMs: 60_000 })
  same(await again.files.read('/tmp/kept'), 'yes')
  await again.kill()
})

await check('auto-pause, auto-resume', async () => {
  const other = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  await other.pause()
  assert(!(await other.isRunning()))
  same((await other.commands.run('echo awake')).stdout, 'awake\n')
  await other.kill()
})

await check('timeout kills', async () => {
  const short = await Sandbox.create({ timeoutMs: 1_000 })
  await until('its end', async () => !(await short.isRunning()))
})

await check('killed during a call', async () => {
  const short = await Sandbox.create({ timeoutMs: 600_000 })
  const handle = await short.commands.run('sleep 30003; true', { background: true, timeoutMs: 0 })
  let over
  const watchEnded = new Promise((resolve) => { over = resolve })
  await short.files.watchDir('/tmp', () => {}, { onExit: over, timeoutMs: 0 })
  await Sandbox.kill(short.sandboxId)
  const raised = async (work) => {
    try {
      await work()
    } catch (error) {
      return error
    }
    throw new Error('nothing was raised')
  }
  for (const error of [await raised(() => handle.wait()), await watchEnded]) {
    assert(error instanceof TimeoutError, `${error}`)
    assert(error.message.includes('killed or reached its end of life'), error.message)
  }
  const after = await raised(() => short.files.read('/etc/hostname'))
  assert(after instanceof TimeoutError && after.message.includes('not found'), `${after}`)
})

await check('templates: builds, aliases, tags', async () => {
  const name = `scenario-${process.pid}`
  const steps = Template().fromTemplate('base').setEnvs({ BUILT: 'yes' }).runCmd('echo made > /srv/made', { user: 'root' })
  const lines = []
  await Template.build(steps, name, { tags: ['v1'], onBuildLogs: (entry) => void lines.push(entry.message) })
  assert(lines.length > 0)
  assert(await Template.exists(name))
  assert(!(await Template.exists('no-such-template')))
  const built = await Sandbox.create(`${name}:v1`, { timeoutMs: 60_000 })
  same(await built.files.read('/srv/made'), 'made\n')
  same((await built.commands.run('echo $BUILT')).stdout, 'yes\n')
  await built.kill()
  await Template.assignTags(`${name}:v1`, ['stable'])
  assert((await Template.getTags(name)).some((one) => one.tag === 'stable'))
  await Template.removeTags(name, ['stable'])
  for (const tag of ['', ':v1']) await removeTemplate(`${name}${tag}`)
})

await check('templates: builds with files', async () => {
  const name = `copies-${process.pid}`
  const folder = await mkdtemp(`${tmpdir()}/e2b-`)
  try {
    await mkdir(`${folder}/app`)
    await writeFile(`${folder}/one`, '1')
    await writeFile(`${folder}/app/two`, '2')
    const steps = Template({ fileContextPath: folder }).fromTemplate('base')
    await Template.build(steps.copy('one', '/srv/').copy('app', '/srv/app').runCmd('cat /srv/one /srv/app/two > all'), name)
  } finally {
    await rm(folder, { recursive: true })
  }
  const built = await Sandbox.create(name, { timeoutMs: 60_000 })
  same(await built.files.read('all'), '12')
  await built.kill()
  await removeTemplate(name)
})

await check('templates: helpers', async () => {
  const name = `helpers-${process.pid}`
  const folder = await mkdtemp(`${tmpdir()}/e2b-`)
  try {
    for (const path of ['one', 'two']) await writeFile(`${folder}/${path}`, path)
    const items = ['one', 'two'].map((src) => ({ src, dest: '/srv/a/' }))
    const steps = Template({ fileContextPath: folder }).skipCache().fromTemplate('base').setUser('root')
      .makeDir(['/srv/a', '/srv/b'], { mode: 0o750 }).copyItems(items).rename('/srv/a/one', '/srv/a/first')
      .makeSymlink('/srv/a/first', '/srv/b/link').remove('/srv/a/two').setUser('user').runCmd('id -un > /tmp/who')
    assert((await Template.toJSON(steps)).includes('"base"'))
    const build = await Template.buildInBackground(steps, name)
    await until('the end of the build', async () => (await Template.getBuildStatus(build)).status === 'ready')
  } finally {
    await rm(folder, { recursive: true })
  }
  const built = await Sandbox.create(name, { timeoutMs: 60_000 })
  try {
    const found = await built.commands.run('cat /srv/b/link; ls /srv/a; stat -c %a /srv/b', { user: 'root' })
    same(found.stdout, 'onefirst\n750\n')
    same(await built.files.read('/tmp/who'), 'user\n')
  } finally {
    await built.kill()
  }
  if (Template.aliasExists) assert(await Template.aliasExists(name))
  assert(Template.toDockerfile(Template().fromImage('debian:12').runCmd('true')).startsWith('FROM debian:12'))
  await removeTemplate(name)
})

await check('templates: Dockerfiles, start commands', async () => {
  const name = `dockerfile-${process.pid}`
  const folder = await mkdtemp(`${tmpdir()}/e2b-`)
  try {
    for (const [path, text] of [['one', '1'], ['a.txt', 'a'], ['b.txt', 'b']]) await writeFile(`${folder}/${path}`, text)
    const lines = [
      'FROM e2bdev/base', 'ENV GREETING=hello', 'WORKDIR /srv/app', 'COPY one .', 'COPY *.txt texts/', 'USER daemon',
      'CMD echo $GREETING $(id -un) $(pwd) $$ > /tmp/started; exec sleep 1000',
    ]
    // Its default ready command waits for 20 seconds, which this test does not need.
    const steps = Template({ fileContextPath: folder }).fromDockerfile(lines.join('\n')).setReadyCmd('test -s /tmp/started')
    await Template.build(steps, name, { cpuCount: 1, memoryMB: 256 })
    const started = Template().fromBaseImage().setWorkdir('/tmp').setStartCmd('pwd > place; exec sleep 1001', 'test -s /tmp/place')
    await Template.build(started, `${name}-2`)
  } finally {
    await rm(folder, { recursive: true })
  }
  const built = await Sandbox.create(name, { timeoutMs: 60_000 })
  try {
    const [, greeting, pid] = (await built.files.read('/tmp/started')).match(/^(.*) (\d+)\n$/)
    same(greeting, 'hello daemon /srv/app')
    same((await built.commands.run(`cat /proc/${pid}/comm; id -un; pwd`)).stdout, 'sleep\ndaemon\n/srv/app\n')
    same((await built.commands.run('cat one texts/a.txt texts/b.txt')).stdout, '1ab')
    const { cpuCount, memoryMB } = await built.getInfo()
    same([cpuCount, memoryMB], [1, 256])
  } finally {
    await built.kill()
  }
  const other = await Sandbox.create(`${name}-2`, { timeoutMs: 60_000 })
  same((await other.commands.run('cat /tmp/place; pgrep -x -c -f "sleep 1001"')).stdout, '/tmp\n1\n')
  await other.kill()
  for (const suffix of ['', '-2']) await removeTemplate(`${name}${suffix}`)
})

await check('templates: builds that fail', async () => {
  const failing = Template().fromTemplate('base').runCmd('exit 3')
  const error = await refused(BuildError, () => Template.build(failing, 'fails'))
  assert(error.message.includes('3'), error.message)
})

await check('volumes', async () => {
  const { Volume } = e2b
  if (!Volume) throw new Absent()
  const name = `scenario-${Math.random().toString(36).slice(2, 10)}`
  const volume = await Volume.create(name)
  try {
    assert((await Volume.list()).some((one) => one.volumeId === volume.volumeId && one.name === name), 'it is listed')
    await volume.makeDir('/notes/deep', { force: true, mode: 0o755 })
    const entry = await volume.writeFile('/notes/deep/a.txt', 'first', { uid: 1000, mode: 0o640 })
    same([entry.size, entry.uid, entry.mode], [5, 1000, 0o640])
    same(await volume.readFile('/notes/deep/a.txt'), 'first')
    const paths = (await volume.list('/', { depth: 3 })).map((one) => one.path)
    same(paths, ['/notes', '/notes/deep', '/notes/deep/a.txt'])
    same((await volume.updateMetadata('/notes/deep/a.txt', { mode: 0o644 })).mode, 0o644)
    assert((await volume.exists('/notes')) && !(await volume.exists('/none')), 'what is there is there')
    const writer = await Sandbox.create({ volumeMounts: { '/data': volume } })
    try {
      same((await writer.commands.run('cat /data/notes/deep/a.txt')).stdout, 'first')
      await writer.commands.run('echo written > /data/by-the-sandbox')
      const error = await refused(Error, () => Sandbox.create({ volumeMounts: { '/data': volume } }))
      assert(error.message.includes('already mounted for writing'), error.message)
      const reader = await Sandbox.create({ volumeMounts: { '/data': `${name}:ro` } })
      try {
        same((await reader.commands.run('cat /data/by-the-sandbox')).stdout, 'written\n')
        await refused(CommandExitError, () => reader.commands.run('echo no > /data/by-the-sandbox'))
      } finally {
        await reader.kill()
      }
    } finally {
      await writer.kill()
    }
    const connected = await Volume.connect(volume.volumeId)
    same(await connected.readFile('/by-the-sandbox'), 'written\n')
    await connected.remove('/notes')
    assert(!(await connected.exists('/notes/deep/a.txt')), 'it is gone')
  } finally {
    assert(await Volume.destroy(volume.volumeId), 'it goes')
  }
  assert(!(await Volume.destroy(volume.volumeId)), 'it went')
})

await check('what there is not is refused', async () => {
  const template = Template().fromTemplate('mcp-gateway')
  if (!template.addMcpServer) throw new Absent()
  const error = await refused(Error, () => Template.build(template.addMcpServer('time'), `servers-${process.pid}`))
  assert(error.message.includes('mcp-gateway'), error.message)
})

await check('unknown template', async () => {
  const error = await refused(Error, () => Sandbox.create('no-such-template'))
  assert(error.message.includes('no-such-template'), error.message)
})

await check('unknown key', async () => {
  await refused(AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }))
})

await check('every method is called, or is listed with a reason', async () => {
  if (!isNewest) throw new Absent()
  const faults = calls.faults()
  assert(faults.length === 0, faults.join('; '))
})

process.exit(failed.length ? 1 : 0)

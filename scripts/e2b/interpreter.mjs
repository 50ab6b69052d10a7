// One scenario for every version of E2B's npm client of the code interpreter, against a real daemon. Same output format as scenario.py.

import * as e2b from '@e2b/code-interpreter'

const { Sandbox, TimeoutError, NotFoundError } = e2b
const failed = []
// Names of the checks to run; empty for all.
const only = (process.env.E2B_ONLY ?? '').split(';').filter(Boolean)

class Absent extends Error {}

// Ignores the order of fields in objects.
function text(value) {
  const plain = value && typeof value === 'object' && !Array.isArray(value)
  return JSON.stringify(plain ? Object.entries(value).sort() : value)
}

function same(left, right) {
  const [a, b] = [text(left), text(right)]
  if (a !== b) throw new Error(`${a} is not ${b}`)
}

function assert(fact, said) {
  if (!fact) throw new Error(`assertion failed: ${said ?? ''}`)
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
  if (only.length && !only.includes(name)) return
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

const sandbox = await Sandbox.create({ timeoutMs: 600_000 })

await check('run_code', async () => {
  const done = await sandbox.runCode("import sys; print('out'); print('err', file=sys.stderr); 1 + 1")
  same([done.text, done.logs.stdout.join(''), done.logs.stderr.join('')], ['2', 'out\n', 'err\n'])
  assert(done.error === undefined && done.executionCount >= 1)
  same((await sandbox.runCode("'ä€😀' * 20_000")).text, 'ä€😀'.repeat(20_000))
  same((await sandbox.runCode('import os; os.getcwd()')).text, '/home/user')
})

await check('run_code: variables are kept', async () => {
  await sandbox.runCode('kept = [1, 2]\ndef double(x): return 2 * x')
  same((await sandbox.runCode('double(sum(kept))')).text, '6')
  const again = await Sandbox.connect(sandbox.sandboxId)
  same((await again.runCode('kept')).text, '[1, 2]')
})

await check('run_code: envs', async () => {
  same((await sandbox.runCode("import os; os.environ['ONCE']", { envs: { ONCE: 'for this run' } })).text, 'for this run')
  same((await sandbox.runCode("os.environ.get('ONCE') is None")).text, 'True')
})

await check('run_code: callbacks', async () => {
  const seen = []
  const code = "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)\ndisplay('three')\n1/0"
  await sandbox.runCode(code, {
    onStdout: (message) => void seen.push(['stdout', message.line]),
    onStderr: (message) => void seen.push(['stderr', message.line]),
    onResult: (result) => void seen.push(['result', result.text]),
    onError: (error) => void seen.push(['error', error.name]),
  })
  same(seen, [['stdout', 'one\n'], ['stderr', 'two\n'], ['result', 'three'], ['error', 'ZeroDivisionError']])
})

await check('run_code: output as it comes', async () => {
  await sandbox.files.write('/tmp/seen', '')
  const code = "import time\nprint('first', flush=True)\nwhile open('/tmp/seen').read() != 'yes': time.sleep(0.05)\n'seen'"
  const onStdout = async (message) => {
    if (message.line.includes('first')) await sandbox.files.write('/tmp/seen', 'yes')
  }
  same((await sandbox.runCode(code, { onStdout })).text, 'seen')
})

await check('run_code: 5 MB of output', async () => {
  const done = await sandbox.runCode("for _ in range(50): print('x' * 99_999)")
  same(done.logs.stdout.join('').length, 5_000_000)
})

await check('run_code: errors', async () => {
  const { error } = await sandbox.runCode("def inner():\n    raise ValueError('bad')\ninner()")
  same([error.name, error.value], ['ValueError', 'bad'])
  assert(error.traceback.includes('in inner'), error.traceback)
  same((await sandbox.runCode('this is not')).error.name, 'SyntaxError')
  same((await sandbox.runCode('input()')).error.name, 'StdinNotImplementedError')
})

await check('run_code: timeout', async () => {
  await sandbox.runCode("kept = 'yes'")
  await refused(TimeoutError, () => sandbox.runCode('import time; time.sleep(600)', { timeoutMs: 2000 }))
  // The client disconnected, so the code was interrupted, and the next run does not wait for it.
  same((await sandbox.runCode('kept')).text, 'yes')
})

await check('results: all forms', async () => {
  const forms = {
    html: ['text/html', '<b>bold</b>'],
    markdown: ['text/markdown', '*so*'],
    svg: ['image/svg+xml', '<svg/>'],
    png: ['image/png', 'iVBORw0KGgo='],
    jpeg: ['image/jpeg', '/9j/4AAQ'],
    pdf: ['application/pdf', 'JVBERi0='],
    latex: ['text/latex', '$x$'],
    json: ['application/json', { a: [1, 'b'] }],
    javascript: ['application/javascript', 'alert(1)'],
  }
  for (const [field, [form, value]] of Object.entries(forms)) {
    const { results } = await sandbox.runCode(`display({${JSON.stringify(form)}: ${JSON.stringify(value)}}, raw=True)`)
    same([results.length, results[0][field], results[0].isMainResult, results[0].formats()], [1, value, false, [field]])
  }
  const both = await sandbox.runCode("display('shown')\n'value'")
  same(both.results.map((one) => [one.text, one.isMainResult]), [['shown', false], ['value', true]])
})

await check('results: data frames', async () => {
  const done = await sandbox.runCode("import pandas as pd\npd.DataFrame({'n': [1, 2], 'd': pd.to_datetime(['2024-01-01', None])})")
  same(done.results[0].data, { n: [1, 2], d: ['2024-01-01T00:00:00', null] })
  assert(done.results[0].html.includes('<table'))
})

async function chartOf(code) {
  const { results } = await sandbox.runCode(`import matplotlib.pyplot as plt\n${code}\nplt.show()`)
  same([results.length, Buffer.from(results[0].png, 'base64').subarray(1, 4).toString()], [1, 'PNG'])
  return results[0].chart
}

await check('results: charts', async () => {
  const line = await chartOf("plt.plot([1, 2], [3, 4], label='one'); plt.title('T'); plt.xlabel('t (s)')")
  same([line.type, line.title, line.x_unit, line.elements], ['line', 'T', 's', [{ label: 'one', points: [[1, 3], [2, 4]] }]])
  same((await chartOf('plt.scatter([1], [2])')).type, 'scatter')
  same((await chartOf("plt.bar(['a', 'b'], [1, 2])")).elements.map((one) => [one.label, one.value]), [['a', 1], ['b', 2]])
  same((await chartOf("plt.pie([1, 3], labels=['x', 'y'])")).elements[0].angle, 90)
  same((await chartOf('plt.boxplot([1, 2, 3, 4, 50])')).elements[0].outliers, [50])
  const both = await chartOf("figure, axes = plt.subplots(1, 2); axes[0].plot([1], [1]); axes[1].bar(['a'], [1])")
  same([both.type, both.elements.map((one) => one.type)], ['superchart', ['line', 'bar']])
})

await check('contexts: create, cwd', async () => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  same([context.language, context.cwd], ['python', '/tmp'])
  await sandbox.runCode("x = 'mine'", { context })
  same((await sandbox.runCode('import os; x + os.getcwd()', { context })).text, 'mine/tmp')
  // Kernels run as root, commands as the user.
  const ofRoot = await sandbox.createCodeContext({ cwd: '/root' })
  same((await sandbox.runCode('import os; os.getcwd(), os.getuid()', { context: ofRoot })).text, "('/root', 0)")
  same((await sandbox.runCode("x = 'default'; x")).text, 'default')
  same((await sandbox.runCode('x', { context })).text, 'mine')
})

await check('contexts: list, restart, remove', async () => {
  if (!sandbox.listCodeContexts) throw new Absent()
  const context = await sandbox.createCodeContext()
  const ids = async () => (await sandbox.listCodeContexts()).map((one) => one.id)
  assert((await ids()).includes(context.id))
  await sandbox.runCode('x = 1', { context })
  await sandbox.restartCodeContext(context)
  same((await sandbox.runCode('x', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context.id)
  assert(!(await ids()).includes(context.id))
  await refused(NotFoundError ?? Error, () => sandbox.runCode('1', { context }))
})

await check('languages: python, and a missing one', async () => {
  same((await sandbox.runCode('6 * 7', { language: 'python' })).text, '42')
  const error = await refused(Error, () => sandbox.runCode('1', { language: 'cobol' }))
  assert(error.message.includes('400'), error.message)
})

await check('files and commands beside', async () => {
  await sandbox.files.write('/home/user/table.csv', 'a,b\n1,2\n')
  same((await sandbox.runCode("import pandas as pd; int(pd.read_csv('table.csv')['b'].sum())")).text, '2')
  await sandbox.runCode("open('written', 'w').write('by code')")
  same((await sandbox.commands.run('cat written')).stdout, 'by code')
})

await check('pause, resume: variables are kept', async () => {
  await sandbox.runCode('kept = object(); before = id(kept)')
  await sandbox.pause()
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
  same((await again.runCode('id(kept) == before')).text, 'True')
})

await check('fork: variables are kept', async () => {
  if (!sandbox.fork) throw new Absent()
  await sandbox.runCode("whose = 'parent'; shared = 42")
  const children = [await sandbox.fork({ timeoutMs: 600_000 })].flat()
  try {
    same((await children[0].runCode("whose = 'child'; shared")).text, '42')
    same((await sandbox.runCode('whose')).text, 'parent')
  } finally {
    for (const one of children) await one.kill()
  }
})

await check('restart: the interpreter was killed', async () => {
  await sandbox.runCode('kept = 1')
  // It has ended when nothing listens on its port (49999) any more. A request to a process that is ending fails.
  const listens = "grep -q ':C34F 00000000:0000 0A' /proc/net/tcp"
  await sandbox.commands.run(`pkill -9 -f '[b]ridge.py'; while ${listens}; do sleep 0.1; done`, { user: 'root' })
  same((await sandbox.runCode("'kept' in dir()")).text, 'False')
})

await sandbox.kill()

await check('kill', async () => {
  const short = await Sandbox.create({ timeoutMs: 600_000 })
  same((await short.runCode('1')).text, '1')
  assert(await short.kill())
  await refused(Error, () => short.runCode('1', { timeoutMs: 30_000 }))
})

await check('killed during run_code', async () => {
  const short = await Sandbox.create({ timeoutMs: 600_000 })
  same((await short.runCode('1')).text, '1')
  const killed = new Promise((resolve) => setTimeout(() => resolve(short.kill()), 3_000))
  const error = await refused(Error, () => short.runCode('import time\ntime.sleep(60)'))
  assert(error instanceof TimeoutError, `${error.name}: ${error.message}`)
  assert(error.message.includes('sandbox was killed while the request was in progress'), error.message)
  assert(await killed)
})

process.exit(failed.length ? 1 : 0)

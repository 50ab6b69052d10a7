// Records which public methods of E2B's npm client a scenario uses, and reports those that it never uses: the same as calls.py.
//
// `Class.method` is a static method, `Class#method` one of an instance. Methods in `NOT_CALLED` need no call, for the given reason.
// Entries for methods that are used, or that the client does not have, are reported too.

import * as e2b from 'e2b'

const INTERNET = 'needs a host outside'
const REGISTRY = 'pulls an image from a registry: only its instruction would be tested'
const BY_NAME = 'called in the part with names and TLS'

const NOT_CALLED = {
  'Sandbox.getFullInfo': 'an older name of `getInfo`',
  'Sandbox.betaPause': 'an older name of `pause`',
  'Sandbox#betaPause': 'an older name of `pause`',
  'Sandbox#getMcpUrl': BY_NAME,
  'Sandbox#getMcpToken': BY_NAME,
  'Git#clone': INTERNET,
  'Git#dangerouslyAuthenticate': 'stores a password for a host outside',
  'Template#fromAlpineImage': REGISTRY,
  'Template#fromArchImage': REGISTRY,
  'Template#fromAWSRegistry': REGISTRY,
  'Template#fromBunImage': REGISTRY,
  'Template#fromDebianImage': REGISTRY,
  'Template#fromFedoraImage': REGISTRY,
  'Template#fromGCPRegistry': REGISTRY,
  'Template#fromNodeImage': REGISTRY,
  'Template#fromPythonImage': REGISTRY,
  'Template#fromUbuntuImage': REGISTRY,
  'Template#aptInstall': INTERNET,
  'Template#bunInstall': INTERNET,
  'Template#gitClone': INTERNET,
  'Template#npmInstall': INTERNET,
  'Template#pipInstall': INTERNET,
  'Template#betaDevContainerPrebuild': INTERNET,
  'Template#betaSetDevContainerStart': INTERNET,
}

// Methods that the client's types declare private or protected. JavaScript has them all the same.
const PRIVATE = new Set(
  [
    'Sandbox.createSandbox Sandbox.forkSandbox Sandbox.connectSandbox Sandbox.resolveOpts Sandbox#resolveApiOpts Sandbox#fileUrl',
    'Volume.resolveOpts Template.resolveOpts Git#runGit Git#runShell Git#getRemoteUrl Git#resolveRemoteName',
    'Git#withRemoteCredentials Git#hasUpstream Commands#start WatchHandle#iterateEvents WatchHandle#handleEvents',
    'CommandHandle#flushDecoders CommandHandle#iterateEvents CommandHandle#handleEvents Template#collectStackTrace Template#toJSON',
    'Template#toDockerfile Template#build Template#instructionsWithHashes Template#serialize',
  ].flatMap((line) => line.split(' '))
)

const every = new Set()
const called = new Set()

// Replaces the methods of an object, and of those that it inherits from, by ones that record their use.
function recordOn(prefix, object) {
  for (let at = object; at && at !== Object.prototype && at !== Function.prototype; at = Object.getPrototypeOf(at)) {
    for (const [name, { value, writable }] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      const full = `${prefix}${name}`
      if (name === 'constructor' || name.startsWith('_') || typeof value !== 'function' || !writable) continue
      if (PRIVATE.has(full) || every.has(full)) continue
      every.add(full)
      at[name] = function (...given) {
        called.add(full)
        return value.apply(this, given)
      }
    }
  }
}

// The classes that the client exports. To be called before any other use.
export function record() {
  const { Sandbox, Template, TemplateBase, Volume, Git } = e2b
  recordOn('Sandbox.', Sandbox)
  recordOn('Sandbox#', Sandbox.prototype)
  recordOn('Template.', Template)
  recordOn('Template#', TemplateBase.prototype)
  recordOn('Volume.', Volume)
  recordOn('Volume#', Volume.prototype)
  recordOn('Git#', Git.prototype)
}

// The classes that it exports as types only.
export async function recordInside(sandbox) {
  const handle = await sandbox.commands.run('sleep 60', { background: true })
  const watch = await sandbox.files.watchDir('/tmp', () => {})
  await watch.stop()
  await handle.kill()
  recordOn('Commands#', Object.getPrototypeOf(sandbox.commands))
  recordOn('Filesystem#', Object.getPrototypeOf(sandbox.files))
  recordOn('Pty#', Object.getPrototypeOf(sandbox.pty))
  recordOn('CommandHandle#', Object.getPrototypeOf(handle))
  recordOn('WatchHandle#', Object.getPrototypeOf(watch))
  called.clear()
  called.add('Sandbox.create')
}

// Methods with neither a call nor a reason, and outdated reasons.
export function faults() {
  const names = [...every].sort()
  const missing = names.filter((name) => !called.has(name) && !(name in NOT_CALLED)).map((name) => `${name} is never called`)
  const listed = Object.keys(NOT_CALLED)
  const needless = listed.filter((name) => called.has(name)).map((name) => `${name} is called, but is listed in NOT_CALLED`)
  const unknown = listed.filter((name) => !every.has(name)).map((name) => `${name} is listed in NOT_CALLED, but does not exist in the client`)
  return [...missing, ...needless, ...unknown]
}

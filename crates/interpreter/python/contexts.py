"""Contexts, and the runs of code in them.

A context has a language, a directory and variables, which its kernel keeps. Runs in one context are executed one after another, in the
order of their requests; contexts run concurrently.

    queued ──► running ──► ended: ok, error, interrupted, timed_out, output_limit, kernel_died
       └──────────────────► ended: interrupted

A kernel is started by the first run that needs it, and again after it died. No task exists while nothing runs.

Invariant: the last line of every run is `end_of_execution`, in all cases.
"""

import asyncio
import collections
import json
import logging
import os
import re
import secrets
import time

import events
import kernels
from kernels import Kernel, KernelFailed

LOG = logging.getLogger("burrow.code")

CONTEXTS_MAX = 32
QUEUE_MAX = 64
CODE_BYTES_MAX = 4 << 20
OUTPUT_BYTES_MAX = 16 << 20
# How long code may continue after the interrupt for its timeout or output limit, before its kernel is killed: the time that a busy host
# may need to pass on earlier output. Killing the kernel loses its variables, which is worse than waiting.
PATIENCE_SECONDS = 15
# Setting variables is fast. A kernel that does not do it within this time is busy in the background, and is killed.
ASK_SECONDS_MAX = 60
# Code counts as just started for as long as a busy host may need to prepare it.
FRESH_SECONDS = 1
AGAIN_SECONDS = 0.5
AGAIN_MAX = 8
# If nothing else waits: this time, then twice as long, and so on.
AGAIN_SECONDS_MIN = 0.05
# After an error, a kernel rejects further requests for a fifth of a second.
ABORTED_MAX = 10
ABORTED_SECONDS = 0.1
# Maximum length of one line of output: the rest follows in the next line. Readers limit the length of lines.
TEXT_CHARS_MAX = 256 << 10
# Maximum size of one result, which is one line: formats that do not fit are mentioned in its text instead.
RESULT_BYTES_MAX = 7 << 20
# The daemon rejects a line that takes more memory than this when it is parsed (`events.weight`), and one nested deeper than 127
# levels; this leaves some levels for the enclosing objects.
RESULT_WEIGHT_MAX = 64 << 20
RESULT_DEPTH_MAX = 120

# Languages whose default contexts are listed from the start, as in E2B.
DEFAULTS = ("python", "javascript")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


class Refused(Exception):
    """A request that is rejected; says why, and how to fix it."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Run:
    """One run of code: its input, its output, its outcome."""

    def __init__(self, code, env=None, timeout=None, output_bytes_max=OUTPUT_BYTES_MAX):
        self.code = code
        self.env = env or {}
        self.timeout = timeout
        self.left = self.output_bytes_max = output_bytes_max
        self.lines = asyncio.Queue()
        self.ended = False
        # Whether an error was reported.
        self.failed = False
        self.execution_count = 0
        self.began_at = time.monotonic()
        # Why it has to stop, and the error that explains it; set once.
        self.stopped = None
        self.last_word = None
        self.request = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        line = await self.lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def hear(self, message):
        """Passes on messages of its kernel, within the output limit."""
        event = events.output(message, time.time_ns())
        if event is None or self.ended:
            return
        if event["type"] == "number_of_executions":
            self.execution_count = event["execution_count"]
            self.say(event)
        elif event["type"] == "error":
            self._hear_error(event)
        elif self.stopped != "output_limit":
            for part in parts(event):
                self._say_within_bound(part)

    def _hear_error(self, event):
        if self.last_word is None:
            self.failed = True
            self.say(event)
        else:
            # The error of the interrupt itself; reported are the reason for it, and where it occurred.
            self.last_word["traceback"] = event["traceback"]

    def _say_within_bound(self, event):
        line = events.line(event)
        if len(line) <= self.left:
            self.left -= len(line)
            self.lines.put_nowait(line)
            return
        if event["type"] in ("stdout", "stderr"):
            # As much as fits: the output of an endless loop shows what it did.
            self.say({**event, "text": event["text"][: self.left]})
        self.left = 0
        self.stop("output_limit", "OutputLimitError", f"the output exceeded {self.output_bytes_max} bytes")

    def say(self, event):
        self.lines.put_nowait(events.line(event))

    def stop(self, why, name=None, value=None):
        """Requests a stop. The first reason is reported; but code may ignore a plain interrupt, and not a limit."""
        if self.ended or self.last_word is not None or (self.stopped is not None and name is None):
            return
        self.stopped = why
        if name is not None:
            self.last_word = events.error(name, value, [])
        if self.request is not None:
            self.request.news.set()

    def end(self, status):
        """Sends the last lines."""
        if self.ended:
            return
        if status == "interrupted" and not self.failed and self.last_word is None:
            # Not every kernel reports this, and code that never started reports nothing.
            self.last_word = events.error("KeyboardInterrupt", "interrupted" if self.request else "interrupted before it began", [])
        if self.last_word is not None:
            self.last_word["traceback"] = self.last_word["traceback"] or f"{self.last_word['name']}: {self.last_word['value']}"
            self.say(self.last_word)
        duration_ms = int((time.monotonic() - self.began_at) * 1000)
        self.say({"type": "end_of_execution", "status": status, "execution_count": self.execution_count, "duration_ms": duration_ms})
        self.ended = True
        self.lines.put_nowait(None)

    def fail(self, status, name, value):
        """Ends it with an error of the bridge."""
        self.last_word = events.error(name, value, [])
        self.end(status)


def parts(event):
    """Splits long output into several events."""
    text = event.get("text", "")
    if event["type"] == "result":
        return [fitting(event)]
    if event["type"] not in ("stdout", "stderr") or len(text) <= TEXT_CHARS_MAX:
        return [event]
    return [{**event, "text": text[at : at + TEXT_CHARS_MAX]} for at in range(0, len(text), TEXT_CHARS_MAX)]


def fitting(result):
    """A result without formats that no client could read, and without the largest ones until it fits; its text mentions them."""
    lines, left_out = {}, []
    for form, value in result.items():
        try:
            lines[form] = events.line({form: value})
        except RecursionError:
            left_out.append(too_deep(form))
    sizes = {form: len(line) for form, line in lines.items()}
    for form in until_they_fit(sizes, RESULT_BYTES_MAX):
        left_out.append(f"[{form} of {len(lines.pop(form))} bytes left out: write it to a file]")
    # Only for what is small enough to be searched.
    for form in [form for form, line in lines.items() if events.depth(line) > RESULT_DEPTH_MAX]:
        del lines[form]
        left_out.append(too_deep(form))
    for form in until_they_fit({form: events.weight(line) for form, line in lines.items()}, RESULT_WEIGHT_MAX):
        del lines[form]
        left_out.append(f"[{form} of too many values left out: write it to a file]")
    if not left_out:
        return result
    kept = {form: value for form, value in result.items() if form in lines}
    return {**kept, "text": "\n".join([kept.get("text", ""), *left_out]).strip()}


def until_they_fit(sizes, most):
    """The formats to leave out, the largest first, so that the others take at most `most` together."""
    left = sum(sizes.values())
    for form in sorted(sizes, key=sizes.get, reverse=True):
        if left <= most:
            return
        left -= sizes[form]
        yield form


def too_deep(form):
    return f"[{form} nested more than {RESULT_DEPTH_MAX} levels deep left out: write it to a file]"


class Context:
    """The variables of one language, and the queue of its runs."""

    def __init__(self, identifier, language, cwd, env, shared):
        self.id = identifier
        self.language = language
        self.cwd = cwd
        self.env = env
        self.kernel = None
        self.execution_count = 0
        self.running = None
        self.queue = collections.deque()
        self.worker = None
        # Held while a kernel is started or stopped.
        self.changing = asyncio.Lock()
        self.removed = False
        self.had_kernel = False
        # Variables of the sandbox, shared by all contexts; those of the context take precedence.
        self.shared = shared

    def shown(self):
        if self.running is not None:
            state = "busy"
        elif self.kernel is None and not self.had_kernel:
            # The first run starts the kernel.
            state = "idle"
        elif self.kernel is None or self.kernel.dead:
            state = "dead"
        else:
            # A kernel is busy in the background if it still has abandoned requests.
            state = "busy" if self.kernel.left else "idle"
        return {
            "id": self.id,
            "language": self.language["name"],
            "cwd": self.cwd,
            "state": state,
            "execution_count": self.execution_count,
        }

    # === impl: runs ===

    def submit(self, run):
        """Appends a run to the queue."""
        if len(self.queue) >= QUEUE_MAX:
            raise Refused(429, f"{QUEUE_MAX} runs are queued in context `{self.id}`: try again later, or create another context")
        if run.env and self.language["name"] not in ENVIRONMENTS:
            known = ", ".join(sorted(ENVIRONMENTS))
            raise Refused(400, f"variables for single runs are supported in {known}; for {self.language['name']} set them when the context is created")
        if self.kernel is not None and len(self.kernel.left) >= QUEUE_MAX:
            raise Refused(429, f"{QUEUE_MAX} runs in context `{self.id}` were interrupted before its kernel started them: restart the context")
        self.queue.append(run)
        if self.worker is None:
            self.worker = asyncio.create_task(self._work(), name=f"context {self.id}")

    async def _work(self):
        try:
            while self.queue:
                run = self.running = self.queue.popleft()
                try:
                    await self._perform(run)
                except KernelFailed as error:
                    run.fail("kernel_died", "KernelDied", str(error))
                except Exception:  # A bug in the bridge affects one run, and is reported to its reader.
                    LOG.exception("a run in context %s failed in the bridge", self.id)
                    run.fail("kernel_died", "BridgeError", "internal error of the bridge; see its log")
                finally:
                    self.running = None
        finally:
            self.worker = None

    async def _perform(self, run):
        kernel = await self._living()
        if run.stopped is not None:
            run.end(run.stopped)
            return
        run.began_at = time.monotonic()
        await self._share(kernel, run)
        environment = ENVIRONMENTS[self.language["name"]] if run.env else None
        if environment is not None:
            await self._ask(kernel, run, environment.enter(run.env))
            if kernel.dead and run.timeout is not None and time.monotonic() >= run.began_at + run.timeout:
                run.stop("timed_out", "TimeoutError", not_begun(run))
        if run.stopped is not None and not kernel.dead:
            # Stopped in the meantime: no client waits for it.
            status = run.stopped
        else:
            status = await self._execute(kernel, run)
        if environment is not None and not kernel.dead:
            await self._ask(kernel, run, environment.leave(run.env))
            status = dead(run) if kernel.dead else status
        if kernel.dead:
            await self._bury(kernel)
        run.end(status)

    async def _ask(self, kernel, run, code):
        """Runs internal code in the kernel, within the time limit of the run. A kernel that does not run it in time is killed."""
        deadline = time.monotonic() + ASK_SECONDS_MAX
        if run.timeout is not None:
            deadline = min(deadline, max(time.monotonic(), run.began_at + run.timeout) + PATIENCE_SECONDS)
        await kernel.ask(code, deadline - time.monotonic())

    async def _execute(self, kernel, run):
        """Runs its code; returns the outcome."""
        for _ in range(ABORTED_MAX):
            run.request = await kernel.execute(run.code, run.hear, output_bytes_max=run.left)
            if run.stopped is not None:
                run.request.news.set()
            status = await self._attend(kernel, run)
            kernel.finish()
            if run.stopped is not None or not run.request.was_aborted():
                break
            await asyncio.sleep(ABORTED_SECONDS)
        self.execution_count = run.execution_count or self.execution_count
        return status

    async def _attend(self, kernel, run):
        """Waits for the end of a run, and stops it when necessary; returns the outcome."""
        request = run.request
        deadline = None if run.timeout is None else run.began_at + run.timeout
        patience = None
        # The stop reason at the last check, and the time of the last interrupt.
        seen = answered = None
        again = None
        while True:
            now = time.monotonic()
            done_at = request.done_at()
            if done_at is not None and now >= done_at:
                return run.stopped or status_of(request.reply)
            if kernel.dead:
                return dead(run)
            if deadline is not None and now >= deadline:
                run.stop("timed_out", "TimeoutError", f"the code ran longer than {run.timeout:g} s")
                deadline = None
            if run.stopped != seen:
                # Code that has not started cannot be interrupted, and may never start: there is a limit for that, too.
                seen, patience = run.stopped, now + PATIENCE_SECONDS
            if run.stopped != answered and request.begun_at is not None:
                answered = run.stopped
                again = Again(request, now, kernel.keeps_interrupts)
                await kernel.interrupt()
                # A client that disconnected, or requested an interrupt, must not destroy the variables of others.
                patience = now + PATIENCE_SECONDS if run.last_word is not None else None
            if patience is not None and now >= patience:
                return await self._give_up(kernel, run)
            if again is not None and again.is_due(now):
                await kernel.interrupt_again()
            await until_next(request.news, done_at, deadline, patience, again and again.at)

    async def _give_up(self, kernel, run):
        """Ends a run that ignored an interrupt; returns the reported outcome."""
        if run.last_word is None:
            kernel.leave()
            value = "interrupted before it began: its kernel is busy in the background; restart the context to stop it"
            run.last_word = events.error("KeyboardInterrupt", value, [])
            return run.stopped
        await kernel.kill()
        if run.request.begun_at is not None:
            run.last_word["value"] += " and continued after it was interrupted: its kernel was killed and its variables were lost"
        elif run.stopped == "timed_out":
            run.last_word["value"] = not_begun(run)
        return run.stopped

    def interrupt(self):
        """Stops the current run and all queued ones."""
        while self.queue:
            self.queue.popleft().end("interrupted")
        if self.running is not None:
            self.running.stop("interrupted")

    def leave(self, run):
        """Its reader disconnected, so its output is no longer needed."""
        if run in self.queue:
            self.queue.remove(run)
            run.end("interrupted")
        else:
            run.stop("interrupted")

    def _drop_queue(self, status, name, value):
        while self.queue:
            self.queue.popleft().fail(status, name, value)

    # === impl: kernels ===

    async def _living(self):
        """Its kernel; starts one if there is none."""
        async with self.changing:
            if self.removed:
                raise KernelFailed("the context was removed")
            if self.kernel is not None and self.kernel.dead:
                await self._bury(self.kernel)
            if self.kernel is None:
                self.had_kernel = True
                self.kernel = await Kernel.start(self.language, self.cwd, {**os.environ, **self.shared, **self.env})
            return self.kernel

    async def _share(self, kernel, run):
        """Sets the sandbox's variables that have changed since the kernel was started: a fork has others than its parent."""
        environment = ENVIRONMENTS.get(self.language["name"])
        changed = {name: value for name, value in self.shared.items() if name not in self.env and kernel.env.get(name) != value}
        if changed and environment is not None:
            await self._ask(kernel, run, environment.set(changed))
            kernel.env.update(changed)

    async def prepare(self):
        """Starts its kernel before the first run."""
        try:
            await self._living()
        except KernelFailed as error:
            raise Refused(500, str(error)) from error

    async def _bury(self, kernel):
        await kernel.kill()
        self.execution_count = 0
        if self.kernel is kernel:
            self.kernel = None

    async def restart(self):
        """Starts a new kernel; ends the current run and all queued ones."""
        await self._end("KernelRestarted", "the context was restarted")
        await self.prepare()

    async def remove(self):
        self.removed = True
        await self._end("ContextRemoved", "the context was removed")

    async def _end(self, name, value):
        self._drop_queue("interrupted", name, value)
        async with self.changing:
            if self.running is not None:
                self.running.stop("interrupted", name, value)
            if self.kernel is not None:
                await self._bury(self.kernel)


class Again:
    """An interrupt that may have to be repeated.

    Between reporting that code starts and running its first line, most kernels prepare the code, and sometimes lose an interrupt there. So
    code that was interrupted right after its start, and has written nothing since, is interrupted again; other code is not, because it may
    be cleaning up. If no interrupt was lost, repeating it is harmless.
    """

    def __init__(self, request, now, is_kept):
        self.request = request
        self.sent_at = now
        self.is_kept = is_kept
        self.pause = AGAIN_SECONDS_MIN if is_kept else AGAIN_SECONDS
        self.left = AGAIN_MAX if is_kept or now - request.begun_at < FRESH_SECONDS else 0
        self.at = now + self.pause if self.left else None

    def is_due(self, now):
        if self.at is None or now < self.at:
            return False
        self.left -= 1
        self.pause = min(self.pause * 2, AGAIN_SECONDS)
        self.at = now + self.pause if self.left else None
        return self.is_kept or self.request.heard_at <= self.sent_at


def status_of(reply):
    return "ok" if reply is not None and reply.get("status") == "ok" else "error"


def not_begun(run):
    return f"the code did not begin within {run.timeout:g} s: its kernel was busy in the background and was killed, so its variables were lost"


def dead(run):
    """The error for a kernel that died during the run."""
    if run.stopped is not None and run.last_word is not None:
        return run.stopped
    run.last_word = events.error("KernelDied", "the kernel died and its variables were lost; the next run starts a new one", [])
    return "kernel_died"


async def until_next(news, *moments):
    """Waits for a change, or for the first of the deadlines."""
    known = [moment for moment in moments if moment is not None]
    await kernels.until(news, min(known, default=None))


class Contexts:
    """All contexts of this sandbox."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.all = {}
        self.environment = {}

    def create_defaults(self):
        """The contexts that E2B's clients expect before any code ran. They have no kernel until then."""
        for language in kernels.languages():
            if language in DEFAULTS:
                self.create(language, identifier=default_of(language))

    def set_environment(self, env):
        """Sets variables for every kernel, from its next run on."""
        self.environment.clear()
        self.environment.update(env)

    def language(self, name):
        """An installed language."""
        found = kernels.languages()
        wanted = kernels.canonical(name)
        if wanted not in found:
            known = ", ".join(sorted(found)) or "none"
            raise Refused(400, f"no kernel for the language `{name[:64]}` is installed; installed languages: {known}")
        return found[wanted]

    def get(self, identifier):
        identifier = canonical(identifier)
        if identifier not in self.all:
            raise Refused(404, f"context `{identifier[:64]}` does not exist")
        return self.all[identifier]

    def create(self, language="python", cwd=None, env=None, identifier=None):
        """Creates a context; returns the existing one if it has the requested id."""
        known = self.language(language)
        identifier = secrets.token_hex(8) if identifier is None else canonical(identifier)
        if identifier in self.all:
            there = self.all[identifier]
            if there.language["name"] != known["name"]:
                raise Refused(409, f"context `{identifier}` exists already, for {there.language['name']}")
            return there
        elif not NAME.fullmatch(identifier):
            raise Refused(400, "a context id must have 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
        if len(self.all) >= CONTEXTS_MAX:
            raise Refused(429, f"the limit of {CONTEXTS_MAX} contexts is reached: remove one")
        cwd = cwd or self.cwd
        if not os.path.isdir(cwd):
            raise Refused(400, f"`{cwd[:256]}` is not a directory")
        context = self.all[identifier] = Context(identifier, known, cwd, env or {}, self.environment)
        return context

    def find_or_create(self, identifier, language):
        """The context for a run: by its id, else the default one of the language, created on first use."""
        if identifier is None:
            identifier = default_of(self.language(language or "python")["name"])
        identifier = canonical(identifier)
        of = language_of_default(identifier)
        own = self.all[identifier].language["name"] if identifier in self.all else of
        if own is None:
            return self.get(identifier)
        if language is not None and kernels.canonical(language) != own:
            raise Refused(400, f"context `{identifier}` is for {own}, not for `{language[:64]}`")
        return self.all.get(identifier) or self.create(of, identifier=identifier)

    async def remove(self, identifier):
        context = self.get(identifier)
        del self.all[context.id]
        await context.remove()

    async def look(self):
        """Called when a child process died: finds which."""
        for context in list(self.all.values()):
            if context.kernel is not None:
                await context.kernel.look()

    async def close(self):
        """Stops everything."""
        for identifier in list(self.all):
            await self.remove(identifier)


def default_of(language):
    return "default" if language == "python" else f"default-{language}"


def canonical(identifier):
    """The canonical id of a context: `default-js` is `default-javascript`, because it is the same language."""
    language = language_of_default(identifier)
    return identifier if language is None else default_of(kernels.canonical(language))


def language_of_default(identifier):
    """The language whose default context has this id, if any."""
    if identifier == "default":
        return "python"
    return identifier.removeprefix("default-") if identifier.startswith("default-") else None


# === Variables, permanent or for one run ===


class PythonEnvironment:
    @staticmethod
    def set(env):
        return f"__import__('os').environ.update({env!r})"

    @staticmethod
    def enter(env):
        return f"__import__('_burrow_kernel').enter({env!r})"

    @staticmethod
    def leave(env):
        return "__import__('_burrow_kernel').leave()"


class BashEnvironment:
    @staticmethod
    def set(env):
        return "\n".join(f"export {name}={quoted(value)}" for name, value in env.items())

    @staticmethod
    def enter(env):
        return "\n".join(f"[ -v {name} ] && _burrow_{name}=${name}; export {name}={quoted(value)}" for name, value in env.items())

    @staticmethod
    def leave(env):
        return "\n".join(
            f"unset {name}; [ -v _burrow_{name} ] && {{ export {name}=$_burrow_{name}; unset _burrow_{name}; }}" for name in env
        )


class JavaScriptEnvironment:
    @staticmethod
    def set(env):
        return f"Object.assign(process.env, {json.dumps(env)}); undefined"

    @staticmethod
    def enter(env):
        return f"globalThis._burrow = {{...process.env}}; Object.assign(process.env, {json.dumps(env)}); undefined"

    @staticmethod
    def leave(env):
        return (
            f"for (const name of {json.dumps(list(env))}) "
            "{ if (name in globalThis._burrow) process.env[name] = globalThis._burrow[name]; else delete process.env[name]; } undefined"
        )


class REnvironment:
    @staticmethod
    def set(env):
        return f"invisible(Sys.setenv({r_arguments(env)}))"

    @staticmethod
    def enter(env):
        names = ", ".join(json.dumps(name) for name in env)
        return f"options(burrow.environment = Sys.getenv(c({names}), unset = NA, names = TRUE)); {REnvironment.set(env)}"

    @staticmethod
    def leave(env):
        return (
            "invisible(local({ old <- getOption('burrow.environment'); Sys.unsetenv(names(old)[is.na(old)]); "
            "if (!all(is.na(old))) do.call(Sys.setenv, as.list(old[!is.na(old)])) }))"
        )


def r_arguments(env):
    return ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in env.items())


class JavaEnvironment:
    """Uses the map behind `System.getenv`, which kernel_java.py makes accessible. Child processes get the variables of the kernel."""

    MAP = (
        'var field = Class.forName("java.util.Collections$UnmodifiableMap").getDeclaredField("m"); field.setAccessible(true); '
        "@SuppressWarnings(\"unchecked\") var map = (java.util.Map<String, String>) field.get(System.getenv()); "
    )

    @staticmethod
    def set(env):
        return f"{{ {JavaEnvironment.MAP} {JavaEnvironment._put(env)} }}"

    @staticmethod
    def enter(env):
        keep = 'System.getProperties().put("burrow.environment", new java.util.HashMap<>(map));'
        return f"{{ {JavaEnvironment.MAP} {keep} {JavaEnvironment._put(env)} }}"

    @staticmethod
    def leave(env):
        names = ", ".join(json.dumps(name) for name in env)
        return (
            f"{{ {JavaEnvironment.MAP} var old = (java.util.Map<?, ?>) System.getProperties().remove(\"burrow.environment\"); "
            f"for (String name : new String[] {{{names}}}) "
            "{ if (old.containsKey(name)) map.put(name, (String) old.get(name)); else map.remove(name); } }"
        )

    @staticmethod
    def _put(env):
        # A JSON string is also a Java string.
        return " ".join(f"map.put({json.dumps(name)}, {json.dumps(value)});" for name, value in env.items())


def quoted(value):
    return "'" + value.replace("'", "'\\''") + "'"


ENVIRONMENTS = {
    "python": PythonEnvironment,
    "bash": BashEnvironment,
    "javascript": JavaScriptEnvironment,
    "typescript": JavaScriptEnvironment,
    "r": REnvironment,
    "java": JavaEnvironment,
}

"""Contexts, and the runs of code in them.

A context is a language, a directory and variables, which its kernel keeps. Runs in one context happen one after another, in the order
they came; contexts run beside one another.

    queued ──► running ──► ended: ok, error, interrupted, timed_out, output_limit, kernel_died
       └──────────────────► ended: interrupted

A kernel is started by the first run that needs one, and again after it died. No task exists while nothing is to be run.

Invariant: the last line of every run is `end_of_execution`, whatever happened.
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
# How long code may go on after the interrupt that its timeout or its output brought, before its kernel is killed: what a busy host may
# need to pass on what was written until then. Its variables go with it, which is worse than to wait.
PATIENCE_SECONDS = 15
# Setting variables takes a moment. A kernel that does not come to it within this time is busy in the background, and lost.
ASK_SECONDS_MAX = 60
# Code counts as just begun for as long as a busy machine may need to prepare it.
FRESH_SECONDS = 1
AGAIN_SECONDS = 0.5
AGAIN_MAX = 8
# Where that disturbs nobody: this time, then twice as long, and so on.
AGAIN_SECONDS_MIN = 0.05
# A kernel that refuses whatever follows an error does so for a fifth of a second.
ABORTED_MAX = 10
ABORTED_SECONDS = 0.1
# Of one line of standard output: the rest follows in the next. Whoever reads lines has a bound for them.
TEXT_CHARS_MAX = 256 << 10
# Of one result, which is one line: forms that do not fit are named in its text instead.
RESULT_BYTES_MAX = 7 << 20
# The daemon refuses a line that takes more memory than this when it is parsed (`events.weight`), and one that is nested deeper than 127
# levels; with some left for what it is wrapped in on its way.
RESULT_WEIGHT_MAX = 64 << 20
RESULT_DEPTH_MAX = 120

# Languages whose default contexts are listed from the beginning, as with E2B.
DEFAULTS = ("python", "javascript")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


class Refused(Exception):
    """A request that is not done; says why, and what would be."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Run:
    """One piece of code: what it is, what it said, how it ended."""

    def __init__(self, code, env=None, timeout=None, output_bytes_max=OUTPUT_BYTES_MAX):
        self.code = code
        self.env = env or {}
        self.timeout = timeout
        self.left = self.output_bytes_max = output_bytes_max
        self.lines = asyncio.Queue()
        self.ended = False
        # An error was told.
        self.failed = False
        self.execution_count = 0
        self.began_at = time.monotonic()
        # Why it is to stop, and the error that says so; set once.
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
        """Passes on what its kernel says, within its bound."""
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
            # The interrupt's own; what is told is why there was one, and where it hit.
            self.last_word["traceback"] = event["traceback"]

    def _say_within_bound(self, event):
        line = events.line(event)
        if len(line) <= self.left:
            self.left -= len(line)
            self.lines.put_nowait(line)
            return
        if event["type"] in ("stdout", "stderr"):
            # As much of it as fits: what an endless loop printed tells what it did.
            self.say({**event, "text": event["text"][: self.left]})
        self.left = 0
        self.stop("output_limit", "OutputLimitError", f"there were more than {self.output_bytes_max} bytes of output")

    def say(self, event):
        self.lines.put_nowait(events.line(event))

    def stop(self, why, name=None, value=None):
        """Asks it to stop. The first to ask is who it is said to have stopped for; but a mere interrupt may be ignored, a bound not."""
        if self.ended or self.last_word is not None or (self.stopped is not None and name is None):
            return
        self.stopped = why
        if name is not None:
            self.last_word = events.error(name, value, [])
        if self.request is not None:
            self.request.news.set()

    def end(self, status):
        """Says the last lines."""
        if self.ended:
            return
        if status == "interrupted" and not self.failed and self.last_word is None:
            # Not every kernel says so by itself, and what never began says nothing.
            self.last_word = events.error("KeyboardInterrupt", "interrupted" if self.request else "interrupted before it began", [])
        if self.last_word is not None:
            self.last_word["traceback"] = self.last_word["traceback"] or f"{self.last_word['name']}: {self.last_word['value']}"
            self.say(self.last_word)
        duration_ms = int((time.monotonic() - self.began_at) * 1000)
        self.say({"type": "end_of_execution", "status": status, "execution_count": self.execution_count, "duration_ms": duration_ms})
        self.ended = True
        self.lines.put_nowait(None)

    def fail(self, status, name, value):
        """Ends it with an error of ours."""
        self.last_word = events.error(name, value, [])
        self.end(status)


def parts(event):
    """Long output in several events."""
    text = event.get("text", "")
    if event["type"] == "result":
        return [fitting(event)]
    if event["type"] not in ("stdout", "stderr") or len(text) <= TEXT_CHARS_MAX:
        return [event]
    return [{**event, "text": text[at : at + TEXT_CHARS_MAX]} for at in range(0, len(text), TEXT_CHARS_MAX)]


def fitting(result):
    """A result without the forms that nobody could read, and then without the largest until it fits; its text tells of them."""
    lines, left_out = {}, []
    for form, value in result.items():
        try:
            lines[form] = events.line({form: value})
        except RecursionError:
            left_out.append(too_deep(form))
    sizes = {form: len(line) for form, line in lines.items()}
    for form in until_they_fit(sizes, RESULT_BYTES_MAX):
        left_out.append(f"[{form} of {len(lines.pop(form))} bytes left out: write it to a file]")
    # Only of what is small enough to be looked through.
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
    """Those to leave out, the largest first, so that the others are no more than `most` together."""
    left = sum(sizes.values())
    for form in sorted(sizes, key=sizes.get, reverse=True):
        if left <= most:
            return
        left -= sizes[form]
        yield form


def too_deep(form):
    return f"[{form} nested more than {RESULT_DEPTH_MAX} levels deep left out: write it to a file]"


class Context:
    """One language's variables, and who waits to use them."""

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
        # Held while a kernel is started or ended.
        self.changing = asyncio.Lock()
        self.removed = False
        self.had_kernel = False
        # Variables of the sandbox, which all contexts share; their own come first.
        self.shared = shared

    def shown(self):
        if self.running is not None:
            state = "busy"
        elif self.kernel is None and not self.had_kernel:
            # The first run starts its kernel.
            state = "idle"
        elif self.kernel is None or self.kernel.dead:
            state = "dead"
        else:
            # With code that was left before it began, a kernel is busy in the background.
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
        """Puts a run at the end of the queue."""
        if len(self.queue) >= QUEUE_MAX:
            raise Refused(429, f"{QUEUE_MAX} runs wait in context `{self.id}`: try again when some are done, or make another context")
        if run.env and self.language["name"] not in ENVIRONMENTS:
            known = ", ".join(sorted(ENVIRONMENTS))
            raise Refused(400, f"variables for one run can be set in {known}; for {self.language['name']} give them when the context is made")
        if self.kernel is not None and len(self.kernel.left) >= QUEUE_MAX:
            raise Refused(429, f"{QUEUE_MAX} runs in context `{self.id}` were interrupted before its kernel came to them: restart it")
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
                except Exception:  # A bug of ours costs one run, and who reads is told.
                    LOG.exception("a run in context %s was lost", self.id)
                    run.fail("kernel_died", "BridgeError", "the run was lost by the bridge; its log says why")
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
            # Stopped in the meantime: nobody waits for its code.
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
        """Has the kernel run code of ours, within the time of the run. If it does not come to it, it is dead afterwards."""
        deadline = time.monotonic() + ASK_SECONDS_MAX
        if run.timeout is not None:
            deadline = min(deadline, max(time.monotonic(), run.began_at + run.timeout) + PATIENCE_SECONDS)
        await kernel.ask(code, deadline - time.monotonic())

    async def _execute(self, kernel, run):
        """Runs its code; how it ended."""
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
        """Waits for the end of a run and brings it about when it is time; how it ended."""
        request = run.request
        deadline = None if run.timeout is None else run.began_at + run.timeout
        patience = None
        # Why it was to stop when that was last seen, and when it was last interrupted.
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
                # Code that has not begun cannot be interrupted, and may never begin: that has an end, too.
                seen, patience = run.stopped, now + PATIENCE_SECONDS
            if run.stopped != answered and request.begun_at is not None:
                answered = run.stopped
                again = Again(request, now, kernel.keeps_interrupts)
                await kernel.interrupt()
                # Somebody who only left, or asked for an interrupt, does not cost others their variables.
                patience = now + PATIENCE_SECONDS if run.last_word is not None else None
            if patience is not None and now >= patience:
                return await self._give_up(kernel, run)
            if again is not None and again.is_due(now):
                await kernel.interrupt_again()
            await until_next(request.news, done_at, deadline, patience, again and again.at)

    async def _give_up(self, kernel, run):
        """Ends a run that an interrupt did not end; how it is said to have ended."""
        if run.last_word is None:
            kernel.leave()
            value = "interrupted before it began: its kernel is busy in the background, which a restart of the context ends"
            run.last_word = events.error("KeyboardInterrupt", value, [])
            return run.stopped
        await kernel.kill()
        if run.request.begun_at is not None:
            run.last_word["value"] += " and went on after it was interrupted: its kernel was killed, its variables are gone"
        elif run.stopped == "timed_out":
            run.last_word["value"] = not_begun(run)
        return run.stopped

    def interrupt(self):
        """Stops the run under way and all that wait."""
        while self.queue:
            self.queue.popleft().end("interrupted")
        if self.running is not None:
            self.running.stop("interrupted")

    def leave(self, run):
        """Its reader is gone: nobody will see what it does."""
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
        """Its kernel; a new one where there is none."""
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
        """Gives a kernel the sandbox's variables that have changed since it began: a fork has others than what it was forked from."""
        environment = ENVIRONMENTS.get(self.language["name"])
        changed = {name: value for name, value in self.shared.items() if name not in self.env and kernel.env.get(name) != value}
        if changed and environment is not None:
            await self._ask(kernel, run, environment.set(changed))
            kernel.env.update(changed)

    async def prepare(self):
        """Starts its kernel ahead of the first run."""
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
        """A new kernel; what ran and what waited is over."""
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
    """An interrupt that may have to be sent once more.

    Between the word that code begins and its first line most kernels prepare it, and lose an interrupt there now and then. So code
    that was interrupted right at its beginning, and has said nothing since, is interrupted again; other code is not, since it may be
    tidying up. Where no interrupt is lost, to send it again disturbs nobody.
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
    return f"the code did not begin within {run.timeout:g} s: its kernel was busy in the background and was killed, its variables are gone"


def dead(run):
    """The kernel ended beneath the run: how that is told."""
    if run.stopped is not None and run.last_word is not None:
        return run.stopped
    run.last_word = events.error("KernelDied", "the kernel died: its variables are gone; the next run starts a new one", [])
    return "kernel_died"


async def until_next(news, *moments):
    """Waits for news, or for the first of the moments."""
    known = [moment for moment in moments if moment is not None]
    await kernels.until(news, min(known, default=None))


class Contexts:
    """All contexts of this sandbox."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.all = {}
        self.environment = {}

    def create_defaults(self):
        """The contexts that E2B's clients find there before any code ran. They have no kernel until it does."""
        for language in kernels.languages():
            if language in DEFAULTS:
                self.create(language, identifier=default_of(language))

    def set_environment(self, env):
        """Variables that every kernel has from its next run on."""
        self.environment.clear()
        self.environment.update(env)

    def language(self, name):
        """An installed language."""
        found = kernels.languages()
        wanted = kernels.canonical(name)
        if wanted not in found:
            known = ", ".join(sorted(found)) or "none"
            raise Refused(400, f"no kernel for the language `{name[:64]}` is installed; there are: {known}")
        return found[wanted]

    def get(self, identifier):
        identifier = canonical(identifier)
        if identifier not in self.all:
            raise Refused(404, f"context `{identifier[:64]}` does not exist")
        return self.all[identifier]

    def create(self, language="python", cwd=None, env=None, identifier=None):
        """A new context; the one that is there when it has the id that is asked for."""
        known = self.language(language)
        identifier = secrets.token_hex(8) if identifier is None else canonical(identifier)
        if identifier in self.all:
            there = self.all[identifier]
            if there.language["name"] != known["name"]:
                raise Refused(409, f"context `{identifier}` is there already, for {there.language['name']}")
            return there
        elif not NAME.fullmatch(identifier):
            raise Refused(400, "the id of a context has up to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
        if len(self.all) >= CONTEXTS_MAX:
            raise Refused(429, f"there are {CONTEXTS_MAX} contexts, which is the most: remove one that is not needed")
        cwd = cwd or self.cwd
        if not os.path.isdir(cwd):
            raise Refused(400, f"`{cwd[:256]}` is not a directory")
        context = self.all[identifier] = Context(identifier, known, cwd, env or {}, self.environment)
        return context

    def find_or_create(self, identifier, language):
        """Whose turn it is: the context by its id, else the default one of the language, made on first use."""
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
        """A child has died: which?"""
        for context in list(self.all.values()):
            if context.kernel is not None:
                await context.kernel.look()

    async def close(self):
        """Ends everything."""
        for identifier in list(self.all):
            await self.remove(identifier)


def default_of(language):
    return "default" if language == "python" else f"default-{language}"


def canonical(identifier):
    """The id by which a context is known: `default-js` is `default-javascript`, as the languages are one."""
    language = language_of_default(identifier)
    return identifier if language is None else default_of(kernels.canonical(language))


def language_of_default(identifier):
    """The language whose default context has this id, if it is such an id."""
    if identifier == "default":
        return "python"
    return identifier.removeprefix("default-") if identifier.startswith("default-") else None


# === Variables, for good or for one run ===


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


def quoted(value):
    return "'" + value.replace("'", "'\\''") + "'"


ENVIRONMENTS = {
    "python": PythonEnvironment,
    "bash": BashEnvironment,
    "javascript": JavaScriptEnvironment,
    "typescript": JavaScriptEnvironment,
}

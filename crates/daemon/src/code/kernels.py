"""One kernel: a process that runs one language's code and keeps its variables.

    start ──► ready ──► execute, execute, … ──► killed, or dead by itself

It is spoken to through jupyter_client. Nothing here polls: what a kernel says arrives on its sockets, that it died by SIGCHLD. So a
sandbox whose kernels have nothing to do is idle, and may fall asleep.

Invariant: at most one request is under way, so that whatever a kernel says is about that one. Beside it are those that were left before
their code began: nobody hears of them, and they are interrupted when they begin.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time

import zmq
import zmq.asyncio
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOG = logging.getLogger("burrow.code")

# On an emulated processor the first import of everything takes its time.
READY_SECONDS_MAX = 120
# Between "it is done" on one socket and on the other. Both are said; when one is lost, this ends the wait.
HALF_DONE_SECONDS_MAX = 5
# Code that was left before it began has this long to end by itself, then is interrupted; and again, while it says nothing.
LEFT_SECONDS = 0.5
LEFT_INTERRUPTS_MAX = 6
# A kernel is asked again whether it is there, since what was published before the subscription arrived is gone.
ASK_AGAIN_SECONDS = 0.25

ALIASES = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "node": "javascript",
    "ts": "typescript",
    "sh": "bash",
    "shell": "bash",
}


class KernelFailed(Exception):
    """A kernel could not be started."""


def languages():
    """Language to kernel: what is installed, each by the kernel that is named after it, or else the first."""
    found = {}
    for name, entry in sorted(specs().get_all_specs().items()):
        spec = entry["spec"]
        language = canonical(spec.get("language") or name)
        if language not in found or name in (language, "python3"):
            found[language] = {"name": language, "kernel": name, "display_name": spec.get("display_name", name), "argv": spec["argv"]}
    return found


def specs():
    """Where kernels are described: in files only. To have it add our own Python would load all of IPython here."""
    return KernelSpecManager(ensure_native_kernel=False)


def canonical(language):
    """A language by the name it has here."""
    language = language.strip().lower()
    return ALIASES.get(language, language)


class Request:
    """Code that a kernel was asked to run, and how far it is."""

    def __init__(self, identifier, hear, begins_with="execute_input"):
        self.id = identifier
        self.begins_with = begins_with
        # Called with every message about it.
        self.hear = hear
        # Set by anything that may change what is to be done next.
        self.news = asyncio.Event()
        # When its code began, so that an interrupt reaches it; before, a kernel ignores one.
        self.begun_at = None
        self.idle = False
        self.reply = None
        self.heard_at = time.monotonic()

    def take(self, message):
        self.heard_at = time.monotonic()
        kind = message["msg_type"]
        if kind == "execute_reply":
            self.reply = message["content"]
        elif kind == "status":
            self.idle = message["content"]["execution_state"] == "idle"
        if self.begun_at is None and kind == self.begins_with:
            self.begun_at = self.heard_at
        try:
            self.hear(message)
        finally:
            if kind in ("execute_reply", "execute_input", "status"):
                self.news.set()

    def was_aborted(self):
        """It was not run at all: some kernels refuse for a moment whatever comes after an error."""
        return self.reply is not None and self.reply.get("status") in ("abort", "aborted")

    def done_at(self):
        """When it counts as done, whatever else is heard: `None` while neither side has said so."""
        if self.idle and self.reply is not None:
            return self.heard_at
        if self.idle or self.reply is not None:
            return self.heard_at + HALF_DONE_SECONDS_MAX
        return None


class Kernel:
    """A kernel that is ready, or was."""

    # One for all: each has threads of its own. Nothing is dropped on arrival; who reads bounds what is kept.
    sockets = None

    def __init__(self, language, cwd, env):
        self.language = language["name"]
        # Ours to interrupt from here on. Not every kernel tells what it was given; then it is told by being busy.
        self.begins_with = "execute_input" if transport(language["argv"]) == "ipc" else "status"
        # By what kernel_python.py teaches it.
        self.keeps_interrupts = self.language == "python"
        self.folder = tempfile.mkdtemp(prefix="burrow-kernel-")
        self.manager = AsyncKernelManager(
            kernel_name=language["kernel"],
            kernel_spec_manager=specs(),
            connection_file=os.path.join(self.folder, "kernel.json"),
            transport=transport(language["argv"]),
            context=shared_sockets(),
        )
        self.cwd, self.env = cwd, env
        self.request = None
        self.dead = False
        self.buried = False
        self.client = None
        # By their id: requests that nobody waits for, and that are not over.
        self.left = {}
        # Listeners, and who sees off what was left: ended with the kernel.
        self.tasks = set()

    @classmethod
    async def start(cls, language, cwd, env):
        """A new kernel, ready for code."""
        kernel = cls(language, cwd, env)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await kernel._launch()
                await kernel._prepare()
        except BaseException as error:
            await kernel.kill()
            if isinstance(error, Exception):
                said = "it took too long" if isinstance(error, TimeoutError) else error
                raise KernelFailed(f"the {kernel.language} kernel did not start: {said}") from error
            raise
        return kernel

    async def _launch(self):
        await self.manager.start_kernel(cwd=self.cwd, env=self.env)
        self.client = self.manager.client()
        self.client.allow_stdin = False
        # Without the heartbeat, a thread that wakes up every second: a kernel that dies is noticed otherwise.
        self.client.start_channels(shell=True, iopub=True, stdin=False, hb=False, control=False)
        for receive in (self.client.get_iopub_msg, self.client.get_shell_msg):
            self._spawn(self._listen(receive))
        published = asyncio.Event()

        def hear(message):
            if message["msg_type"] == "status":
                published.set()

        # Its answers come by two ways; code may be sent when both are open.
        while not published.is_set():
            await self.look()
            if self.dead:
                raise KernelFailed("it ended at once")
            await self._send("kernel_info_request", {}, hear)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(published.wait(), ASK_AGAIN_SECONDS)
        self.request = None

    async def _prepare(self):
        """Teaches a Python kernel what charts and data frames are."""
        if self.language != "python":
            return
        path = os.path.join(FOLDER, "kernel_python.py")
        # In a namespace of its own: nothing appears among the variables of whoever uses the kernel.
        code = f"exec(compile(open({path!r}).read(), {path!r}, 'exec'), {{'__name__': '_burrow_kernel', '__file__': {path!r}}})"
        reply = await self.ask(code, READY_SECONDS_MAX)
        if reply is None or reply.get("status") != "ok":
            raise KernelFailed(f"it refused kernel_python.py: {reply}")

    async def _listen(self, receive):
        while True:
            try:
                message = await receive()
            except Exception as error:  # Whatever it is: who stops listening never hears that a run is over.
                LOG.warning("a kernel sent what is not a message: %r", error)
                continue
            try:
                self._take(message)
            except Exception:  # One message is lost; those after it are not.
                LOG.exception("a kernel sent a message that could not be passed on")

    def _take(self, message):
        parent = message["parent_header"].get("msg_id")
        request = self.left.get(parent, self.request)
        if request is None or parent != request.id:
            return
        request.take(message)
        if request.done_at() is not None:
            self.left.pop(parent, None)

    def _spawn(self, work):
        task = asyncio.create_task(work, name=f"kernel of {self.language}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # === impl: requests ===

    async def execute(self, code, hear, silent=False, output_bytes_max=None):
        """Sends code; what is said about it is heard by `hear`. What it writes beyond the bound need not be said."""
        if self.dead:
            self.request = Request(None, hear)
            self.request.news.set()
            return self.request
        content = {
            "code": code,
            "silent": silent,
            "store_history": not silent,
            "user_expressions": {},
            "allow_stdin": False,
            # Else a kernel refuses what is sent right after an error; and nothing is ever sent ahead.
            "stop_on_error": False,
        }
        return await self._send("execute_request", content, hear, {"burrow_output_bytes_max": output_bytes_max})

    async def _send(self, kind, content, hear, metadata=None):
        """Sends a message, by the socket that is also listened to.

        Not through the client: it sends past the event loop, which then may never learn of an answer that arrived in that moment.
        """
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.request = Request(message["header"]["msg_id"], hear, self.begins_with)
        await self.client.shell_channel.socket.send_multipart(self.client.session.serialize(message))
        return self.request

    def finish(self):
        """Hears no more about the request under way."""
        self.request = None

    def leave(self):
        """Waits no more for the request under way, whose code has not begun. A kernel cannot be told to forget it: it is stopped later."""
        request, self.request = self.request, None
        request.hear = lambda message: None
        self.left[request.id] = request
        self._spawn(self._see_off(request))

    async def _see_off(self, request):
        """Interrupts what was left when it begins, until it is over or says something."""
        while request.begun_at is None and request.done_at() is None:
            await until(request.news, None)
        sent_at = None
        for _ in range(LEFT_INTERRUPTS_MAX):
            # Not at once: short code is over before an interrupt arrives, which would then hit the run after it.
            await asyncio.sleep(LEFT_SECONDS)
            if request.done_at() is not None or (sent_at is not None and request.heard_at > sent_at):
                return
            if sent_at is None:
                sent_at = time.monotonic()
                await self.interrupt()
            else:
                await self.interrupt_again()

    async def ask(self, code, seconds_max):
        """Runs code of our own, unheard; its reply, or `None` where there was none. A kernel that takes longer is killed."""
        deadline = time.monotonic() + seconds_max
        request = await self.execute(code, lambda message: None, silent=True)
        try:
            while not self.dead:
                done_at = request.done_at()
                now = time.monotonic()
                if done_at is not None and now >= done_at:
                    break
                if now >= deadline:
                    await self.kill()
                await until(request.news, min(deadline, done_at or deadline))
            return request.reply
        finally:
            self.finish()

    # === impl: signals ===

    async def interrupt(self):
        """Has the code under way stop, as Ctrl-C does: it and the processes it started."""
        if not self.dead:
            with contextlib.suppress(ProcessLookupError, RuntimeError):
                await self.manager.interrupt_kernel()

    async def interrupt_again(self):
        """For one that may have been lost. One that is kept only needs waking: a process that falls asleep in the moment in which it is
        interrupted sleeps on, and learns of it with the next signal."""
        if not self.keeps_interrupts:
            await self.interrupt()
        elif not self.dead and self._pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid(), signal.SIGURG)

    def _pid(self):
        """Its process; `None` before it was started and after it was seen off."""
        return getattr(self.manager.provisioner, "pid", None)

    async def look(self):
        """Looks whether it lives, after a child has died."""
        if not self.dead and self.manager.has_kernel and not await self.manager.is_alive():
            self._mark_dead()

    def _mark_dead(self):
        self.dead = True
        if self.request is not None:
            self.request.news.set()

    async def kill(self):
        """Ends it and the processes of its group, at once; a second time does nothing."""
        self._mark_dead()
        if self.buried:
            return
        self.buried = True
        for task in self.tasks:
            task.cancel()
        if self.manager.has_kernel:
            # A kernel leads a group of its own; what its code started in the background belongs to it.
            if self._pid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid(), signal.SIGKILL)
            await self.manager.shutdown_kernel(now=True)
        if self.client is not None:
            self.client.stop_channels()
        shutil.rmtree(self.folder, ignore_errors=True)


def transport(argv):
    """Sockets in a folder where the kernel is written in Python; the others know only TCP, on loopback and signed."""
    return "ipc" if os.path.basename(argv[0]).startswith("python") else "tcp"


def shared_sockets():
    if Kernel.sockets is None:
        Kernel.sockets = zmq.asyncio.Context()
        Kernel.sockets.setsockopt(zmq.RCVHWM, 0)
    return Kernel.sockets


async def until(event, deadline):
    """Waits for the event, or for the moment on the monotonic clock; clears the event."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if deadline is None else max(0, deadline - time.monotonic())):
            await event.wait()
    event.clear()

"""One kernel: a process that runs one language's code and keeps its variables.

    start ──► ready ──► execute, execute, … ──► killed, or dead by itself

Uses jupyter_client. Nothing is polled: messages of a kernel arrive on its sockets, its death is reported by SIGCHLD. So a
sandbox whose kernels have nothing to do is idle, and can be put to sleep.

Invariant: at most one request is active, so all messages of a kernel concern it. In addition there are abandoned requests whose
code has not started: their messages are ignored, and they are interrupted when they start.
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

# On an emulated processor the first import of everything is slow.
READY_SECONDS_MAX = 120
# Time between the two completion messages, on different sockets. Both are sent; if one is lost, this ends the wait.
HALF_DONE_SECONDS_MAX = 5
# Abandoned code has this long to end by itself after it started, then it is interrupted; and again, while it sends no message.
LEFT_SECONDS = 0.5
LEFT_INTERRUPTS_MAX = 6
# A kernel is probed again, because messages published before the subscription was active are lost.
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
    """Maps each installed language to a kernel: the one named after it, or else the first."""
    found = {}
    for name, entry in sorted(specs().get_all_specs().items()):
        spec = entry["spec"]
        language = canonical(spec.get("language") or name)
        if language not in found or name in (language, "python3"):
            found[language] = {"name": language, "kernel": name, "display_name": spec.get("display_name", name), "argv": spec["argv"]}
    return found


def specs():
    """Kernel descriptions, from files only. Including our own Python would load all of IPython here."""
    return KernelSpecManager(ensure_native_kernel=False)


def canonical(language):
    """A language by its canonical name."""
    language = language.strip().lower()
    return ALIASES.get(language, language)


class Request:
    """A request to run code, and its progress."""

    def __init__(self, identifier, hear, begins_with="execute_input"):
        self.id = identifier
        self.begins_with = begins_with
        # Called with every message about it.
        self.hear = hear
        # Set by every event that may require an action.
        self.news = asyncio.Event()
        # When its code started, so that an interrupt reaches it; before, a kernel ignores interrupts.
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
        """Whether it was not run at all: some kernels reject requests for a moment after an error."""
        return self.reply is not None and self.reply.get("status") in ("abort", "aborted")

    def done_at(self):
        """When it counts as completed even without further messages: `None` while neither completion message has arrived."""
        if self.idle and self.reply is not None:
            return self.heard_at
        if self.idle or self.reply is not None:
            return self.heard_at + HALF_DONE_SECONDS_MAX
        return None


class Kernel:
    """A kernel that is ready, or was."""

    # One context for all kernels: each context has its own threads. Messages are never dropped on arrival; the readers limit what is kept.
    sockets = None

    def __init__(self, language, cwd, env):
        self.language = language["name"]
        # From here on it can be interrupted. Not every kernel reports its input; then the busy status counts.
        self.begins_with = "execute_input" if transport(language["argv"]) == "ipc" else "status"
        # Supported by the code of kernel_python.py.
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
        # By id: abandoned requests that have not ended.
        self.left = {}
        # The tasks that read messages and handle abandoned requests; they end with the kernel.
        self.tasks = set()

    @classmethod
    async def start(cls, language, cwd, env):
        """Starts a new kernel, and waits until it can run code."""
        kernel = cls(language, cwd, env)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await kernel._launch()
                await kernel._prepare()
        except BaseException as error:
            await kernel.kill()
            if isinstance(error, Exception):
                said = "timeout" if isinstance(error, TimeoutError) else error
                raise KernelFailed(f"the {kernel.language} kernel did not start: {said}") from error
            raise
        return kernel

    async def _launch(self):
        await self.manager.start_kernel(cwd=self.cwd, env=self.env)
        self.client = self.manager.client()
        self.client.allow_stdin = False
        # Without the heartbeat, a thread that wakes up every second: the death of a kernel is detected in another way.
        self.client.start_channels(shell=True, iopub=True, stdin=False, hb=False, control=False)
        for receive in (self.client.get_iopub_msg, self.client.get_shell_msg):
            self._spawn(self._listen(receive))
        published = asyncio.Event()

        def hear(message):
            if message["msg_type"] == "status":
                published.set()

        # Its responses use two sockets; code may be sent when both are connected.
        while not published.is_set():
            await self.look()
            if self.dead:
                raise KernelFailed("it ended immediately")
            await self._send("kernel_info_request", {}, hear)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(published.wait(), ASK_AGAIN_SECONDS)
        self.request = None

    async def _prepare(self):
        """Adds the formats for charts and data frames to a Python kernel."""
        if self.language != "python":
            return
        path = os.path.join(FOLDER, "kernel_python.py")
        # In a separate namespace: nothing is added to the variables of the user.
        code = f"exec(compile(open({path!r}).read(), {path!r}, 'exec'), {{'__name__': '_burrow_kernel', '__file__': {path!r}}})"
        reply = await self.ask(code, READY_SECONDS_MAX)
        if reply is None or reply.get("status") != "ok":
            raise KernelFailed(f"kernel_python.py failed: {reply}")

    async def _listen(self, receive):
        while True:
            try:
                message = await receive()
            except Exception as error:  # For any error: without the reader, the end of a run would never be noticed.
                LOG.warning("a kernel sent an invalid message: %r", error)
                continue
            try:
                self._take(message)
            except Exception:  # Only this message is lost.
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
        """Sends code; `hear` receives the messages about it. Output beyond the limit may be dropped."""
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
            # Otherwise a kernel rejects requests right after an error; requests are never queued in the kernel.
            "stop_on_error": False,
        }
        return await self._send("execute_request", content, hear, {"burrow_output_bytes_max": output_bytes_max})

    async def _send(self, kind, content, hear, metadata=None):
        """Sends a message, on the socket that is also read.

        Not through the client: it bypasses the event loop, which may then miss a response that arrived at that moment.
        """
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.request = Request(message["header"]["msg_id"], hear, self.begins_with)
        await self.client.shell_channel.socket.send_multipart(self.client.session.serialize(message))
        return self.request

    def finish(self):
        """Ignores further messages about the active request."""
        self.request = None

    def leave(self):
        """Abandons the active request, whose code has not started. A kernel cannot cancel it: it is interrupted later."""
        request, self.request = self.request, None
        request.hear = lambda message: None
        self.left[request.id] = request
        self._spawn(self._see_off(request))

    async def _see_off(self, request):
        """Interrupts an abandoned request when it starts, until it ends or sends a message."""
        while request.begun_at is None and request.done_at() is None:
            await until(request.news, None)
        sent_at = None
        for _ in range(LEFT_INTERRUPTS_MAX):
            # Not immediately: short code would end before the interrupt arrives, which would then hit the next run.
            await asyncio.sleep(LEFT_SECONDS)
            if request.done_at() is not None or (sent_at is not None and request.heard_at > sent_at):
                return
            if sent_at is None:
                sent_at = time.monotonic()
                await self.interrupt()
            else:
                await self.interrupt_again()

    async def ask(self, code, seconds_max):
        """Runs internal code without reporting its output; returns its reply, or `None` if there was none. A kernel that takes longer is killed."""
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
        """Interrupts the running code, as Ctrl-C does: it and the processes it started."""
        if not self.dead:
            with contextlib.suppress(ProcessLookupError, RuntimeError):
                await self.manager.interrupt_kernel()

    async def interrupt_again(self):
        """Repeats an interrupt that may have been lost. A recorded interrupt only has to be delivered: a process that falls asleep at the moment of
        an interrupt continues to sleep, and notices it with the next signal."""
        if not self.keeps_interrupts:
            await self.interrupt()
        elif not self.dead and self._pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid(), signal.SIGURG)

    def _pid(self):
        """Its process; `None` before it was started and after it was reaped."""
        return getattr(self.manager.provisioner, "pid", None)

    async def look(self):
        """Checks whether it is alive, after a child process died."""
        if not self.dead and self.manager.has_kernel and not await self.manager.is_alive():
            self._mark_dead()

    def _mark_dead(self):
        self.dead = True
        if self.request is not None:
            self.request.news.set()

    async def kill(self):
        """Kills it and the processes of its group; has no effect the second time."""
        self._mark_dead()
        if self.buried:
            return
        self.buried = True
        for task in self.tasks:
            task.cancel()
        if self.manager.has_kernel:
            # A kernel leads its own process group, which includes background processes of its code.
            if self._pid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid(), signal.SIGKILL)
            await self.manager.shutdown_kernel(now=True)
        if self.client is not None:
            self.client.stop_channels()
        shutil.rmtree(self.folder, ignore_errors=True)


def transport(argv):
    """Unix sockets if the kernel is written in Python; the others support only TCP, on loopback and with signatures."""
    return "ipc" if os.path.basename(argv[0]).startswith("python") else "tcp"


def shared_sockets():
    if Kernel.sockets is None:
        Kernel.sockets = zmq.asyncio.Context()
        Kernel.sockets.setsockopt(zmq.RCVHWM, 0)
    return Kernel.sockets


async def until(event, deadline):
    """Waits for the event, or until a time of the monotonic clock; clears the event."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if deadline is None else max(0, deadline - time.monotonic())):
            await event.wait()
    event.clear()

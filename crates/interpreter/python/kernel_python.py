"""Runs silently in every Python kernel at its start, in a separate namespace.

Adds two formats to those of IPython (a data frame as columns, a figure as a chart), sets environment variables
for one run, ensures that no interrupt and no output of processes is lost, and limits the output.
Imports nothing that is slow: pandas and matplotlib may never be used.
"""

import asyncio
import contextlib
import datetime
import decimal
import importlib.abc
import importlib.util
import math
import os
import signal
import sys
import threading
import time
import types

import zmq
from IPython import get_ipython
from IPython.core.formatters import JSONFormatter
from IPython.display import display
from traitlets import ObjectName, Unicode

# Larger frames are shown as text and HTML, which pandas shortens; clients do not need more than this in a result.
CELLS_MAX = 100_000

# JSON parsers read larger integers as floats, which lose precision: from here on they are text.
INTEGER_END = 10**308

CHARTS = os.path.join(os.path.dirname(__file__), "kernel_charts.py")


class DataFormatter(JSONFormatter):
    """A data frame as columns."""

    format_type = Unicode("application/vnd.burrow.data+json")
    print_method = ObjectName("_repr_burrow_data_")


class ChartFormatter(JSONFormatter):
    """A figure as a chart."""

    format_type = Unicode("application/vnd.burrow.chart+json")
    print_method = ObjectName("_repr_burrow_chart_")


def columns(frame):
    """Maps columns to lists of values; `None` for a frame with too many cells."""
    rows, width = frame.shape
    if rows * width > CELLS_MAX:
        return None
    return {str(name): [plain(value) for value in frame.iloc[:, at].tolist()] for at, name in enumerate(frame.columns)}


def polars_columns(frame):
    """The same for a frame of polars."""
    if frame.height * frame.width > CELLS_MAX:
        return None
    return {name: [plain(value) for value in values] for name, values in frame.to_dict(as_series=False).items()}


def plain(value):
    """A value in JSON; unsupported values as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < INTEGER_END else str(value)
    if isinstance(value, (float, decimal.Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        # Pandas' "not a time" is an instance, too.
        return None if value != value else value.isoformat()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    text = str(value)
    return None if text in ("NaT", "<NA>", "nan") else text


def quietly(work):
    """Returns no result on errors, so that the value is shown in its other formats: an unreadable chart must not prevent the picture."""

    def attempt(value):
        try:
            return work(value)
        except Exception:
            return None

    return attempt


def chart(figure):
    """The chart of a figure, read by another file that is loaded with the first figure."""
    return charts().read(figure)


def charts():
    """The module that reads charts."""
    name = "_burrow_charts"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, CHARTS)
        module = importlib.util.module_from_spec(spec)
        module.plain = plain
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def teach_figures(module):
    """Adds the format to figures. By a method: functions registered for figures are dropped whenever a backend is chosen.

    From now on the statistics of box plots are recorded, too: they cannot be read from the drawn elements.
    """
    module.Figure._repr_burrow_chart_ = quietly(chart)
    quietly(charts().watch_boxes)(sys.modules["matplotlib.axes"].Axes)


def teach_pictures(module):
    """In a sandbox of E2B's clients, a picture that is shown, or saved to a path, is also a result in its current state. Figures of
    matplotlib are saved as such pictures."""
    picture = module.Image
    save, show = picture.save, picture.show

    def saving(self, fp, *given, **options):
        if isinstance(fp, str) and "E2B_SANDBOX" in os.environ:
            quietly(display)(self)
        return save(self, fp, *given, **options)

    def showing(self, *given, **options):
        return display(self) if "E2B_SANDBOX" in os.environ else show(self, *given, **options)

    for ours, theirs in ((saving, save), (showing, show)):
        ours.__name__, ours.__doc__, ours.__wrapped__ = theirs.__name__, theirs.__doc__, theirs
    picture.save, picture.show = saving, showing


class AfterImport(importlib.abc.MetaPathFinder):
    """Patches a module when it is imported for the first time."""

    def __init__(self, name, teach):
        self.name, self.teach = name, teach

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_teach(module):
                load(module)
                self.teach(module)

            spec.loader.exec_module = load_and_teach
        return spec


def register(shell):
    """Registers the formats in the kernel."""
    forms = shell.display_formatter
    for formatter in (DataFormatter(parent=forms), ChartFormatter(parent=forms)):
        forms.formatters[formatter.format_type] = formatter
    data = forms.formatters["application/vnd.burrow.data+json"]
    data.for_type_by_name("pandas.core.frame", "DataFrame", quietly(columns))
    # The module that pandas reports for its frames, since 3.0.
    data.for_type_by_name("pandas", "DataFrame", quietly(columns))
    data.for_type_by_name("polars.dataframe.frame", "DataFrame", quietly(polars_columns))
    for name, teach in (("matplotlib.figure", teach_figures), ("PIL.Image", teach_pictures)):
        if name in sys.modules:
            teach(sys.modules[name])
        else:
            sys.meta_path.insert(0, AfterImport(name, teach))


# === Variables for one run ===

BEFORE = {}


def enter(env):
    """Sets variables, and stores the previous values."""
    leave()
    for name, value in env.items():
        BEFORE[name] = os.environ.get(name)
        os.environ[name] = value


def leave():
    """Restores the previous values."""
    while BEFORE:
        name, value = BEFORE.popitem()
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# === Limits of a run ===

# Pause of output beyond the limit: code that wrote too much waits here for the interrupt of the bridge.
TOO_MUCH_SECONDS = 0.02

# How long the end of a run waits for the output of its processes. Some never stop writing.
HEAR_OUT_SECONDS = 1.0
HEAR_OUT_LOOK_EVERY = 0.001

BEFORE_IT_BEGAN = compile("raise KeyboardInterrupt('before the code began')", "<interrupt>", "exec")


class Bounds:
    """Delivers interrupts to the code only, and limits its output.

    A kernel prepares code and finishes runs in the thread that runs the code. An interrupt at these times is swallowed by IPython, or
    prevents the message that the run has ended. So outside the code interrupts are only recorded, and raised when the next code starts.

    Code that writes in a loop is faster than its reader: without a limit, the reader would be notified of the interrupt after minutes of
    unwanted output.
    """

    def __init__(self, shell):
        self.shell = shell
        self.kernel = shell.kernel
        self.interrupted = False
        # What an interrupt does in the code: the default handler, unless the code sets its own while it runs.
        self.handler = self.given = signal.default_int_handler
        # The current run, its output limit, and its output so far.
        self.run, self.most, self.written = None, None, 0
        # The previous handlers.
        self.write = None
        # One object, because it is compared by identity.
        self.note = self._note

    def install(self):
        run_code, trigger = self.shell.run_code, self.shell.events.trigger
        enter, leave = self.kernel.pre_handler_hook, self.kernel.post_handler_hook

        def entered():
            enter()
            self._begin()

        def left():
            self._hear_out()
            self.most = None
            leave()

        async def run_interruptibly(code, result=None, *, async_=False):
            outside = self._to_code()
            try:
                # Only now: from here on an interrupt is raised instead of recorded.
                if outside and self.interrupted:
                    code = self._interrupt_before(code)
                return await run_code(code, result, async_=async_)
            finally:
                self._from_code(outside)

        def trigger_interruptibly(event, *args, **kwargs):
            # Figures are drawn afterwards, which takes long enough to be interrupted. Nothing happens before.
            outside = event.startswith("post_") and self._to_code()
            try:
                trigger(event, *args, **kwargs)
            except KeyboardInterrupt:
                self.shell.showtraceback()
            finally:
                self._from_code(outside)

        self.kernel.pre_handler_hook, self.kernel.post_handler_hook = entered, left
        self.shell.run_code, self.shell.events.trigger = run_interruptibly, trigger_interruptibly
        # For all streams: IPython replaces the method of one of them during a run.
        streams = type(sys.stdout)
        if hasattr(streams, "set_parent"):
            self.write = streams.write
            streams.write = self._within_bound(self.write)
        self.kernel._cancel_on_sigint = self._cancelling
        # The signal with which the bridge wakes code that fell asleep at the moment of an interrupt.
        signal.signal(signal.SIGURG, lambda number, frame: None)

    def _begin(self):
        """A request has arrived; not all requests are runs."""
        self.interrupted = False
        self.handler = self.given = signal.default_int_handler
        signal.signal(signal.SIGINT, self.note)
        parent = self.kernel.get_parent("shell")
        self.run = parent.get("header", {}).get("msg_id")
        self.most = parent.get("metadata", {}).get("burrow_output_bytes_max")
        self.written = 0
        for stream in (sys.stdout, sys.stderr):
            # What IPython restored, from before the limit was installed.
            if self.write is not None and getattr(stream.write, "__func__", None) is self.write:
                vars(stream).pop("write", None)

    def _hear_out(self):
        """Waits for the output of processes that the code started: threads of the kernel read it with a delay. Later output
        belongs to no run; if the limit is exceeded, it does not wait."""
        until = time.monotonic() + HEAR_OUT_SECONDS
        for stream in (sys.stdout, sys.stderr):
            while time.monotonic() < until and not is_heard_out(stream):
                if self.most is not None and self.written > self.most:
                    return
                time.sleep(HEAR_OUT_LOOK_EVERY)

    def _note(self, number, frame):
        self.interrupted = True

    def _interrupt_before(self, code):
        """Handles an interrupt at the beginning of code; returns the code to run."""
        self.interrupted = False
        if self.handler is self.given:
            return BEFORE_IT_BEGAN
        if callable(self.handler):
            self.handler(signal.SIGINT, sys._getframe())
        return code

    def _to_code(self):
        """From here on interrupts are delivered to the code; returns whether they were not before."""
        outside = signal.getsignal(signal.SIGINT) is self.note and is_main_thread()
        if outside:
            signal.signal(signal.SIGINT, self.handler)
        return outside

    def _from_code(self, outside):
        if outside:
            self.handler = signal.signal(signal.SIGINT, self.note)

    @contextlib.contextmanager
    def _cancelling(self, task):
        """Runs code with `await`. The handler of the kernel does not wake a sleeping loop, and ignores interrupts before it started."""
        loop = task.get_loop()

        def cancel(number, frame):
            if asyncio.current_task(loop) is task:
                signal.default_int_handler(number, frame)
            loop.call_soon_threadsafe(task.cancel)

        self.handler = self.given = cancel
        try:
            yield
        finally:
            self.handler = self.given = signal.default_int_handler

    def _within_bound(self, write):
        def write_within_bound(stream, text):
            if self.most is None or stream.parent_header.get("msg_id") != self.run:
                return write(stream, text)
            left = self.most - self.written
            if left >= 0:
                # One byte more than fits, so that the bridge detects that the limit was exceeded.
                self.written += len(text)
                write(stream, text[: left + 1])
            else:
                stream.flush()
                time.sleep(TOO_MUCH_SECONDS)
            return len(text)

        return write_within_bound


def is_heard_out(stream):
    """Whether the reader of the pipe behind a stream has read everything: then it waits in a system call whose first argument is the pipe."""
    pipe, reader = getattr(stream, "_fid", None), getattr(stream, "watch_fd_thread", None)
    if pipe is None or reader is None or not reader.is_alive():
        return True
    try:
        with open(f"/proc/self/task/{reader.native_id}/syscall", "rb") as where:
            call = where.read().split()
        return len(call) > 1 and call[1] == b"%#x" % pipe
    except OSError:
        return True


def queue_all_output(kernel):
    """Without this, ZeroMQ drops messages beyond a thousand that the bridge has not read yet. The output of a run is limited elsewhere."""
    thread = kernel.iopub_thread
    # The socket belongs to that thread; a change applies to existing connections as well.
    thread.schedule(lambda: thread.socket.setsockopt(zmq.SNDHWM, 0))


def is_main_thread():
    return threading.current_thread() is threading.main_thread()


# The bridge finds it under this name, which is hidden from lists of variables.
MODULE = types.ModuleType("_burrow_kernel")
MODULE.enter = enter
MODULE.leave = leave
sys.modules["_burrow_kernel"] = MODULE

register(get_ipython())
Bounds(get_ipython()).install()
queue_all_output(get_ipython().kernel)

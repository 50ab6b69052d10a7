"""Run silently in every Python kernel at its start, in a namespace of its own.

Teaches the kernel two forms of values beside those that IPython makes (a data frame as columns, a figure as a chart), to set variables
of the environment for one run, to lose no interrupt and no output of processes, and to write no more than is passed on.
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

from IPython import get_ipython
from IPython.core.formatters import JSONFormatter
from IPython.display import display
from traitlets import ObjectName, Unicode

# Larger frames are shown as text and HTML, which pandas shortens; nobody reads more than this out of a result.
CELLS_MAX = 100_000

# Readers of JSON take a larger integer for a float, which has none so large: from here on they are text.
INTEGER_END = 10**308

CHARTS = os.path.join(os.path.dirname(__file__), "kernel_charts.py")


class DataFormatter(JSONFormatter):
    """A data frame as columns."""

    format_type = Unicode("application/vnd.burrow.data+json")
    print_method = ObjectName("_repr_burrow_data_")


class ChartFormatter(JSONFormatter):
    """A figure as what was drawn in it."""

    format_type = Unicode("application/vnd.burrow.chart+json")
    print_method = ObjectName("_repr_burrow_chart_")


def columns(frame):
    """Column to list of values; `None` for a frame of too many cells."""
    rows, width = frame.shape
    if rows * width > CELLS_MAX:
        return None
    return {str(name): [plain(value) for value in frame.iloc[:, at].tolist()] for at, name in enumerate(frame.columns)}


def polars_columns(frame):
    """The same of a frame of polars."""
    if frame.height * frame.width > CELLS_MAX:
        return None
    return {name: [plain(value) for value in values] for name, values in frame.to_dict(as_series=False).items()}


def plain(value):
    """A value as JSON has it; what JSON has no form for as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < INTEGER_END else str(value)
    if isinstance(value, (float, decimal.Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        # Pandas' word for "no time" is one, too.
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
    """What cannot be told in this form is shown in its others: a chart we cannot read is no reason to lose its picture."""

    def attempt(value):
        try:
            return work(value)
        except Exception:
            return None

    return attempt


def chart(figure):
    """What was drawn in a figure; read by a file of its own, loaded with the first of them."""
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
    """Gives figures the form. By a method of theirs: functions for figures are dropped whenever a backend is chosen.

    From now on the figures of box plots are noted, too: they cannot be read from what was drawn.
    """
    module.Figure._repr_burrow_chart_ = quietly(chart)
    quietly(charts().watch_boxes)(sys.modules["matplotlib.axes"].Axes)


def teach_pictures(module):
    """In a sandbox of E2B's clients, a picture that is shown, or saved to a path, is a result as well, as it is there. Figures of
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
    """Teaches a module at the moment it is imported, by whomever."""

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
    """Makes the forms known to the kernel."""
    forms = shell.display_formatter
    for formatter in (DataFormatter(parent=forms), ChartFormatter(parent=forms)):
        forms.formatters[formatter.format_type] = formatter
    data = forms.formatters["application/vnd.burrow.data+json"]
    data.for_type_by_name("pandas.core.frame", "DataFrame", quietly(columns))
    # Where pandas says its frames come from, since 3.0.
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
    """Sets variables, and remembers what was there."""
    leave()
    for name, value in env.items():
        BEFORE[name] = os.environ.get(name)
        os.environ[name] = value


def leave():
    """Sets them back."""
    while BEFORE:
        name, value = BEFORE.popitem()
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# === Bounds of a run ===

# Between what is written in vain: whoever wrote too much waits here for the interrupt that the bridge sends.
TOO_MUCH_SECONDS = 0.02

# How long a run's end waits for what its processes wrote. Some go on writing for ever.
HEAR_OUT_SECONDS = 1.0
HEAR_OUT_LOOK_EVERY = 0.001

BEFORE_IT_BEGAN = compile("raise KeyboardInterrupt('before the code began')", "<interrupt>", "exec")


class Bounds:
    """Keeps interrupts for the code, and what it writes within what is passed on.

    A kernel prepares code and looks after it with the same thread that runs it. An interrupt that hits there is swallowed by IPython, or
    costs the answer that the run is over. So outside the code one is only noted, and the code that follows begins with it.

    Code that writes in a loop is faster than whoever reads: without a bound, the reader would learn of its interrupt behind minutes of
    output that nobody wants.
    """

    def __init__(self, shell):
        self.shell = shell
        self.kernel = shell.kernel
        self.interrupted = False
        # What an interrupt does inside the code, and what it does there unless the code sets that itself, for as long as it runs.
        self.handler = self.given = signal.default_int_handler
        # The run under way, how much it may write, and how much it has.
        self.run, self.most, self.written = None, None, 0
        # What was there before ours.
        self.write = None
        # As one object: it is compared.
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
                # Only now: an interrupt from here on is raised, not noted.
                if outside and self.interrupted:
                    code = self._interrupt_before(code)
                return await run_code(code, result, async_=async_)
            finally:
                self._from_code(outside)

        def trigger_interruptibly(event, *args, **kwargs):
            # Afterwards figures are drawn, which takes long enough to be interrupted. Before, nothing does.
            outside = event.startswith("post_") and self._to_code()
            try:
                trigger(event, *args, **kwargs)
            except KeyboardInterrupt:
                self.shell.showtraceback()
            finally:
                self._from_code(outside)

        self.kernel.pre_handler_hook, self.kernel.post_handler_hook = entered, left
        self.shell.run_code, self.shell.events.trigger = run_interruptibly, trigger_interruptibly
        # Of all streams: IPython exchanges the method of one for the time of a run.
        streams = type(sys.stdout)
        if hasattr(streams, "set_parent"):
            self.write = streams.write
            streams.write = self._within_bound(self.write)
        self.kernel._cancel_on_sigint = self._cancelling
        # By which the bridge wakes code that fell asleep in the moment in which it was interrupted.
        signal.signal(signal.SIGURG, lambda number, frame: None)

    def _begin(self):
        """A request has come, not all of which are runs."""
        self.interrupted = False
        self.handler = self.given = signal.default_int_handler
        signal.signal(signal.SIGINT, self.note)
        parent = self.kernel.get_parent("shell")
        self.run = parent.get("header", {}).get("msg_id")
        self.most = parent.get("metadata", {}).get("burrow_output_bytes_max")
        self.written = 0
        for stream in (sys.stdout, sys.stderr):
            # What IPython put back, as it was before there was a bound.
            if self.write is not None and getattr(stream.write, "__func__", None) is self.write:
                vars(stream).pop("write", None)

    def _hear_out(self):
        """Waits for what processes have written that the code started: threads of the kernel's read it when they get to. What comes later
        belongs to no run, and what is too much already is not waited for."""
        until = time.monotonic() + HEAR_OUT_SECONDS
        for stream in (sys.stdout, sys.stderr):
            while time.monotonic() < until and not is_heard_out(stream):
                if self.most is not None and self.written > self.most:
                    return
                time.sleep(HEAR_OUT_LOOK_EVERY)

    def _note(self, number, frame):
        self.interrupted = True

    def _interrupt_before(self, code):
        """Does what an interrupt does at the beginning of code; what is to be run then."""
        self.interrupted = False
        if self.handler is self.given:
            return BEFORE_IT_BEGAN
        if callable(self.handler):
            self.handler(signal.SIGINT, sys._getframe())
        return code

    def _to_code(self):
        """From here on an interrupt is the code's; whether it was not before."""
        outside = signal.getsignal(signal.SIGINT) is self.note and is_main_thread()
        if outside:
            signal.signal(signal.SIGINT, self.handler)
        return outside

    def _from_code(self, outside):
        if outside:
            self.handler = signal.signal(signal.SIGINT, self.note)

    @contextlib.contextmanager
    def _cancelling(self, task):
        """While code runs that awaits. What comes with the kernel does not wake a loop that sleeps, and makes it deaf before it began."""
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
                # One more than fits, by which the bridge sees that there was more.
                self.written += len(text)
                write(stream, text[: left + 1])
            else:
                stream.flush()
                time.sleep(TOO_MUCH_SECONDS)
            return len(text)

        return write_within_bound


def is_heard_out(stream):
    """Whether who reads the pipe behind a stream has passed on all of it: then it waits in a call whose first argument is the pipe."""
    pipe, reader = getattr(stream, "_fid", None), getattr(stream, "watch_fd_thread", None)
    if pipe is None or reader is None or not reader.is_alive():
        return True
    try:
        with open(f"/proc/self/task/{reader.native_id}/syscall", "rb") as where:
            call = where.read().split()
        return len(call) > 1 and call[1] == b"%#x" % pipe
    except OSError:
        return True


def is_main_thread():
    return threading.current_thread() is threading.main_thread()


# Found by the bridge under this name, and by nobody who lists variables.
MODULE = types.ModuleType("_burrow_kernel")
MODULE.enter = enter
MODULE.leave = leave
sys.modules["_burrow_kernel"] = MODULE

register(get_ipython())
Bounds(get_ipython()).install()

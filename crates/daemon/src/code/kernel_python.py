"""Run silently in every Python kernel at its start, in a namespace of its own.

Teaches the kernel two forms of values beside those that IPython makes (a data frame as columns, a figure as a chart), and to set
variables of the environment for one run. Imports nothing that is slow: pandas and matplotlib may never be used.
"""

import datetime
import decimal
import importlib.abc
import importlib.util
import math
import os
import sys
import types

from IPython import get_ipython
from IPython.core.formatters import JSONFormatter
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


class AfterImport(importlib.abc.MetaPathFinder):
    """Teaches figures at the moment they are imported, by whomever."""

    NAME = "matplotlib.figure"

    def find_spec(self, name, path, target=None):
        if name != self.NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_teach(module):
                load(module)
                teach_figures(module)

            spec.loader.exec_module = load_and_teach
        return spec


def register(shell):
    """Makes the forms known to the kernel."""
    display = shell.display_formatter
    for formatter in (DataFormatter(parent=display), ChartFormatter(parent=display)):
        display.formatters[formatter.format_type] = formatter
    data = display.formatters["application/vnd.burrow.data+json"]
    data.for_type_by_name("pandas.core.frame", "DataFrame", quietly(columns))
    # Where pandas says its frames come from, since 3.0.
    data.for_type_by_name("pandas", "DataFrame", quietly(columns))
    data.for_type_by_name("polars.dataframe.frame", "DataFrame", quietly(polars_columns))
    if AfterImport.NAME in sys.modules:
        teach_figures(sys.modules[AfterImport.NAME])
    else:
        sys.meta_path.insert(0, AfterImport())


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


# Found by the bridge under this name, and by nobody who lists variables.
MODULE = types.ModuleType("_burrow_kernel")
MODULE.enter = enter
MODULE.leave = leave
sys.modules["_burrow_kernel"] = MODULE

register(get_ipython())

"""Reads the contents of a matplotlib figure: lines, points, bars, slices, boxes.

Loaded into a Python kernel by kernel_python.py, which passes it `plain`. The formats are those of E2B's clients: `line`, `scatter`,
`bar`, `pie`, `box_and_whisker`, `superchart` for a figure with several charts, `unknown` for anything else.
"""

import re
import weakref

# Maximum number of elements of one figure. A picture of more is still useful; a list is not.
ELEMENTS_MAX = 50_000

# Maps axes to the statistics of their boxes, each with the line of its median, which is removed when the axes are cleared.
BOXES = weakref.WeakKeyDictionary()

UNIT = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")


class TooMuch(Exception):
    """More than `ELEMENTS_MAX` elements were drawn."""


def read(figure):
    """The chart; `None` if nothing was drawn that can be described, or far too much."""
    drawn = [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>" and has_data(axes)]
    if not drawn:
        return None
    try:
        found = [read_axes(axes) for axes in drawn]
    except TooMuch:
        return None
    if len(found) == 1:
        found[0]["title"] = found[0]["title"] or title_of(figure)
        return found[0]
    return {"type": "superchart", "title": title_of(figure), "elements": found}


def has_data(axes):
    return bool(axes.lines or axes.collections or axes.patches or axes.images or axes.containers)


def title_of(figure):
    heading = getattr(figure, "_suptitle", None)
    return (heading.get_text() if heading is not None else "") or None


def read_axes(axes):
    """One pair of axes, described by its most specific kind of chart."""
    for kind, elements in (("pie", slices), ("box_and_whisker", boxes), ("bar", bars), ("line", lines), ("scatter", points)):
        found = elements(axes)
        if found:
            bounded(found)
            return {"type": kind, "title": axes.get_title() or None, "elements": found, **surroundings(axes, kind)}
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def bounded(elements):
    count = sum(len(element.get("points") or element.get("outliers") or ()) + 1 for element in elements)
    if count > ELEMENTS_MAX:
        raise TooMuch


# === Elements ===


def slices(axes):
    """Slices of a pie, with their angles."""
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    return [
        {"label": shown(wedge.get_label(), f"Slice {at}"), "angle": angle_of(wedge), "radius": float(wedge.r)}
        for at, wedge in enumerate(wedges, 1)
    ]


def angle_of(wedge):
    """In degrees. Matplotlib adds numbers of single precision; the sum of two angles below 720 is exact to four decimal places."""
    return round(abs(float(wedge.theta2) - float(wedge.theta1)), 4)


def boxes(axes):
    """Boxes, from their statistics."""
    there = list(axes.lines)
    kept = [(statistics, median) for statistics, median in BOXES.get(axes, ()) if median in there]
    return [box(statistics, box_label(axes, statistics, median, at)) for at, (statistics, median) in enumerate(kept, 1)]


def box_label(axes, statistics, median, at):
    """Its own label, or that of the tick at its median line."""
    places, heights = median.get_xdata(), median.get_ydata()
    lying = places[0] == places[-1] and heights[0] != heights[-1]
    axis, (first, last) = (axes.yaxis, (heights[0], heights[-1])) if lying else (axes.xaxis, (places[0], places[-1]))
    middle = (float(first) + float(last)) / 2
    tick = min((there for there in named_ticks(axis).items() if abs(there[0] - middle) <= 0.5), default=None, key=lambda there: abs(there[0] - middle))
    return str(statistics.get("label") or (tick[1] if tick else f"Box {at}"))


def box(statistics, label):
    return {
        "label": label,
        "min": float(statistics["whislo"]),
        "first_quartile": float(statistics["q1"]),
        "median": float(statistics["med"]),
        "third_quartile": float(statistics["q3"]),
        "max": float(statistics["whishi"]),
        "outliers": [float(value) for value in statistics.get("fliers", ())],
    }


def watch_boxes(axes_class):
    """Records the statistics of every box plot; seaborn and pandas use the same function."""
    draw = axes_class.bxp

    def bxp(self, bxpstats, *given, **options):
        drawn = draw(self, bxpstats, *given, **options)
        BOXES.setdefault(self, []).extend(zip(map(dict, bxpstats), drawn["medians"]))
        return drawn

    bxp.__name__, bxp.__doc__, bxp.__wrapped__ = draw.__name__, draw.__doc__, draw
    axes_class.bxp = bxp


def bars(axes):
    """Bars, and the columns of a histogram; a group consists of the bars that were drawn by one call."""
    found = []
    groups = [container for container in axes.containers if type(container).__name__ == "BarContainer"]
    for number, group in enumerate(groups, 1):
        name = shown(group.get_label(), f"Group {number}" if len(groups) > 1 else "")
        lying = getattr(group, "orientation", None) == "horizontal"
        axis = axes.yaxis if lying else axes.xaxis
        labels = named_ticks(axis)
        if len(found) + len(group.patches) > ELEMENTS_MAX:
            raise TooMuch
        for bar in group.patches:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if lying else bar.get_height()
            found.append({"label": nearest(labels, middle, axis), "group": name, "value": plain(float(value))})
    return found


def lines(axes):
    """Lines with their original values: dates and names are kept."""
    found = []
    for number, line in enumerate(axes.lines, 1):
        horizontal, vertical = line.get_xdata(orig=True), line.get_ydata(orig=True)
        if len(horizontal) > ELEMENTS_MAX:
            raise TooMuch
        pairs = zip(along(axes.xaxis, horizontal), along(axes.yaxis, vertical))
        found.append({"label": shown(line.get_label(), f"Line {number}"), "points": [list(pair) for pair in pairs]})
    return found


def points(axes):
    """Scatter plots."""
    found = []
    clouds = [collection for collection in axes.collections if type(collection).__name__ == "PathCollection"]
    for number, cloud in enumerate(clouds, 1):
        offsets = cloud.get_offsets()
        if len(offsets) > ELEMENTS_MAX:
            raise TooMuch
        pairs = zip(along(axes.xaxis, offsets[:, 0]), along(axes.yaxis, offsets[:, 1]))
        found.append({"label": shown(cloud.get_label(), f"Scatter {number}"), "points": [list(pair) for pair in pairs]})
    return found


# === Axes ===


def surroundings(axes, kind):
    """Labels, units, scales and ticks, if charts of this kind have them."""
    if kind == "pie":
        return {}
    found = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        label = axis.get_label_text()
        unit = UNIT.search(label)
        found[f"{name}_label"] = label or None
        found[f"{name}_unit"] = unit.group(1).strip() if unit else None
        if kind in ("line", "scatter"):
            found[f"{name}_scale"] = scale(axis)
            found[f"{name}_ticks"] = along(axis, axis.get_ticklocs())
            found[f"{name}_tick_labels"] = [tick.get_text() for tick in axis.get_ticklabels()]
    return found


def converter(axis):
    """The name of the converter that maps values of this axis to positions."""
    there = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return type(there).__name__


def scale(axis):
    name = converter(axis)
    if "Category" in name:
        return "categorical"
    if "Date" in name or "Time" in name or "Period" in name:
        return "datetime"
    return axis.get_scale()


def along(axis, values):
    """The original values of positions on an axis: dates on an axis of dates, names on an axis of names."""
    kind = scale(axis)
    values = list(values)
    if kind == "datetime":
        return [date(value, axis) for value in values]
    if kind == "categorical":
        names = category_names(axis)
        return [value if isinstance(value, str) else names.get(float(value), plain(value)) for value in values]
    return [plain(value) for value in values]


def date(value, axis):
    """A time in ISO 8601; numbers are days, as in matplotlib, or periods, as in pandas."""
    if isinstance(value, (int, float)) or type(value).__name__.startswith(("float", "int")):
        if "Period" in converter(axis):
            from pandas import Period

            return str(Period(ordinal=int(value), freq=axis.freq))
        from matplotlib.dates import num2date

        return num2date(float(value)).replace(tzinfo=None).isoformat()
    if value != value:
        return None
    # numpy's times have no such method.
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def category_names(axis):
    mapping = getattr(axis.units, "_mapping", None) or {}
    return {float(place): str(name) for name, place in mapping.items()}


def named_ticks(axis):
    """Maps positions to names, if ticks have names instead of numbers."""
    names = category_names(axis)
    if names:
        return names
    if type(axis.get_major_formatter()).__name__ not in ("FixedFormatter", "FuncFormatter", "StrCategoryFormatter"):
        return {}
    texts = [tick.get_text() for tick in axis.get_ticklabels()]
    return {float(place): text for place, text in zip(axis.get_ticklocs(), texts) if text}


def nearest(labels, place, axis):
    """The name of a bar: that of the tick at its position or beside it, or else the position."""
    if labels:
        tick = min(labels, key=lambda there: abs(there - place))
        if abs(tick - place) <= 0.5:
            return labels[tick]
    return str(along(axis, [float(place)])[0])


def shown(label, otherwise):
    """A label set by the user; matplotlib's own begin with an underscore."""
    label = str(label)
    return otherwise if not label or label.startswith("_") else label

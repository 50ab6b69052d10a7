"""The results of values, frames and figures. See scripts/test-code.sh."""

import base64
import math
import unittest

from test_bridge import WithBridge


class Values(WithBridge):
    def test_each_format_has_its_field(self):
        for form, field, value in [
            ("text/plain", "text", "as text"),
            ("text/html", "html", "<b>bold</b>"),
            ("text/markdown", "markdown", "*emphasis*"),
            ("image/svg+xml", "svg", "<svg/>"),
            ("image/png", "png", "iVBORw0KGgo="),
            ("image/jpeg", "jpeg", "/9j/4AAQ"),
            ("application/pdf", "pdf", "JVBERi0="),
            ("text/latex", "latex", "$x^2$"),
            ("application/json", "json", {"a": [1, None, "b"]}),
            ("application/javascript", "javascript", "alert(1)"),
        ]:
            with self.subTest(form):
                ran = self.ok(f"display({{{form!r}: {value!r}}}, raw=True)")
                self.assertEqual(ran.shown, {"type": "result", "is_main_result": False, field: value})

    def test_other_formats_are_extra(self):
        ran = self.ok("display({'text/plain': 'a', 'application/vnd.example+json': {'b': 1}}, raw=True)")
        self.assertEqual(ran.shown["extra"], {"application/vnd.example+json": {"b": 1}})

    def test_the_value_of_the_last_line_is_the_main_result(self):
        ran = self.ok("display('shown')\n'value'")
        self.assertEqual((ran.shown["text"], ran.main["text"]), ("shown", "value"))
        self.assertEqual(self.ok("x = 1").results, [])

    def test_a_string_is_shown_without_its_quotes(self):
        for code, text in [("'word'", "word"), ("\"it's\"", "it's"), ("['a']", "['a']"), ("'\"'", '"'), ("''", "")]:
            self.assertEqual(self.ok(code).main["text"], text)

    def test_unreadable_json_is_mentioned_instead(self):
        ran = self.ok("from IPython.display import JSON\nvalue = 1\nfor _ in range(200): value = [value]\ndisplay(JSON(value))")
        self.assertNotIn("json", ran.shown)
        self.assertIn("[json nested more than 120 levels deep left out", ran.shown["text"])
        ran = self.ok("display(JSON([{'': 0}] * 100_000))")
        self.assertIn("[json of too many values left out", ran.shown["text"])
        ran = self.ok("display(JSON([10**400, float('nan')]))")
        self.assertEqual(ran.shown["json"][0], str(10**400))

    def test_objects_define_their_formats(self):
        ran = self.ok("class Page:\n    def _repr_html_(self): return '<p>'\n    def _repr_latex_(self): return '$x$'\nPage()")
        self.assertEqual((ran.main["html"], ran.main["latex"]), ("<p>", "$x$"))


class Frames(WithBridge):
    def test_a_frame_has_its_columns(self):
        ran = self.ok(
            "import pandas as pd\n"
            "pd.DataFrame({'number': [1, 2], 'fraction': [0.5, float('nan')], 'word': ['a', None], 'yes': [True, False],\n"
            "              'day': pd.to_datetime(['2024-02-29', None]), 3: [[1], {'k': 1}]})"
        )
        self.assertEqual(
            ran.main["data"],
            {
                "number": [1, 2],
                "fraction": [0.5, None],
                "word": ["a", None],
                "yes": [True, False],
                "day": ["2024-02-29T00:00:00", None],
                "3": [[1], {"k": 1}],
            },
        )
        self.assertIn("<table", ran.main["html"])
        self.assertIn("fraction", ran.main["text"])

    def test_column_types_of_pandas(self):
        ran = self.ok(
            "import pandas as pd\n"
            "pd.DataFrame({'category': pd.Categorical(['a', 'b']), 'missing': pd.array([1, None], dtype='Int64'),\n"
            "              'period': pd.period_range('2024-01', periods=2, freq='M'), 'span': pd.to_timedelta([1, 2], unit='D')})"
        )
        self.assertEqual(
            ran.main["data"],
            {"category": ["a", "b"], "missing": [1, None], "period": ["2024-01", "2024-02"], "span": ["1 days 00:00:00", "2 days 00:00:00"]},
        )

    def test_integers_too_large_for_a_float_are_text(self):
        ran = self.ok("import math, pandas as pd\npd.DataFrame({'f': [math.factorial(n) for n in range(200)]})")
        self.assertEqual(ran.main["data"]["f"], [math.factorial(n) if n < 171 else str(math.factorial(n)) for n in range(200)])

    def test_a_displayed_frame_has_its_columns_too(self):
        self.assertEqual(self.ok("import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}))").shown["data"], {"a": [1]})

    def test_a_huge_frame_is_shown_without_its_columns(self):
        ran = self.ok("import pandas as pd\npd.DataFrame({'a': range(100_001)})")
        self.assertNotIn("data", ran.main)
        self.assertIn("<table", ran.main["html"])


class Charts(WithBridge):
    def chart(self, code):
        ran = self.ok(f"import matplotlib.pyplot as plt\n{code}\nplt.show()")
        self.assertEqual(base64.b64decode(ran.shown["png"])[:4], b"\x89PNG")
        return ran.shown["chart"]

    def test_lines(self):
        chart = self.chart("plt.plot([1, 2, 3], [4, 5, 6.5], label='one'); plt.plot([1, 2], [2, 1])\nplt.title('Lines'); plt.xlabel('time (s)'); plt.ylabel('x [m]')")
        self.assertEqual(chart["type"], "line")
        self.assertEqual(
            chart["elements"],
            [{"label": "one", "points": [[1, 4], [2, 5], [3, 6.5]]}, {"label": "Line 2", "points": [[1, 2], [2, 1]]}],
        )
        self.assertEqual((chart["title"], chart["x_label"], chart["x_unit"], chart["y_unit"]), ("Lines", "time (s)", "s", "m"))
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("linear", "linear"))
        self.assertEqual(len(chart["x_ticks"]), len(chart["x_tick_labels"]))

    def test_lines_of_days_and_logarithms(self):
        chart = self.chart("import datetime\nplt.plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 10]); plt.yscale('log')")
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("datetime", "log"))
        self.assertEqual(chart["elements"][0]["points"], [["2024-01-01", 1], ["2024-01-02", 10]])
        self.assertIn("2024-01-01T00:00:00", chart["x_ticks"])

    def test_points(self):
        chart = self.chart("plt.scatter(['u', 'v'], [1, 2], label='cloud')")
        self.assertEqual((chart["type"], chart["x_scale"]), ("scatter", "categorical"))
        self.assertEqual(chart["elements"], [{"label": "cloud", "points": [["u", 1.0], ["v", 2.0]]}])

    def test_bars(self):
        self.assertEqual(
            self.chart("plt.bar(['a', 'b'], [1, 2])")["elements"],
            [{"label": "a", "group": "", "value": 1.0}, {"label": "b", "group": "", "value": 2.0}],
        )
        self.assertEqual(self.chart("plt.barh(['a', 'b'], [1, 2])")["elements"][1], {"label": "b", "group": "", "value": 2.0})

    def test_bars_in_groups(self):
        chart = self.chart("import pandas as pd\npd.DataFrame({'x': ['p', 'q'], 'a': [1, 2], 'b': [3, 4]}).plot.bar(x='x')")
        self.assertEqual(chart["type"], "bar")
        self.assertEqual(
            [(bar["label"], bar["group"], bar["value"]) for bar in chart["elements"]],
            [("p", "a", 1.0), ("q", "a", 2.0), ("p", "b", 3.0), ("q", "b", 4.0)],
        )

    def test_a_histogram_is_bars_at_positions(self):
        chart = self.chart("plt.hist([1, 1, 2, 9], bins=2)")
        self.assertEqual([(bar["label"], bar["value"]) for bar in chart["elements"]], [("3.0", 3.0), ("7.0", 1.0)])

    def test_a_pie(self):
        thirds = self.chart("plt.pie([40, 30, 20, 10])")
        self.assertEqual((thirds["title"], [part["angle"] for part in thirds["elements"]]), (None, [144.0, 108.0, 72.0, 36.0]))
        turned = self.chart("plt.pie([90, 10], startangle=90)")
        self.assertEqual([part["angle"] for part in turned["elements"]], [324.0, 36.0])
        chart = self.chart("plt.pie([1, 3], labels=['x', 'y']); plt.title('Pie')")
        self.assertEqual((chart["type"], chart["title"]), ("pie", "Pie"))
        self.assertEqual(
            chart["elements"], [{"label": "x", "angle": 90.0, "radius": 1.0}, {"label": "y", "angle": 270.0, "radius": 1.0}]
        )

    def test_boxes(self):
        chart = self.chart("import pandas as pd\npd.DataFrame({'a': [1, 2, 3, 4, 50], 'b': [2, 3, 4, 5, 6]}).boxplot(); plt.ylabel('h (cm)')")
        self.assertEqual((chart["type"], chart["y_unit"]), ("box_and_whisker", "cm"))
        self.assertEqual(
            chart["elements"][0],
            {"label": "a", "min": 1.0, "first_quartile": 2.0, "median": 3.0, "third_quartile": 4.0, "max": 4.0, "outliers": [50.0]},
        )
        self.assertEqual(chart["elements"][1]["label"], "b")

    def test_cleared_boxes_are_removed(self):
        self.assertEqual(self.chart("plt.boxplot([1, 2, 3]); plt.cla(); plt.plot([1], [2])")["type"], "line")

    def test_several_charts_are_a_superchart(self):
        chart = self.chart("figure, axes = plt.subplots(1, 2); figure.suptitle('Both')\naxes[0].plot([1], [2]); axes[1].bar(['q'], [3])")
        self.assertEqual((chart["type"], chart["title"]), ("superchart", "Both"))
        self.assertEqual([one["type"] for one in chart["elements"]], ["line", "bar"])

    def test_a_picture_is_unknown_and_its_legend_is_not_a_chart(self):
        self.assertEqual(self.chart("plt.imshow([[1, 2], [3, 4]]); plt.colorbar()"), {"type": "unknown", "title": None, "elements": []})

    def test_lines_of_pandas_periods(self):
        chart = self.chart("import pandas as pd\npd.Series([1, 2], index=pd.period_range('2024-01', periods=2, freq='M')).plot()")
        self.assertEqual(chart["elements"][0]["points"], [["2024-01", 1], ["2024-02", 2]])

    def test_an_enormous_chart_is_a_picture_only(self):
        ran = self.ok("import matplotlib.pyplot as plt\nplt.plot(range(60_000)); plt.show()")
        self.assertIn("png", ran.shown)
        self.assertNotIn("chart", ran.shown)

    def test_a_figure_as_value_is_a_chart(self):
        ran = self.ok("import matplotlib.pyplot as plt\nfigure = plt.figure(); plt.plot([1], [2]); plt.close(figure)\nfigure")
        self.assertEqual(ran.main["chart"]["type"], "line")

    def test_saved_or_shown_pictures_are_results_in_e2b_sandboxes(self):
        path = self.bridge.home + "/picture.png"
        drawn = "from PIL import Image; picture = Image.new('RGB', (2, 2)); "
        save = f"{drawn}picture.save({path!r}); import io; picture.save(io.BytesIO(), 'png')"
        self.assertEqual(self.ok(save).results, [])
        for code in (save, f"{drawn}picture.show()"):
            (shown,) = self.ok(code, env_vars={"E2B_SANDBOX": "true"}).results
            self.assertEqual(base64.b64decode(shown["png"])[:4], b"\x89PNG")
        figure = f"import matplotlib.pyplot as plt\nplt.figure(); plt.plot([1], [2]); plt.savefig({path!r}); plt.close()"
        self.assertEqual([sorted(one) for one in self.ok(figure).results], [])
        self.assertIn("png", self.ok(figure, env_vars={"E2B_SANDBOX": "true"}).results[0])


if __name__ == "__main__":
    unittest.main()

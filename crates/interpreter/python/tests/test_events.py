"""Translation of messages, and the weight of lines; without a bridge and without kernels. See scripts/test-code.sh."""

import json
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import contexts  # noqa: E402
import events  # noqa: E402


def shown(data):
    return events.output({"msg_type": "display_data", "content": {"data": data}}, 0)


class Text(unittest.TestCase):
    def test_values_are_converted_to_text(self):
        for value, text in [(5, "5"), (["a\n", "b"], "a\nb"), ([1, "a"], '[1, "a"]'), ({"ä": None}, '{"ä": null}'), (True, "true")]:
            for form, field in [("text/plain", "text"), ("text/html", "html"), ("image/png", "png")]:
                self.assertEqual(shown({form: value})[field], text)

    def test_an_empty_format_is_omitted(self):
        self.assertEqual(shown({"text/plain": None}), {"type": "result", "is_main_result": False})

    def test_streams_are_standard_output_or_standard_error(self):
        for name, text, expected in [("stdout", "a", ("stdout", "a")), ("stderr", ["a", "b"], ("stderr", "ab")), (7, 7, ("stdout", "7"))]:
            event = events.output({"msg_type": "stream", "content": {"name": name, "text": text}}, 0)
            self.assertEqual((event["type"], event["text"]), expected)

    def test_errors_of_all_shapes_are_reported(self):
        for content, expected in [
            ({}, ("Error", "", "")),
            ({"ename": 1, "evalue": {"a": 1}, "traceback": ["x", 2]}, ("1", '{"a": 1}', "x\n2")),
            ({"ename": "E", "evalue": None, "traceback": "whole\ntext"}, ("E", "", "whole\ntext")),
        ]:
            event = events.output({"msg_type": "error", "content": content}, 0)
            self.assertEqual((event["name"], event["value"], event["traceback"]), expected)

    def test_counts_are_valid_numbers(self):
        for given, expected in [(7, 7), (None, 0), ("7", 0), (-1, 0), (1 << 64, 0), (True, 0)]:
            event = events.output({"msg_type": "execute_input", "content": {"execution_count": given}}, 0)
            self.assertEqual(event["execution_count"], expected)


class Lines(unittest.TestCase):
    def read(self, event):
        """Parses like the daemon, which accepts neither NaN nor numbers beyond a float's range."""

        def refuse(word):
            self.fail(f"{word} is not JSON")

        def integer(digits):
            self.assertLess(len(digits), 310)
            return int(digits)

        return json.loads(events.line(event), parse_constant=refuse, parse_int=integer)

    def test_lines_contain_only_valid_numbers(self):
        huge = 10**308
        given = {"a": [huge, -huge, huge - 1, float("nan"), float("inf"), 1.7e308, 7, True], "b": "9" * 400}
        expected = {"a": [str(huge), str(-huge), huge - 1, None, None, 1.7e308, 7, True], "b": "9" * 400}
        self.assertEqual(self.read(given), expected)
        # Without any other reason to inspect the line.
        self.assertEqual(self.read({"ä": huge}), {"ä": str(huge)})
        self.assertEqual(self.read({"a": -huge}), {"a": str(-huge)})

    def test_weight_and_depth_match_a_walk_over_the_bytes(self):
        for value in [{}, [], "", 1, {"": 0}, [{"": 0}] * 3, {"a": '",[{\\"\\\\', '\\': ['\\"', "ä", "[[", '"']}, [[[]], [[[{}]]]], '\\\\"{']:
            self.check(events.line({"value": value}))

    def test_weight_and_depth_match_a_walk_over_random_bytes(self):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)

        def value(depth):
            kind = chance.randrange(4 if depth else 2)
            if kind == 0:
                return chance.randrange(100)
            if kind == 1:
                return "".join(chance.choices('ab\\",:{}[]ä\n', k=chance.randrange(8)))
            if kind == 2:
                return [value(depth - 1) for _ in range(chance.randrange(5))]
            return {value(0) if chance.random() < 0.5 else str(n): value(depth - 1) for n in range(chance.randrange(5))}

        for _ in range(500):
            with self.subTest(seed=seed):
                self.check(events.line({"value": value(5)}))

    def check(self, line):
        weight = depth = deepest = 0
        in_string = escaped = False
        for byte in line.decode():
            if in_string:
                in_string = escaped or byte != '"'
                escaped = byte == "\\" and not escaped
                continue
            in_string = byte == '"'
            weight += {"{": 700, "[": 64, ",": 64}.get(byte, 0)
            depth += (byte in "{[") - (byte in "}]")
            deepest = max(deepest, depth)
        self.assertEqual((events.weight(line), events.depth(line)), (weight, deepest), line)


class Results(unittest.TestCase):
    def fitted(self, **forms):
        return contexts.fitting({"type": "result", "is_main_result": True, **forms})

    def nested(self, levels):
        value = 0
        for _ in range(levels):
            value = [value]
        return value

    def test_results_that_fit_are_unchanged(self):
        forms = {"text": "a", "json": self.nested(100), "data": {"a": [1] * 100_000}}
        self.assertEqual(self.fitted(**forms), {"type": "result", "is_main_result": True, **forms})

    def test_deeply_nested_formats_are_mentioned_instead(self):
        for levels in (120, 130, 400, 900, 100_000):
            for form in ("json", "extra"):
                fitted = self.fitted(text="shown", **{form: self.nested(levels)})
                self.assertEqual(set(fitted), {"type", "is_main_result", "text"})
                self.assertRegex(fitted["text"], rf"^shown\n\[{form} nested more than 120 levels deep left out")
        self.assertIn("json", self.fitted(json=self.nested(119)))

    def test_formats_with_too_many_values_are_mentioned_instead(self):
        fitted = self.fitted(text="shown", json=[{"": 0}] * 900_000)
        self.assertEqual(fitted["text"].splitlines()[0], "shown")
        self.assertNotIn("json", fitted)
        fitted = self.fitted(text="shown", json=[{"": 0}] * 100_000, html="<p>", data=[1, 2])
        self.assertEqual(fitted["text"], "shown\n[json of too many values left out: write it to a file]")
        self.assertEqual((fitted["html"], fitted["data"]), ("<p>", [1, 2]))
        self.assertLessEqual(events.weight(events.line(fitted)), 64 << 20)
        self.assertIn("json", self.fitted(json=[{"": 0}] * 80_000))


if __name__ == "__main__":
    unittest.main()

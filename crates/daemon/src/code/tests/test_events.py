"""What messages become, and what lines weigh; without a bridge and without kernels. See scripts/test-code.sh."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import events  # noqa: E402


def shown(data):
    return events.output({"msg_type": "display_data", "content": {"data": data}}, 0)


class Text(unittest.TestCase):
    def test_what_should_be_text_becomes_text(self):
        for value, text in [(5, "5"), (["a\n", "b"], "a\nb"), ([1, "a"], '[1, "a"]'), ({"ä": None}, '{"ä": null}'), (True, "true")]:
            for form, field in [("text/plain", "text"), ("text/html", "html"), ("image/png", "png")]:
                self.assertEqual(shown({form: value})[field], text)

    def test_a_form_that_is_nothing_is_none(self):
        self.assertEqual(shown({"text/plain": None}), {"type": "result", "is_main_result": False})

    def test_streams_are_standard_output_or_standard_error(self):
        for name, text, expected in [("stdout", "a", ("stdout", "a")), ("stderr", ["a", "b"], ("stderr", "ab")), (7, 7, ("stdout", "7"))]:
            event = events.output({"msg_type": "stream", "content": {"name": name, "text": text}}, 0)
            self.assertEqual((event["type"], event["text"]), expected)

    def test_errors_of_all_shapes_are_told(self):
        for content, expected in [
            ({}, ("Error", "", "")),
            ({"ename": 1, "evalue": {"a": 1}, "traceback": ["x", 2]}, ("1", '{"a": 1}', "x\n2")),
            ({"ename": "E", "evalue": None, "traceback": "whole\ntext"}, ("E", "", "whole\ntext")),
        ]:
            event = events.output({"msg_type": "error", "content": content}, 0)
            self.assertEqual((event["name"], event["value"], event["traceback"]), expected)

    def test_a_count_is_a_number_that_can_be_read(self):
        for given, expected in [(7, 7), (None, 0), ("7", 0), (-1, 0), (1 << 64, 0), (True, 0)]:
            event = events.output({"msg_type": "execute_input", "content": {"execution_count": given}}, 0)
            self.assertEqual(event["execution_count"], expected)


if __name__ == "__main__":
    unittest.main()

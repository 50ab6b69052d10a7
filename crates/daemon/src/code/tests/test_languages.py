"""Languages beside Python: the kernels that are installed. See scripts/test-code.sh."""

import unittest

from bridge_process import Stream
from test_bridge import WithBridge


class Languages(WithBridge):
    def test_what_is_installed_is_listed(self):
        status, found = self.bridge.call("GET", "/languages")
        self.assertEqual(status, 200)
        self.assertLessEqual({"python", "bash"}, {one["name"] for one in found})
        python = next(one for one in found if one["name"] == "python")
        self.assertEqual((python["kernel"], set(python)), ("python3", {"name", "kernel", "display_name"}))

    def test_python_has_several_names(self):
        for name in ("python", "Python3", "py"):
            self.assertEqual(self.ok("1 + 1", language=name).main["text"], "2")
        self.assertEqual([context["id"] for context in self.bridge.call("GET", "/contexts")[1] if context["language"] == "python"], ["default"])

    def test_a_context_has_the_names_of_its_language(self):
        self.ok("x = 1", context_id="default-py")
        self.assertEqual(self.ok("x", context_id="default-Python3").main["text"], "1")
        for name in ("default-python", "default-py"):
            self.assertEqual(self.context(name)["id"], "default")
        self.ok("word=kept", language="sh")
        self.assertEqual(self.bridge.call("POST", "/contexts", {"id": "default-sh", "language": "bash"})[1]["id"], "default-bash")
        self.assertEqual(self.bridge.call("POST", "/contexts/default-sh/interrupt"), (204, None))
        self.assertEqual(self.bridge.call("POST", "/contexts/default-sh/restart")[1]["id"], "default-bash")
        self.assertEqual(self.ok("echo ${word-none}", context_id="default-shell").stdout, "none\n")
        self.assertEqual(self.bridge.call("DELETE", "/contexts/default-sh"), (204, None))
        self.refused(404, "GET", "/contexts/default-bash")

    def test_a_context_is_of_one_language(self):
        self.assertIn("python", self.refused(400, "POST", "/execute", {"code": "1", "context_id": "default", "language": "bash"}))
        self.new_context(id="mine")
        self.refused(409, "POST", "/contexts", {"id": "mine", "language": "bash"})


class Bash(WithBridge):
    def test_it_keeps_its_variables(self):
        self.ok("word=kept", language="bash")
        self.assertEqual(self.ok("echo $word", language="sh").stdout, "kept\n")
        self.assertEqual(self.context("default-bash")["language"], "bash")

    def test_its_default_context_is_made_by_its_id(self):
        self.assertEqual(self.ok("echo here", context_id="default-bash").stdout, "here\n")

    def test_a_command_that_fails_is_an_error(self):
        ran = self.run_code("echo before; false", language="bash")
        self.assertEqual((ran.stdout, ran.status, ran.error["value"]), ("before\n", "error", "1"))

    def test_an_interrupt_stops_it(self):
        self.ok("word=kept", language="bash")
        with Stream(self.bridge, "sleep 600", language="bash") as stream:
            stream.read_until("number_of_executions")
            self.bridge.call("POST", "/contexts/default-bash/interrupt")
            self.assertEqual(stream.read_until("error")["name"], "KeyboardInterrupt")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        self.assertEqual(self.ok("echo $word", language="bash").stdout, "kept\n")

    def test_a_timeout_stops_it(self):
        ran = self.run_code("sleep 600", language="bash", timeout=0.5)
        self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))

    def test_variables_for_one_run_are_set_back(self):
        self.ok("export KEPT=before", language="bash")
        ran = self.ok("echo $KEPT $ADDED", language="bash", env_vars={"KEPT": "it's", "ADDED": "$HOME"})
        self.assertEqual(ran.stdout, "it's $HOME\n")
        self.assertEqual(self.ok("echo $KEPT ${ADDED-none}", language="bash").stdout, "before none\n")


class JavaScript(WithBridge):
    """With ijavascript, where it is installed: it needs the Node.js it was compiled for."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if "javascript" not in {one["name"] for one in cls.bridge.call("GET", "/languages")[1]}:
            raise unittest.SkipTest("no kernel of JavaScript is installed")

    def test_it_keeps_its_variables(self):
        self.ok("var x = 40; let y = 2", language="javascript")
        self.assertEqual(self.ok("x + y", language="js").main["text"], "42")
        self.assertEqual(self.context("default-javascript")["language"], "javascript")

    def test_its_output_and_errors_are_told(self):
        ran = self.ok("console.log('out'); console.error('err')", language="js")
        self.assertEqual((ran.stdout, ran.stderr), ("out\n", "err\n"))
        ran = self.run_code("throw new RangeError('bad')", language="js")
        self.assertEqual((ran.status, ran.error["name"], ran.error["value"]), ("error", "RangeError", "bad"))
        self.assertEqual(self.ok("1 + 1", language="js").main["text"], "2")

    def test_an_error_whose_message_is_no_text_is_told(self):
        ran = self.run_code("const odd = new Error(); odd.message = {a: 1}; throw odd", language="js")
        self.assertEqual((ran.status, len(ran.errors)), ("error", 1))
        self.assertEqual(self.ok("1 + 1", language="js").main["text"], "2")

    def test_a_loop_without_end_costs_its_kernel(self):
        ran = self.run_code("while (true) {}", language="js", timeout=0.5)
        self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))
        self.assertEqual(self.ok("'again'", language="js").main["text"], "again")

    def test_variables_for_one_run_are_set_back(self):
        self.ok("process.env.KEPT = 'before'", language="js")
        ran = self.ok("process.env.KEPT + process.env.ADDED", language="js", env_vars={"KEPT": "a", "ADDED": "b"})
        self.assertEqual(ran.main["text"], "ab")
        self.assertEqual(self.ok("process.env.KEPT + process.env.ADDED", language="js").main["text"], "beforeundefined")


if __name__ == "__main__":
    unittest.main()

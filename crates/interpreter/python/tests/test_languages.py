"""Languages other than Python, if their kernels are installed. See scripts/test-code.sh."""

import unittest

from bridge_process import Stream
from test_bridge import WithBridge


class Languages(WithBridge):
    def test_installed_languages_are_listed(self):
        status, found = self.bridge.call("GET", "/languages")
        self.assertEqual(status, 200)
        self.assertLessEqual({"python", "bash"}, {one["name"] for one in found})
        python = next(one for one in found if one["name"] == "python")
        self.assertEqual((python["kernel"], set(python)), ("python3", {"name", "kernel", "display_name"}))

    def test_python_has_several_names(self):
        for name in ("python", "Python3", "py"):
            self.assertEqual(self.ok("1 + 1", language=name).main["text"], "2")
        self.assertEqual([context["id"] for context in self.bridge.call("GET", "/contexts")[1] if context["language"] == "python"], ["default"])

    def test_default_contexts_have_the_names_of_their_language(self):
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

    def test_a_context_has_one_language(self):
        self.assertIn("python", self.refused(400, "POST", "/execute", {"code": "1", "context_id": "default", "language": "bash"}))
        self.new_context(id="mine")
        self.refused(409, "POST", "/contexts", {"id": "mine", "language": "bash"})


class Bash(WithBridge):
    def test_it_keeps_its_variables(self):
        self.ok("word=kept", language="bash")
        self.assertEqual(self.ok("echo $word", language="sh").stdout, "kept\n")
        self.assertEqual(self.context("default-bash")["language"], "bash")

    def test_its_default_context_is_created_by_its_id(self):
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

    def test_variables_for_one_run_are_restored(self):
        self.ok("export KEPT=before", language="bash")
        ran = self.ok("echo $KEPT $ADDED", language="bash", env_vars={"KEPT": "it's", "ADDED": "$HOME"})
        self.assertEqual(ran.stdout, "it's $HOME\n")
        self.assertEqual(self.ok("echo $KEPT ${ADDED-none}", language="bash").stdout, "before none\n")


class Deno:
    """JavaScript and TypeScript, which share a kernel."""

    language = None

    def test_it_keeps_its_variables(self):
        self.ok("var x = 40; let y = 1", language=self.language)
        self.ok("let y = 2", language=self.language)
        self.assertEqual(self.ok("x + y", language=self.language).main["text"], "42")
        self.assertEqual(self.context(f"default-{self.language}")["language"], self.language)

    def test_its_output_and_errors_are_reported(self):
        ran = self.ok("console.log('out'); console.error('err')", language=self.language)
        self.assertEqual((ran.stdout, ran.stderr), ("out\n", "err\n"))
        ran = self.run_code("throw new RangeError('bad')", language=self.language)
        self.assertEqual((ran.status, ran.error["name"], ran.error["value"]), ("error", "RangeError", "bad"))
        ran = self.run_code("this is not", language=self.language)
        self.assertEqual(ran.status, "error")
        self.assertIn("Expected", ran.error["value"])
        self.assertEqual(self.ok("1 + 1", language=self.language).main["text"], "2")

    def test_an_error_whose_message_is_not_text_is_reported(self):
        ran = self.run_code("var odd = new Error(); odd.message = {a: 1}; throw odd", language=self.language)
        self.assertEqual((ran.status, len(ran.errors)), ("error", 1))
        self.assertEqual(self.ok("1 + 1", language=self.language).main["text"], "2")

    def test_await_works_outside_of_functions(self):
        ran = self.ok("const later = await new Promise((done) => setTimeout(() => done('late'), 10)); later", language=self.language)
        self.assertEqual(ran.main["text"], "late")

    def test_it_imports_modules(self):
        self.ok("import { basename } from 'node:path'", language=self.language)
        self.assertEqual(self.ok("basename('/a/b')", language=self.language).main["text"], "b")
        with open(f"{self.bridge.home}/module.mjs", "w", encoding="utf-8") as file:
            file.write("export const word = 'mine'; export default 7")
        self.assertEqual(self.ok("import seven, { word } from './module.mjs'; word + seven", language=self.language).main["text"], "mine7")
        self.assertEqual(self.ok("(await import('./module.mjs')).word", language=self.language).main["text"], "mine")

    def test_an_endless_loop_ends_with_its_kernel(self):
        ran = self.run_code("while (true) {}", language=self.language, timeout=2)
        self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))
        self.assertEqual(self.ok("'again'", language=self.language).main["text"], "again")

    def test_variables_for_one_run_are_restored(self):
        self.ok("process.env.KEPT = 'before'", language=self.language)
        ran = self.ok("process.env.KEPT + process.env.ADDED", language=self.language, env_vars={"KEPT": "it's", "ADDED": '"😀'})
        self.assertEqual(ran.main["text"], "it's\"😀")
        self.assertEqual(self.ok("process.env.KEPT + process.env.ADDED", language=self.language).main["text"], "beforeundefined")


class JavaScript(Deno, WithBridge):
    language = "javascript"

    def test_it_has_another_name(self):
        self.assertEqual(self.ok("6 * 7", language="js").main["text"], "42")


class TypeScript(Deno, WithBridge):
    language = "typescript"

    def test_it_has_types(self):
        self.ok("interface Point { x: number }\nenum Colour { Red = 1 }\nfunction twice<T extends Point>(p: T): number { return p.x * 2 }", language="ts")
        self.assertEqual(self.ok("twice({ x: 21 } as Point) + Colour.Red", language="ts").main["text"], "43")


class WhereInstalled(WithBridge):
    """A language whose kernel requires more than Python packages."""

    language = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.language not in {one["name"] for one in cls.bridge.call("GET", "/languages")[1]}:
            cls.tearDownClass()
            raise unittest.SkipTest(f"{cls.language}: this machine has none")

    def interrupt(self, code):
        """Interrupts code that would run forever."""
        with Stream(self.bridge, code, language=self.language) as stream:
            stream.read_line()
            self.bridge.call("POST", f"/contexts/default-{self.language}/interrupt")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")


class Java(WhereInstalled):
    language = "java"

    def test_it_keeps_its_variables(self):
        self.ok("int x = 40; int twice(int n) { return 2 * n; }", language="java")
        self.assertEqual(self.ok("x + twice(1)", language="java").main["text"], "42")
        self.assertEqual(self.ok('"te" + "xt"', language="java").main["text"], "text")
        self.assertEqual(self.ok("x = 7;", language="java").results, [])

    def test_its_output_and_errors_are_reported(self):
        ran = self.ok('System.out.println("ä€😀"); System.err.println("err"); System.in.read()', language="java")
        self.assertEqual((ran.stdout, ran.stderr, ran.main["text"]), ("ä€😀\n", "err\n", "-1"))
        ran = self.run_code('List.of().get(3)', language="java")
        self.assertEqual((ran.status, ran.error["name"]), ("error", "ArrayIndexOutOfBoundsException"))
        self.assertIn("at ", ran.error["traceback"])
        ran = self.run_code("int y = 1;\nint z = nothing;\ny", language="java")
        self.assertEqual((ran.status, ran.error["name"]), ("error", "CompilationError"))
        self.assertIn("cannot find symbol", ran.error["value"])
        self.assertEqual(self.run_code("if (true) {", language="java").error["name"], "CompilationError")
        self.assertEqual(self.ok("y + 1", language="java").main["text"], "2")

    def test_an_interrupt_stops_it(self):
        self.ok('String word = "kept";', language="java")
        self.interrupt('System.out.println("begun"); while (true) { }')
        self.interrupt('System.out.println("begun"); Thread.sleep(600_000);')
        self.assertEqual(self.ok("word", language="java").main["text"], "kept")

    def test_code_that_exits_ends_its_kernel(self):
        ran = self.run_code("System.exit(3)", language="java")
        self.assertEqual(ran.status, "kernel_died")
        self.assertEqual(self.ok("1 + 1", language="java").main["text"], "2")

    def test_variables_for_one_run_are_restored(self):
        read = 'System.getenv("HOME") + System.getenv("ADDED")'
        before = self.ok(read, language="java").main["text"]
        ran = self.ok(read, language="java", env_vars={"HOME": "it's \"\\", "ADDED": "😀\n"})
        self.assertEqual(ran.main["text"], "it's \"\\😀\n")
        self.assertEqual(self.ok(read, language="java").main["text"], before)


class R(WhereInstalled):
    """Its kernel shows the values of all lines, and has no main result."""

    language = "r"

    def test_it_keeps_its_variables(self):
        self.ok("x <- c(40, 2)", language="R")
        self.assertEqual(self.ok("sum(x)", language="r").shown["text"], "[1] 42")

    def test_its_output_and_errors_are_reported(self):
        ran = self.ok("cat('out\\n'); message('err')", language="r")
        self.assertEqual((ran.stdout, ran.stderr), ("out\n", "err\n\n"))
        ran = self.run_code("stop('bad')", language="r")
        self.assertEqual(ran.status, "error")
        self.assertIn("bad", ran.error["value"])
        self.assertEqual(self.run_code("1 +", language="r").status, "error")
        self.assertEqual(self.ok("1 + 1", language="r").shown["text"], "[1] 2")

    def test_an_interrupt_stops_it(self):
        self.ok("word <- 'kept'", language="r")
        self.interrupt("cat('begun\\n'); flush.console(); repeat {}")
        self.assertEqual(self.ok("word", language="r").shown["text"], '[1] "kept"')

    def test_variables_for_one_run_are_restored(self):
        self.ok("Sys.setenv(KEPT = 'before')", language="r")
        read = "cat(Sys.getenv(c('KEPT', 'ADDED'), unset = 'none'))"
        ran = self.ok(read, language="r", env_vars={"KEPT": "it's \"\\", "ADDED": "😀"})
        self.assertEqual(ran.stdout, "it's \"\\ 😀")
        self.assertEqual(self.ok(read, language="r").stdout, "before none")


if __name__ == "__main__":
    unittest.main()

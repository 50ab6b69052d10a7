"""The bridge with real kernels: runs, contexts, limits. See scripts/test-code.sh."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
import unittest

from bridge_process import BRIDGE, Bridge, Stream, beside, until

sys.path.insert(0, os.path.dirname(BRIDGE))
import contexts  # noqa: E402
import kernels  # noqa: E402

# Continues after any interrupt.
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('began', flush=True)
time.sleep(600)
"""


# Returns at once, and blocks the kernel until a file exists: requests wait until then.
HOLDING = """
import asyncio, os, time
async def hold():
    open({began!r}, 'w').close()
    while not os.path.exists({path!r}):
        time.sleep(0.01)
kept = 'yes'
task = asyncio.get_running_loop().create_task(hold())
"""


class WithBridge(unittest.TestCase):
    """All tests of a class share a bridge; they do not depend on the state of the default context."""

    @classmethod
    def setUpClass(cls):
        cls.bridge = Bridge()
        cls.addClassCleanup(cls.bridge.close)

    def run_code(self, code, **fields):
        return self.bridge.run(code, **fields)

    def ok(self, code, **fields):
        ran = self.run_code(code, **fields)
        self.assertEqual((ran.status, ran.errors), ("ok", []), ran)
        return ran

    def share(self, **env):
        status, answer = self.bridge.call("POST", "/environment", {"env": env})
        self.assertEqual(status, 204, answer)

    def new_context(self, **fields):
        status, context = self.bridge.call("POST", "/contexts", fields)
        self.assertEqual(status, 200, context)
        self.addCleanup(self.bridge.call, "DELETE", f"/contexts/{context['id']}")
        return context["id"]

    def context(self, identifier):
        status, context = self.bridge.call("GET", f"/contexts/{identifier}")
        self.assertEqual(status, 200, context)
        return context

    def refused(self, status, method, path, body=None, **options):
        found, answer = self.bridge.call(method, path, body, **options)
        self.assertEqual((found, answer["code"]), (status, status), answer)
        return answer["message"]


class Runs(WithBridge):
    def test_variables_are_kept(self):
        self.ok("kept = 41")
        self.assertEqual(self.ok("kept + 1").main["text"], "42")

    def test_the_end_reports_count_and_duration(self):
        first = self.ok("1")
        second = self.ok("2")
        counts = [event["execution_count"] for event in second.events if event["type"] == "number_of_executions"]
        self.assertEqual(counts, [second.end["execution_count"]])
        self.assertEqual(second.end["execution_count"], first.end["execution_count"] + 1)
        self.assertGreaterEqual(second.end["duration_ms"], 0)

    def test_output_arrives_in_order(self):
        ran = self.ok(
            "import sys\nfor n in range(3):\n    print('out', n, flush=True)\n    print('err', n, file=sys.stderr, flush=True)\n    display(n)"
        )
        seen = [(event["type"], event["text"]) for event in ran.events if event["type"] in ("stdout", "stderr", "result")]
        # A line may arrive in several events.
        joined = [(kind, "".join(text for _, text in pieces)) for kind, pieces in itertools.groupby(seen, lambda event: event[0])]
        expected = [(("stdout", f"out {n}\n"), ("stderr", f"err {n}\n"), ("result", str(n))) for n in range(3)]
        self.assertEqual(joined, [event for events in expected for event in events])

    def test_output_arrives_while_the_code_runs(self):
        path = os.path.join(self.bridge.home, "go")
        code = f"import os, time\nprint('before', flush=True)\nwhile not os.path.exists({path!r}): time.sleep(0.01)\nprint('after')"
        with Stream(self.bridge, code) as stream:
            self.assertEqual(stream.read_line(), "before\n")
            open(path, "w").close()
            self.assertEqual(stream.read_line(), "after\n")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "ok")

    def test_output_of_child_processes_is_reported(self):
        # A thread of the kernel reads it; the end of a run waits for that thread.
        for number in range(20):
            ran = self.ok(f"import os; _ = os.system('seq 3000; echo from {number}; echo error {number} >&2')")
            self.assertTrue(ran.stdout.endswith(f"3000\nfrom {number}\n"), ran.stdout[-100:])
            self.assertEqual(ran.stderr, f"error {number}\n")

    def test_all_unicode_characters_arrive(self):
        ran = self.ok("print('ä€😀\\x00'); 'ä€😀'")
        self.assertEqual((ran.stdout, ran.main["text"]), ("ä€😀\x00\n", "ä€😀"))
        # An unpaired surrogate is not valid text and is replaced.
        ran = self.run_code("display({'text/plain': '\\ud800'}, raw=True)")
        json.dumps(ran.events).encode()

    def test_a_display_that_is_not_text_breaks_nothing(self):
        ran = self.ok("display({'text/plain': 5, 'text/html': ['<b>', '</b>']}, raw=True)\nprint('after')")
        self.assertEqual((ran.shown["text"], ran.shown["html"], ran.stdout), ("5", "<b></b>", "after\n"))

    def test_an_invalid_message_does_not_affect_others(self):
        send = "get_ipython().kernel.send_response(get_ipython().kernel.iopub_socket, 'display_data', {'data': 7})"
        self.assertEqual(self.ok(f"{send}\nprint('after')").stdout, "after\n")
        self.assertEqual(self.ok("print('later')").stdout, "later\n")
        self.assertIn("could not be passed on", self.bridge.logged())

    def test_every_line_is_ascii(self):
        with Stream(self.bridge, "print('ä€😀')") as stream:
            for line in stream.answer:
                self.assertTrue(line.isascii(), line)

    def test_an_error_has_name_value_and_traceback(self):
        ran = self.run_code("def inner():\n    return 1 / 0\ninner()")
        self.assertEqual(ran.status, "error")
        self.assertEqual((ran.error["name"], ran.error["value"]), ("ZeroDivisionError", "division by zero"))
        self.assertIn("in inner()", ran.error["traceback"])
        self.assertNotIn("\x1b", ran.error["traceback"])
        self.ok("1")

    def test_a_syntax_error_is_an_error(self):
        self.assertEqual(self.run_code("this is not").error["name"], "SyntaxError")

    def test_a_huge_error_is_shortened(self):
        ran = self.run_code("raise ValueError('x' * 10_000_000)")
        self.assertEqual(ran.error["name"], "ValueError")
        self.assertLess(len(json.dumps(ran.error)), 2 << 20)

    def test_input_fails_immediately(self):
        ran = self.run_code("input('name? ')")
        self.assertEqual((ran.status, ran.error["name"]), ("error", "StdinNotImplementedError"))

    def test_await_works_at_top_level(self):
        self.assertEqual(self.ok("import asyncio\nawait asyncio.sleep(0, 'slept')").main["text"], "slept")

    def test_a_run_right_after_an_error_succeeds(self):
        for _ in range(5):
            self.assertEqual(self.run_code("1/0").status, "error")
            self.assertEqual(self.ok("2").main["text"], "2")

    def test_exit_ends_only_its_kernel(self):
        context = self.new_context()
        self.run_code("exit()", context_id=context)
        self.assertEqual(self.ok("1 + 1", context_id=context).main["text"], "2")

    def test_variables_for_one_run_are_restored(self):
        self.ok("import os; os.environ['KEPT'] = 'before'")
        ran = self.ok("os.environ['KEPT'], os.environ['ADDED']", env_vars={"KEPT": "during", "ADDED": "it's \"so\""})
        self.assertEqual(ran.main["text"], repr(("during", "it's \"so\"")))
        self.assertEqual(self.ok("os.environ['KEPT'], os.environ.get('ADDED')").main["text"], "('before', None)")

    def test_internal_names_are_not_among_the_variables(self):
        context = self.new_context()
        ran = self.ok("[name for name in dir() if not name.startswith('_')]", context_id=context)
        # Newer versions of IPython define `open`.
        self.assertEqual(set(eval(ran.main["text"])) - {"open"}, {"In", "Out", "exit", "get_ipython", "quit"})

    def test_runs_in_one_context_queue_in_order(self):
        path = os.path.join(self.bridge.home, "queue")
        context = self.new_context()
        with Stream(self.bridge, f"import os, time\nseen = []\nwhile not os.path.exists({path!r}): time.sleep(0.01)", context_id=context) as first:
            first.read_until("number_of_executions")
            waiting = [Stream(self.bridge, f"seen.append({n})", context_id=context) for n in range(5)]
            open(path, "w").close()
            for stream in waiting:
                self.assertEqual(stream.read_until("end_of_execution")["status"], "ok")
                stream.close()
        self.assertEqual(self.ok("seen", context_id=context).main["text"], "[0, 1, 2, 3, 4]")


class Stops(WithBridge):
    def interrupt(self, context):
        self.assertEqual(self.bridge.call("POST", f"/contexts/{context}/interrupt"), (204, None))

    def test_an_interrupt_stops_the_run_and_keeps_variables(self):
        self.ok("kept = 'yes'")
        with Stream(self.bridge, "import time; time.sleep(600)") as stream:
            stream.read_until("number_of_executions")
            self.interrupt("default")
            self.assertEqual(stream.read_until("error")["name"], "KeyboardInterrupt")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        self.assertEqual(self.ok("kept").main["text"], "yes")

    def test_an_interrupt_right_after_the_request_is_not_lost(self):
        for _ in range(10):
            with Stream(self.bridge, "import time; time.sleep(600)") as stream:
                self.interrupt("default")
                self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")

    def test_an_interrupt_at_any_moment_of_the_start_ends_only_that_code(self):
        self.ok("kept = 'yes'")
        for code in ("print('begun', flush=True)\nimport time\ntime.sleep(600)", "import asyncio\nawait asyncio.sleep(600)"):
            for milliseconds in range(1, 30):
                ran = self.run_code(code, timeout=milliseconds / 1000)
                self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"), milliseconds)
                self.assertEqual(self.ok("kept").main["text"], "yes")

    def test_code_that_awaits_is_interrupted(self):
        self.ok("kept = 'yes'; import asyncio, time")
        for code in ("await asyncio.sleep(600)", "await asyncio.sleep(0); time.sleep(600)", "await asyncio.gather(asyncio.sleep(600))"):
            with Stream(self.bridge, f"print('begun', flush=True)\n{code}") as stream:
                stream.read_until("stdout")
                self.interrupt("default")
                self.assertIn(stream.read_until("error")["name"], ("KeyboardInterrupt", "CancelledError"))
                self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
            self.assertEqual(self.ok("kept").main["text"], "yes")

    def test_code_is_interrupted_once_and_may_clean_up_silently(self):
        tidy = "import time\ntry:\n    time.sleep(600)\nfinally:\n    time.sleep(1.5)\n    tidied = True"
        with Stream(self.bridge, tidy) as stream:
            stream.read_until("number_of_executions")
            self.interrupt("default")
            stream.read_until("end_of_execution")
        # If the interrupt arrived before the first line, there was nothing to clean up.
        self.assertIn(self.ok("globals().get('tidied')or'not begun'").main["text"], ("True", "not begun"))

    def test_code_may_handle_interrupts_itself(self):
        code = "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: hits.append(1))\nprint('set', flush=True)\n"
        code = "hits = []\n" + code + "while not hits: time.sleep(0.01)\nlen(hits)"
        with Stream(self.bridge, code) as stream:
            stream.read_until("stdout")
            self.interrupt("default")
            self.assertEqual(stream.read_until("result")["text"], "1")
        with Stream(self.bridge, "import time; time.sleep(600)") as stream:
            stream.read_until("number_of_executions")
            self.interrupt("default")
            self.assertEqual(stream.read_until("error")["name"], "KeyboardInterrupt")

    def test_an_interrupt_while_the_kernel_starts_is_not_lost(self):
        self.bridge.call("DELETE", "/contexts/default")
        with Stream(self.bridge, "import time; time.sleep(600)") as stream:
            self.interrupt("default")
            self.assertEqual(stream.read_until("error")["name"], "KeyboardInterrupt")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")

    def test_an_interrupt_stops_queued_runs(self):
        with Stream(self.bridge, "import time; time.sleep(600)") as first:
            first.read_until("number_of_executions")
            with Stream(self.bridge, "never = 1") as second:
                self.interrupt("default")
                self.assertEqual(first.read_until("end_of_execution")["status"], "interrupted")
                self.assertEqual(second.read_until("error")["value"], "interrupted before it began")
                self.assertEqual(second.read_until("end_of_execution")["status"], "interrupted")
        self.assertEqual(self.run_code("never").error["name"], "NameError")

    def test_an_interrupt_of_an_idle_context_does_nothing(self):
        self.ok("1")
        self.interrupt("default")
        self.assertEqual(self.ok("'still here'").main["text"], "still here")

    def test_a_timeout_is_reported_and_keeps_variables(self):
        self.ok("kept = 'yes'")
        # Long enough for the code to start on a busy host: an earlier interrupt would prove nothing.
        ran = self.run_code("import time; time.sleep(600)", timeout=8)
        self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))
        self.assertIn("8 s", ran.error["value"])
        self.assertIn("time.sleep(600)", ran.error["traceback"])
        self.assertEqual(self.ok("kept").main["text"], "yes")

    def test_code_that_ignores_its_timeout_loses_its_kernel(self):
        context = self.new_context()
        self.ok("kept = 1", context_id=context)
        ran = self.run_code(STUBBORN, context_id=context, timeout=3)
        self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))
        self.assertIn("killed", ran.error["value"])
        self.assertEqual(self.run_code("kept", context_id=context).error["name"], "NameError")

    def test_code_that_ignored_an_interrupt_still_has_a_timeout(self):
        context = self.new_context()
        with Stream(self.bridge, STUBBORN, context_id=context, timeout=5) as stream:
            stream.read_until("stdout")
            self.interrupt(context)
            self.assertEqual(stream.read_until("end_of_execution")["status"], "timed_out")

    def held(self):
        """A context whose kernel is blocked, and the file that unblocks it."""
        context = self.new_context()
        path = os.path.join(self.bridge.home, f"free-{context}")
        began = os.path.join(self.bridge.home, f"began-{context}")
        self.ok(HOLDING.format(path=path, began=began), context_id=context)
        until("the background", lambda: os.path.exists(began))
        return context, path

    def test_code_that_never_starts_has_a_timeout(self):
        for env in ({}, {"GIVEN": "1"}):
            with self.subTest(env=env):
                context, _ = self.held()
                ran = self.run_code("1", context_id=context, timeout=0.5, env_vars=env)
                self.assertEqual((ran.status, ran.error["name"]), ("timed_out", "TimeoutError"))
                self.assertRegex(ran.error["value"], "did not begin within 0.5 s: .*killed")
                self.assertEqual(self.run_code("kept", context_id=context).error["name"], "NameError")

    def test_an_interrupt_ends_a_run_that_never_starts_and_its_code_is_stopped_later(self):
        context, path = self.held()
        with Stream(self.bridge, "import time\nleft = 'begun'\ntime.sleep(600)", context_id=context) as stream:
            self.interrupt(context)
            self.assertIn("restart", stream.read_until("error")["value"])
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        self.assertEqual(self.context(context)["state"], "busy")
        with Stream(self.bridge, "kept, left", context_id=context) as stream:
            open(path, "w").close()
            self.assertEqual(stream.read_until("result")["text"], "('yes', 'begun')")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "ok")
        self.assertEqual(self.context(context)["state"], "idle")

    def test_timeouts_and_restarts_work_after_an_abandoned_run(self):
        context, _ = self.held()
        with Stream(self.bridge, "1", context_id=context) as stream:
            self.interrupt(context)
            stream.read_until("end_of_execution")
        self.assertEqual(self.run_code("2", context_id=context, timeout=0.5).status, "timed_out")
        context, _ = self.held()
        with Stream(self.bridge, "1", context_id=context) as stream:
            self.assertEqual(self.bridge.call("POST", f"/contexts/{context}/restart")[0], 200)
            self.assertEqual(stream.read_until("error")["name"], "KernelRestarted")
        self.assertEqual(self.ok("2", context_id=context).main["text"], "2")

    def test_a_run_that_is_stopped_while_its_variables_are_set_never_starts(self):
        context, path = self.held()
        with Stream(self.bridge, "never = 1", context_id=context, env_vars={"GIVEN": "1"}) as stream:
            until("its turn", lambda: self.context(context)["state"] == "busy")
            self.interrupt(context)
            open(path, "w").close()
            self.assertEqual(stream.read_until("error")["value"], "interrupted before it began")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        ran = self.ok("import os\nkept, 'never' in dir(), os.environ.get('GIVEN')", context_id=context)
        self.assertEqual(ran.main["text"], "('yes', False, None)")

    def test_output_has_a_limit(self):
        ran = self.run_code("while True: print('x' * 1000)", max_output_bytes=100_000)
        self.assertEqual((ran.status, ran.error["name"]), ("output_limit", "OutputLimitError"))
        self.assertTrue(50_000 < len(ran.stdout) <= 100_000, len(ran.stdout))
        self.ok("1")

    def test_excessive_output_waits_for_its_interrupt(self):
        flood = "lines = 0\nwhile True:\n    print('x' * 1000)\n    lines += 1"
        self.assertEqual(self.run_code(flood, max_output_bytes=100_000).status, "output_limit")
        # A hundred lines fit. Each further line is delayed: without the limit there would be hundreds of thousands.
        self.assertLess(int(self.ok("lines").main["text"]), 5000)
        self.assertEqual(self.run_code("print('y' * (1 << 30))", max_output_bytes=100_000).status, "output_limit")
        self.assertEqual(self.run_code("!yes", max_output_bytes=100_000).status, "output_limit")
        self.assertEqual(self.ok("print('z' * 90_000)", max_output_bytes=100_000).stdout, "z" * 90_000 + "\n")

    def test_one_large_value_exceeds_the_output_limit(self):
        ran = self.run_code("display({'text/plain': 'x' * 200_000}, raw=True)", max_output_bytes=100_000)
        self.assertEqual((ran.status, ran.results), ("output_limit", []))

    def test_a_format_too_large_for_a_line_is_mentioned_instead(self):
        ran = self.ok("display({'text/plain': 'plot', 'image/png': 'x' * (9 << 20)}, raw=True)")
        self.assertNotIn("png", ran.results[0])
        self.assertRegex(ran.results[0]["text"], r"^plot\n\[png of 9\d+ bytes left out")

    def test_much_output_within_the_limit_arrives(self):
        ran = self.ok("for _ in range(80): print('x' * 99_999)")
        self.assertEqual(len(ran.stdout), 8_000_000)
        longest = max(len(event["text"]) for event in ran.events if event["type"] == "stdout")
        self.assertLessEqual(longest, 256 << 10)

    def test_many_displays_arrive(self):
        ran = self.ok("for n in range(3000): display(n)")
        self.assertEqual([result["text"] for result in ran.results], [str(n) for n in range(3000)])

    def test_a_run_whose_reader_disconnected_is_interrupted(self):
        path = os.path.join(self.bridge.home, "interrupted")
        code = f"import time\ntry:\n    print('began', flush=True)\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    open({path!r}, 'w').close()"
        with Stream(self.bridge, code) as stream:
            stream.read_until("stdout")
        until("the interrupt", lambda: os.path.exists(path))
        self.ok("1")

    def test_a_queued_run_whose_reader_disconnected_never_starts(self):
        with Stream(self.bridge, "import time; time.sleep(600)") as first:
            first.read_until("number_of_executions")
            with Stream(self.bridge, "begun_without_reader = 1"):
                pass
            with Stream(self.bridge, "'begun_without_reader' in dir()") as third:
                # A request is read only after the previous one was found to be closed.
                self.bridge.call("GET", "/health")
                first.close()
                self.assertEqual(third.read_until("result")["text"], "False")

    def test_a_slow_reader_gets_everything(self):
        with Stream(self.bridge, "for n in range(200): print('x' * 9_999)\nprint('last')") as stream:
            self.assertEqual(self.ok("1", context_id=self.new_context()).main["text"], "1")
            text = "".join(event["text"] for event in stream if event["type"] == "stdout")
        self.assertEqual(len(text), 200 * 10_000 + 5)


class Kernels(WithBridge):
    def test_a_kernel_that_kills_itself_is_reported_and_replaced(self):
        self.ok("kept = 1")
        ran = self.run_code("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual((ran.status, ran.error["name"]), ("kernel_died", "KernelDied"))
        self.assertEqual(self.run_code("kept").error["name"], "NameError")
        self.assertEqual(self.ok("1").end["execution_count"], 2)

    def test_the_death_of_an_idle_kernel_is_noticed(self):
        context = self.new_context()
        pid = int(self.ok("import os; os.getpid()", context_id=context).main["text"])
        os.kill(pid, signal.SIGKILL)
        until("its death", lambda: self.context(context)["state"] == "dead")
        self.assertNotEqual(self.ok("import os; os.getpid()", context_id=context).main["text"], str(pid))

    def test_a_kernel_that_does_not_respond_in_time_is_killed(self):
        async def asked():
            environment = {**os.environ, "IPYTHONDIR": self.bridge.home}
            kernel = await kernels.Kernel.start(kernels.languages()["python"], self.bridge.home, environment)
            self.assertEqual((await kernel.ask("1", 60))["status"], "ok")
            return kernel, await kernel.ask("import time; time.sleep(600)", 1)

        kernel, reply = asyncio.run(asked())
        self.assertEqual((kernel.dead, reply), (True, None))

    def test_an_invalid_message_wakes_the_waiting_task(self):
        def hear(message):
            raise TypeError("odd")

        request = kernels.Request("1", hear)
        with self.assertRaises(TypeError):
            request.take({"msg_type": "execute_reply", "content": {"status": "ok"}})
        self.assertTrue(request.news.is_set())

    def test_a_restart_resets_variables_and_count(self):
        context = self.new_context()
        self.ok("kept = 1", context_id=context)
        status, shown = self.bridge.call("POST", f"/contexts/{context}/restart")
        self.assertEqual((status, shown["execution_count"], shown["state"]), (200, 0, "idle"))
        ran = self.run_code("kept", context_id=context)
        self.assertEqual((ran.error["name"], ran.end["execution_count"]), ("NameError", 1))

    def test_a_restart_ends_the_current_and_queued_runs(self):
        context = self.new_context()
        with Stream(self.bridge, STUBBORN, context_id=context) as first:
            first.read_until("stdout")
            with Stream(self.bridge, "1", context_id=context) as second:
                self.assertEqual(self.bridge.call("POST", f"/contexts/{context}/restart")[0], 200)
                for stream in (first, second):
                    self.assertEqual(stream.read_until("error")["name"], "KernelRestarted")
                    self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        self.assertEqual(self.ok("1 + 1", context_id=context).main["text"], "2")

    def test_removing_a_context_ends_its_run_and_its_processes(self):
        context = self.new_context()
        code = "import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); child.wait()"
        with Stream(self.bridge, code, context_id=context) as stream:
            child = int(stream.read_line())
            self.assertEqual(self.bridge.call("DELETE", f"/contexts/{context}"), (204, None))
            self.assertEqual(stream.read_until("error")["name"], "ContextRemoved")
            self.assertEqual(stream.read_until("end_of_execution")["status"], "interrupted")
        until("the end of the child", lambda: not running(child))
        self.refused(404, "GET", f"/contexts/{context}")

    def test_nothing_is_left_of_a_removed_context(self):
        before = self.bridge.children()
        folders = set(os.listdir(self.bridge.home))
        context = self.new_context()
        self.assertEqual(len(self.bridge.children()), len(before) + 1)
        self.bridge.call("DELETE", f"/contexts/{context}")
        self.assertEqual(self.bridge.children(), before)
        self.assertEqual({name for name in set(os.listdir(self.bridge.home)) - folders if name.startswith("burrow-kernel")}, set())

    def test_an_idle_bridge_uses_almost_no_cpu(self):
        self.ok("1")
        self.new_context()
        processes = [self.bridge.process.pid, *self.bridge.children()]
        before = sum(ticks(pid) for pid in processes)
        time.sleep(3)
        used = sum(ticks(pid) for pid in processes) - before
        # Of three seconds with a hundred ticks each; polling every tenth of a second would take several times as many.
        self.assertLessEqual(used, 15)


class Contexts(WithBridge):
    def test_contexts_have_separate_variables(self):
        one, two = self.new_context(), self.new_context()
        self.ok("x = 'one'", context_id=one)
        self.ok("x = 'two'", context_id=two)
        self.assertEqual(self.ok("x", context_id=one).main["text"], "one")
        self.assertEqual(self.ok("x", context_id=two).main["text"], "two")

    def test_contexts_run_concurrently(self):
        # Each waits for the other: sequentially they would never end.
        code = "import os, time\nopen({!r}, 'w').close()\nwhile not os.path.exists({!r}): time.sleep(0.01)"
        left, right = (os.path.join(self.bridge.home, name) for name in ("left", "right"))
        first, second = self.new_context(), self.new_context()
        runs = [
            beside(lambda: self.run_code(code.format(left, right), context_id=first)),
            beside(lambda: self.run_code(code.format(right, left), context_id=second)),
        ]
        self.assertEqual([finish().status for finish in runs], ["ok", "ok"])

    def test_a_context_reports_its_properties(self):
        self.bridge.call("DELETE", "/contexts/default")
        self.ok("1")
        shown = self.context("default")
        self.assertEqual(
            shown, {"id": "default", "language": "python", "cwd": self.bridge.home, "state": "idle", "execution_count": 1}
        )
        self.assertIn(shown, self.bridge.call("GET", "/contexts")[1])
        with Stream(self.bridge, "import time; time.sleep(600)") as stream:
            stream.read_until("number_of_executions")
            self.assertEqual(self.context("default")["state"], "busy")

    def test_the_default_context_is_listed_before_any_code_ran(self):
        bridge = Bridge()
        self.addCleanup(bridge.close)
        (default,) = [one for one in bridge.call("GET", "/contexts")[1] if one["language"] == "python"]
        self.assertEqual((default["id"], default["state"], default["execution_count"]), ("default", "idle", 0))
        self.assertEqual(bridge.children(), [], "it has no kernel yet")
        self.assertEqual(bridge.run("1").status, "ok")

    def test_contexts_have_their_own_directory_and_variables(self):
        context = self.new_context(cwd="/usr", env={"GIVEN": "by create"})
        ran = self.ok("import os; print(os.getcwd(), os.environ['GIVEN'])", context_id=context)
        self.assertEqual(ran.stdout, "/usr by create\n")

    def test_variables_of_the_sandbox_reach_running_and_new_kernels(self):
        self.addCleanup(self.share)
        running = self.new_context(env={"OWN": "kept"})
        show = "import os; os.environ.get('SHARED'), os.environ.get('OWN')"
        self.assertEqual(self.ok(show, context_id=running).main["text"], "(None, 'kept')")
        for value in ("one", "it's \"two\""):
            self.share(SHARED=value, OWN="of the sandbox")
            self.assertEqual(self.ok(show, context_id=running).main["text"], str((value, "kept")))
        self.assertEqual(self.ok(show, context_id=self.new_context()).main["text"], str(("it's \"two\"", "of the sandbox")))
        self.refused(400, "POST", "/environment", {"env": {"A B": "c"}})

    def test_an_existing_id_returns_its_context(self):
        self.assertEqual(self.new_context(id="mine"), "mine")
        self.ok("x = 'kept'", context_id="mine")
        self.assertEqual(self.bridge.call("POST", "/contexts", {"id": "mine"})[1]["execution_count"], 1)
        self.assertEqual(self.ok("x", context_id="mine").main["text"], "kept")

    def test_unknown_objects_are_rejected_with_a_message(self):
        self.assertIn("nowhere", self.refused(404, "GET", "/contexts/nowhere"))
        self.assertIn("nowhere", self.refused(404, "POST", "/execute", {"code": "1", "context_id": "nowhere"}))
        for path in ("/contexts/nowhere/restart", "/contexts/nowhere/interrupt"):
            self.refused(404, "POST", path)
        self.refused(404, "DELETE", "/contexts/nowhere")
        self.refused(404, "GET", "/no/such/route")
        self.assertIn("python", self.refused(400, "POST", "/contexts", {"language": "cobol"}))
        self.assertIn("python", self.refused(400, "POST", "/execute", {"code": "1", "language": "cobol"}))
        self.refused(400, "POST", "/execute", {"code": "1", "context_id": "default-cobol"})

    def test_invalid_requests_are_rejected_with_a_message(self):
        for body in (
            {},
            {"code": 1},
            {"code": "1", "timeout": -1},
            {"code": "1", "timeout": "soon"},
            {"code": "1", "max_output_bytes": 1 << 40},
            {"code": "1", "env_vars": {"A B": "c"}},
            {"code": "1", "env_vars": {"A": 1}},
            [],
        ):
            self.refused(400, "POST", "/execute", body)
        self.assertIn("/nowhere", self.refused(400, "POST", "/contexts", {"cwd": "/nowhere"}))
        self.refused(400, "POST", "/contexts", {"id": "../up"})
        self.refused(413, "POST", "/execute", {"code": "#" * ((4 << 20) + 1)})
        frame = "x = ''"
        self.ok(f"x = '{'a' * ((4 << 20) - len(frame))}'")

    def test_requests_from_web_pages_are_rejected(self):
        self.refused(403, "POST", "/execute", {"code": "1"}, headers={"Origin": "http://evil.example"})
        self.refused(403, "DELETE", "/contexts/default", headers={"Origin": "http://127.0.0.1"})

    def test_the_number_of_queued_runs_is_limited(self):
        context = self.new_context()
        with Stream(self.bridge, "import time; time.sleep(600)", context_id=context) as first:
            first.read_until("number_of_executions")
            waiting = [Stream(self.bridge, "1", context_id=context) for _ in range(64)]
            self.assertIn("64", self.refused(429, "POST", "/execute", {"code": "1", "context_id": context}))
            self.bridge.call("POST", f"/contexts/{context}/interrupt")
            for stream in waiting:
                stream.close()

    def test_the_number_of_contexts_is_limited(self):
        # Without a bridge: none of these is ever started.
        many = contexts.Contexts("/")
        for number in range(32):
            many.create(identifier=f"c{number}")
        with self.assertRaises(contexts.Refused) as refusal:
            many.create()
        self.assertEqual((refusal.exception.status, "32" in str(refusal.exception)), (429, True))
        self.assertEqual(many.create(identifier="c7").id, "c7")


def running(pid):
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ticks(pid):
    """Processor time that a process has used, in hundredths of a second."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    unittest.main()

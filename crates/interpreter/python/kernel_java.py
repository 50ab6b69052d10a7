"""A Java kernel: Jupyter messages on one side, the JDK's shell on the other (JavaShell.java).

Run as `python3 kernel_java.py -f CONNECTION_FILE`, by the kernelspec of an image with a JDK. An interrupt reaches both processes, because
they are in one group: the kernel ignores it, the shell stops the code and reports it.
"""

import base64
import codecs
import os
import signal
import subprocess

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

SHELL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "JavaShell.java")
# Short code starts faster with only the first compiler and the simplest collector. contexts.py changes `System.getenv`.
OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "--add-opens", "java.base/java.util=ALL-UNNAMED"]


class JavaKernel(Kernel):
    implementation = "burrow-java"
    implementation_version = "1"
    language = "java"
    language_info = {"name": "java", "mimetype": "text/x-java-source", "file_extension": ".java"}
    banner = "Java"

    def __init__(self, **options):
        super().__init__(**options)
        requests, self.requests = os.pipe()
        answers_end, answers = os.pipe()
        # By path, because Java cannot open descriptors; standard input and output are left to processes of the code.
        paths = [f"/proc/self/fd/{requests}", f"/proc/self/fd/{answers}"]
        # A program that is started while interrupts are ignored ignores them, too.
        ignored = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            self.process = subprocess.Popen(["java", *OPTIONS, SHELL, *paths], stdin=subprocess.DEVNULL, pass_fds=(requests, answers))
        finally:
            signal.signal(signal.SIGINT, ignored)
        os.close(requests)
        os.close(answers)
        self.answers = os.fdopen(answers_end, "rb")
        for _ in self._until_done():
            pass

    def _until_done(self):
        """The lines of one response. If the shell has ended, the kernel ends as well: its variables are lost."""
        while True:
            line = self.answers.readline()
            if not line.endswith(b"\n"):
                os._exit(1)
            kind, *texts = line.decode("ascii")[:-1].split(" ")
            if kind == "done":
                return
            yield kind, [base64.b64decode(text) for text in texts]

    def pre_handler_hook(self):
        """Keeps interrupts ignored here: the shell, which is in the same group, handles them."""

    def post_handler_hook(self):
        pass

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        line = base64.b64encode(code.encode("utf-8", "replace")) + b"\n"
        while line:
            line = line[os.write(self.requests, line) :]
        reply = {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        # Characters of several bytes may be split.
        decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in ("out", "err")}
        for kind, texts in self._until_done():
            if kind == "error":
                name, value, trace = (text.decode("utf-8", "replace") for text in texts)
                reply = {"status": "error", "ename": name, "evalue": value, "traceback": [trace]}
            elif not silent:
                self._show(kind, texts[0], decoders)
        if reply["status"] == "error":
            reply["execution_count"] = self.execution_count
            if not silent:
                self.send_response(self.iopub_socket, "error", {name: reply[name] for name in ("ename", "evalue", "traceback")})
        return reply

    def _show(self, kind, text, decoders):
        if kind == "value":
            data = {"text/plain": text.decode("utf-8", "replace")}
            self.send_response(self.iopub_socket, "execute_result", {"execution_count": self.execution_count, "data": data, "metadata": {}})
        else:
            self.send_response(self.iopub_socket, "stream", {"name": f"std{kind}", "text": decoders[kind].decode(text)})

    def do_shutdown(self, restart):
        self.process.kill()
        return {"status": "ok", "restart": restart}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=JavaKernel)

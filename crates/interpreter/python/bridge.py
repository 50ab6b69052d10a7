"""The code interpreter inside a sandbox: kernels of several languages behind one HTTP port.

    python3 -u bridge.py [--host 127.0.0.1] [--port 49999] [--user-cwd DIRECTORY]

Runs in a sandbox, as its user, once. Bridge and kernels are hibernated, woken and forked like all processes there. Clients use
the protocol of E2B's code interpreter, and a few additional routes.

    GET  /health                        200
    GET  /languages                     the installed languages
    GET  /contexts                      all contexts; POST creates one
    GET  /contexts/{id}                 one; DELETE removes it
    POST /contexts/{id}/restart         a new kernel, without variables
    POST /contexts/{id}/interrupt       stops the current run and all queued ones
    POST /execute                       runs code; streams one JSON object per line
    POST /environment                   sets variables for every kernel, from its next run on

There are no keys: every client that can connect to the port has the rights of the sandbox's user. See contexts.py for runs, kernels.py for processes.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys

import tornado.httpserver
import tornado.iostream
import tornado.web

# For the modules beside this one. Not set in the environment, which kernels inherit: they should write bytecode.
sys.dont_write_bytecode = True

import contexts as interpreter  # noqa: E402
import kernels  # noqa: E402
from contexts import Contexts, Refused, Run  # noqa: E402

# Code of the maximum size with every character escaped, and the other fields.
BODY_BYTES_MAX = 6 * interpreter.CODE_BYTES_MAX + (1 << 20)
TIMEOUT_SECONDS_MAX = 7 * 24 * 3600


class Handler(tornado.web.RequestHandler):
    """Common to all routes: JSON requests, JSON responses, errors with a message."""

    def initialize(self, contexts):
        self.contexts = contexts

    def prepare(self):
        # A browser in the sandbox may show untrusted pages, which can send requests to loopback. Browsers add the origin.
        if self.request.method != "GET" and "Origin" in self.request.headers:
            raise Refused(403, "requests from web pages are not allowed")

    def body(self):
        """The fields of the request."""
        try:
            fields = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise Refused(400, "the body is not an object")
        return fields

    def answer(self, value, status=200):
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def nothing(self):
        self.set_status(204)
        self.finish()

    def write_error(self, status_code, exc_info=None, **_):
        error = exc_info[1] if exc_info else None
        if isinstance(error, Refused):
            status_code, message = error.status, str(error)
        else:
            message = self._reason
        self.answer({"code": status_code, "message": message}, status_code)

    def log_exception(self, kind, error, trace):
        if not isinstance(error, Refused):
            super().log_exception(kind, error, trace)


class Health(Handler):
    def get(self):
        self.answer("OK")


class Languages(Handler):
    def get(self):
        shown = ("name", "kernel", "display_name")
        self.answer([{name: one[name] for name in shown} for one in kernels.languages().values()])


class Everything(Handler):
    def get(self):
        self.answer([context.shown() for context in self.contexts.all.values()])

    async def post(self):
        fields = self.body()
        context = self.contexts.create(
            language=text(fields, "language") or "python",
            cwd=text(fields, "cwd"),
            env=variables(fields, "env"),
            identifier=text(fields, "id"),
        )
        try:
            await context.prepare()
        except Refused:
            # Languages that cannot run are not listed.
            if self.contexts.all.get(context.id) is context:
                await self.contexts.remove(context.id)
            raise
        self.answer(context.shown())


class One(Handler):
    def get(self, identifier):
        self.answer(self.contexts.get(identifier).shown())

    async def delete(self, identifier):
        await self.contexts.remove(identifier)
        self.nothing()


class Restart(Handler):
    async def post(self, identifier):
        context = self.contexts.get(identifier)
        await context.restart()
        self.answer(context.shown())


class Interrupt(Handler):
    def post(self, identifier):
        self.contexts.get(identifier).interrupt()
        self.nothing()


class Environment(Handler):
    def post(self):
        self.contexts.set_environment(variables(self.body(), "env"))
        self.nothing()


class Execute(Handler):
    """Runs code; interrupts it if its reader disconnects."""

    run = context = None

    async def post(self):
        fields = self.body()
        run = run_of(fields)
        self.context = self.contexts.find_or_create(text(fields, "context_id"), text(fields, "language"))
        self.context.submit(run)
        self.run = run
        self.set_header("Content-Type", "application/x-ndjson")
        try:
            # Sent before there is output: clients wait for the status only for a limited time.
            await self.flush()
            async for line in run:
                self.write(line)
                await self.flush()
        except tornado.iostream.StreamClosedError:
            self.context.leave(run)

    def on_connection_close(self):
        if self.run is not None:
            self.context.leave(self.run)


def run_of(fields):
    """The requested run."""
    code = text(fields, "code")
    if code is None:
        raise Refused(400, "`code` is missing")
    # Unpaired surrogates are valid in JSON, but cannot be sent to a kernel.
    code = code.encode("utf-8", "replace").decode()
    if len(code.encode()) > interpreter.CODE_BYTES_MAX:
        raise Refused(413, f"`code` has more than {interpreter.CODE_BYTES_MAX} bytes: write it to a file, and run that")
    return Run(
        code,
        env=variables(fields, "env_vars"),
        timeout=number(fields, "timeout", TIMEOUT_SECONDS_MAX),
        output_bytes_max=int(number(fields, "max_output_bytes", interpreter.OUTPUT_BYTES_MAX) or interpreter.OUTPUT_BYTES_MAX),
    )


# === Fields ===


def text(fields, name):
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused(400, f"`{name}` is not a string")
    return value


def number(fields, name, most):
    """A number above zero; absent and zero mean no limit."""
    value = fields.get(name)
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise Refused(400, f"`{name}` is not a number between 0 and {most}")
    return value


def variables(fields, name):
    """Names and values of environment variables."""
    values = fields.get(name)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise Refused(400, f"`{name}` is not an object")
    for variable, value in values.items():
        if not interpreter.VARIABLE.fullmatch(variable):
            raise Refused(400, f"`{variable[:64]}` is not a valid variable name")
        if not isinstance(value, str) or "\0" in value:
            raise Refused(400, f"the value of `{variable[:64]}` is not a string without zero bytes")
    return values


# === Serving ===


def application(contexts):
    given = {"contexts": contexts}
    one = r"/contexts/([A-Za-z0-9._-]{1,64})"
    return tornado.web.Application(
        [
            (r"/health", Health, given),
            (r"/languages", Languages, given),
            (r"/contexts", Everything, given),
            (one, One, given),
            (one + "/restart", Restart, given),
            (one + "/interrupt", Interrupt, given),
            (r"/execute", Execute, given),
            (r"/environment", Environment, given),
        ],
        default_handler_class=Unknown,
        default_handler_args=given,
        # Failed requests concern only their clients; internal errors are logged where they occur.
        log_function=lambda handler: None,
    )


class Unknown(Handler):
    def prepare(self):
        raise Refused(404, "route not found")


async def serve(host, port, cwd):
    """Serves until it is stopped."""
    contexts = Contexts(cwd)
    contexts.create_defaults()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    looks = set()

    def child_died():
        look = loop.create_task(contexts.look())
        looks.add(look)
        look.add_done_callback(looks.discard)

    loop.add_signal_handler(signal.SIGCHLD, child_died)
    for number_of_signal in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number_of_signal, ended.set)
    server = tornado.httpserver.HTTPServer(application(contexts), max_body_size=BODY_BYTES_MAX, max_buffer_size=BODY_BYTES_MAX + (1 << 20))
    server.listen(port, host)
    await ended.wait()
    server.stop()
    await contexts.close()


def main():
    arguments = argparse.ArgumentParser(description="the code interpreter inside a sandbox")
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=49999)
    arguments.add_argument("--user-cwd", default=os.path.expanduser("~"), help="the directory of contexts that specify none")
    given = arguments.parse_args()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    # Older kernels load a debugger that writes warnings to the log.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    cwd = next((path for path in (given.user_cwd, os.path.expanduser("~")) if os.path.isdir(path)), "/")
    asyncio.run(serve(given.host, given.port, cwd))


if __name__ == "__main__":
    main()

"""e2b-code-interpreter: every language of the image `polyglot-interpreter`, which is `code-interpreter-v1` if it was built."""

from e2b_code_interpreter import Sandbox


def same(left, right):
    assert left == right, f"{left!r} is not {right!r}"


# For each language: code that keeps a variable, code that reads it, the text of its value, code that reads a variable of the environment
# and prints it, code that fails, and a part of the error.
LANGUAGES = {
    "python": ("x = 40", "x + 2", "42", "import os; print(os.environ['ONCE'])", "1 / 0", "division by zero"),
    "javascript": ("let x = await Promise.resolve(40)", "x + 2", "42", "console.log(process.env.ONCE)", "throw new Error('bad')", "bad"),
    "typescript": ("const x: number = 40", "x + 2", "42", "console.log(process.env.ONCE)", "throw new Error('bad')", "bad"),
    "r": ("x <- 40", "x + 2", "[1] 42", 'cat(Sys.getenv("ONCE"), "\\n", sep = "")', "stop('bad')", "bad"),
    "java": ("int x = 40;", "x + 2", "42", 'System.out.println(System.getenv("ONCE"));', "Integer.parseInt(\"bad\")", "bad"),
    "bash": ("x=40", None, None, "echo $ONCE", "cat /missing", "1"),
}


def language(sandbox, name, keep, read, text, environment, fail, error):
    same(sandbox.run_code(keep, language=name).error, None)
    if read is not None:
        # The R kernel displays the values of all lines and has no main result.
        same(sandbox.run_code(read, language=name).results[0].text, text)
    done = sandbox.run_code(environment, language=name, envs={"ONCE": "for this run"})
    same("".join(done.logs.stdout), "for this run\n")
    failed = sandbox.run_code(fail, language=name).error
    assert failed is not None and error in failed.value, failed
    context = sandbox.create_code_context(language=name, cwd="/tmp")
    same((context.language, context.cwd), (name, "/tmp"))
    sandbox.remove_code_context(context)


def modules(sandbox):
    sandbox.files.write("/home/user/module.mjs", "export default 7")
    for name in ("javascript", "typescript"):
        same(sandbox.run_code("import seven from './module.mjs'\nimport { basename } from 'node:path'\nbasename('/a/b') + seven", language=name).text, "b7")


def pausing(sandbox):
    """All kernels survive a pause with their variables."""
    sandbox.pause()
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    for name, (_, read, text, *_) in LANGUAGES.items():
        if read is not None:
            same(again.run_code(read, language=name).results[0].text, text)
    same("".join(again.run_code("echo $x", language="bash").logs.stdout), "40\n")


with Sandbox.create(timeout=600) as sandbox:
    for name, code in LANGUAGES.items():
        language(sandbox, name, *code)
    modules(sandbox)
    pausing(sandbox)
print("ok languages of code-interpreter-v1")

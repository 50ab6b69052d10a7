"""langchain-e2b: a sandbox as the backend of Deep Agents, with its file tools and as a tool of an agent."""

import asyncio

from deepagents import create_deep_agent
from e2b import AsyncSandbox, Sandbox
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_e2b import AsyncE2BSandbox, E2BSandbox

HOME = "/home/user"


class Script(GenericFakeChatModel):
    """A model that returns predefined messages and ignores its tools."""

    def bind_tools(self, tools, **_):
        return self


def commands(backend):
    done = backend.execute("echo out; echo err >&2; exit 3")
    assert done.exit_code == 3 and "out" in done.output and "err" in done.output, done
    assert backend.execute("printf %s $HOME").output == HOME


def files(backend):
    sent = backend.upload_files([(f"{HOME}/deep/a.bin", bytes(range(256))), (f"{HOME}/b.txt", "ä\n".encode())])
    assert [one.error for one in sent] == [None, None], sent
    got = backend.download_files([f"{HOME}/deep/a.bin", f"{HOME}/missing"])
    assert got[0].content == bytes(range(256)) and got[1].error == "file_not_found", got
    assert backend.write(f"{HOME}/notes.txt", "one\ntwo\nthree\n").error is None
    assert backend.write(f"{HOME}/notes.txt", "again").error, "a file is not replaced"
    assert backend.edit(f"{HOME}/notes.txt", "two", "2").error is None
    assert backend.read(f"{HOME}/notes.txt").file_data["content"].split() == ["one", "2", "three"]
    assert [match["line"] for match in backend.grep("three", HOME).matches] == [3]
    assert any(one["path"].endswith("deep") and one["is_dir"] for one in backend.ls(HOME).entries)
    assert [one["path"].rsplit("/", 1)[-1] for one in backend.glob("*.bin", f"{HOME}/deep").matches] == ["a.bin"]


def agent(backend):
    call = {"name": "execute", "args": {"command": "cat /home/user/notes.txt"}, "id": "call-1"}
    model = Script(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]))
    said = create_deep_agent(model=model, backend=backend).invoke({"messages": [("user", "Show the notes.")]})["messages"]
    assert any(message.type == "tool" and "three" in message.content for message in said), said
    assert said[-1].content == "done", said[-1]


async def asynchronous():
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        backend = AsyncE2BSandbox(sandbox=sandbox)
        assert (await backend.aexecute("echo hello")).output.strip() == "hello"
        assert (await backend.awrite("/home/user/x", "text")).error is None
        assert (await backend.aread("/home/user/x")).file_data["content"].strip() == "text"
    finally:
        await sandbox.kill()


with Sandbox.create(timeout=600) as sandbox:
    backend = E2BSandbox(sandbox=sandbox)
    commands(backend)
    files(backend)
    agent(backend)
asyncio.run(asynchronous())
print("ok langchain-e2b")

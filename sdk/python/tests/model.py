"""A language model's endpoint on this machine, which speaks the chat completions API and understands very little.

It calls the tool it is offered when it is asked to run something, repeats what a tool said, and otherwise answers with the
line of its instructions that fits the question best: what it was not told it does not know.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]


class Model:
    """The endpoint. `asked` is what it was sent, call by call."""

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.asked.append(body["messages"])
                message = answer(body["messages"], body.get("tools") or [])
                reply = {
                    "id": "chat-1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": body["model"],
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }
                text = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def answer(messages: list[Message], tools: list[Any]) -> Message:
    """What it makes of a conversation."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"it said: {text_of(last)}"}
    question = text_of(last)
    command = re.match(r"run (.*)", question)
    if command and tools:
        name = tools[0]["function"]["name"]
        function = {"name": name, "arguments": json.dumps({"command": command[1]})}
        call = {"id": "call-1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    words = set(re.findall(r"\w{4,}", question.lower()))
    known = [line for message in messages if message["role"] == "system" for line in text_of(message).splitlines()]
    known = [line for line in known if line.startswith("| ") and line[2:] != question]
    best = max(known, key=lambda line: len(words & set(re.findall(r"\w{4,}", line.lower()))), default="")
    return {"role": "assistant", "content": best[2:] if best else "noted"}


def text_of(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return str(content)

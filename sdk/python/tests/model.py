"""A fake language model endpoint for tests.

It implements three APIs: OpenAI's chat completions and responses, and Anthropic's messages. It calls the offered tool if the
request is to run something, repeats the result of a tool, and otherwise replies with the line of its instructions that matches
the question best.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
Answer = Callable[[list[Message], list[Any]], Message]


class Model:
    """The endpoint. `asked` contains the messages of each call, in the format of chat completions."""

    def __init__(self, answer: Answer | None = None) -> None:
        """`answer` computes the reply from a conversation and the names of tools."""
        self.asked: list[list[Message]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                read, write = APIS[self.path.partition("?")[0].rsplit("/", 1)[-1]]
                messages = read(body)
                model.asked.append(messages)
                tools = [tool.get("function", tool)["name"] for tool in body.get("tools") or []]
                text = json.dumps(write(body, (answer or parrot)(messages, tools))).encode()
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
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def parrot(messages: list[Message], tools: list[str]) -> Message:
    """The reply to a conversation."""
    last = messages[-1]
    if last["role"] == "tool":
        return said(f"it said: {text_of(last)}")
    question = text_of(last)
    command = re.match(r"run (.*)", question)
    if command and tools:
        return call(tools[0], command=command[1])
    words = set(re.findall(r"\w{4,}", question.lower()))
    known = [line for message in messages if message["role"] == "system" for line in text_of(message).splitlines()]
    known = [line for line in known if line.startswith("| ") and line[2:] != question]
    best = max(known, key=lambda line: len(words & set(re.findall(r"\w{4,}", line.lower()))), default="")
    return said(best[2:] if best else "noted")


def said(text: str) -> Message:
    """A text reply."""
    return {"role": "assistant", "content": text}


def call(tool: str, **arguments: Any) -> Message:
    """A tool call."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
    }


def text_of(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return str(content)


# === Chat completions ===


def _from_chat(body: dict[str, Any]) -> list[Message]:
    messages: list[Message] = body["messages"]
    return messages


def _to_chat(body: dict[str, Any], message: Message) -> dict[str, Any]:
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


# === Messages ===


def _from_messages(body: dict[str, Any]) -> list[Message]:
    messages = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    for message in body["messages"]:
        parts = message["content"]
        if isinstance(parts, str):
            messages.append({"role": message["role"], "content": parts})
            continue
        for part in parts:
            if part["type"] == "tool_result":
                messages.append({"role": "tool", "content": part["content"]})
            elif part["type"] == "text":
                messages.append({"role": message["role"], "content": part["text"]})
    return messages


def _to_messages(body: dict[str, Any], message: Message) -> dict[str, Any]:
    calls = message.get("tool_calls")
    content: list[dict[str, Any]] = [{"type": "text", "text": message["content"]}] if not calls else []
    for one in calls or []:
        function = one["function"]
        content.append(
            {
                "type": "tool_use",
                "id": one["id"],
                "name": function["name"],
                "input": json.loads(function["arguments"]),
            }
        )
    return {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


# === Responses ===


def _from_responses(body: dict[str, Any]) -> list[Message]:
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        if item.get("type", "message") == "message":
            messages.append({"role": item["role"], "content": item["content"]})
        elif item["type"] == "function_call_output":
            messages.append({"role": "tool", "content": item["output"]})
    return messages


def _to_responses(body: dict[str, Any], message: Message) -> dict[str, Any]:
    calls = message.get("tool_calls")
    output: list[dict[str, Any]] = []
    if not calls:
        content = [{"type": "output_text", "text": message["content"], "annotations": []}]
        output = [{"type": "message", "id": "msg-1", "role": "assistant", "status": "completed", "content": content}]
    for one in calls or []:
        item = {"type": "function_call", "id": "fc-1", "call_id": one["id"], "status": "completed"}
        output.append(item | one["function"])
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


Read = Callable[[dict[str, Any]], list[Message]]
Write = Callable[[dict[str, Any], Message], dict[str, Any]]

APIS: dict[str, tuple[Read, Write]] = {
    "completions": (_from_chat, _to_chat),
    "messages": (_from_messages, _to_messages),
    "responses": (_from_responses, _to_responses),
}

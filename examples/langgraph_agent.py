"""A LangGraph graph whose model has a memory, with a sandbox as its tool.

    pip install 'burrow-sandbox[langchain] @ http://localhost:7700/sdk/python' langgraph langchain-anthropic
    export ANTHROPIC_API_KEY=...
    python langgraph_agent.py "which Python is installed here?"

LangChain's `create_agent` accepts the same memory as middleware: `middleware=[MemoryMiddleware(sandbox)]`.
"""

from __future__ import annotations

import os
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from burrow_sandbox import Sandbox
from burrow_sandbox.agents.langchain import with_memory

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SHOWN = 10_000

sandbox = Sandbox.get_or_create("langgraph-agent")


@tool
def run(command: str) -> str:
    """Runs a shell command on a Linux machine of your own."""
    result = sandbox.run(command, timeout=300)
    return f"exit code {result.exit_code}\n{result.stdout[-SHOWN:]}{result.stderr[-SHOWN:]}"


def graph() -> StateGraph:
    """A loop of the model and the tool, until the model calls no tool."""
    model = with_memory(ChatAnthropic(model=MODEL).bind_tools([run]), sandbox)
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    made.add_node("tools", ToolNode([run]))
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made


if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or "which Linux is this?"
    done = graph().compile().invoke({"messages": [HumanMessage(question)]})
    print(done["messages"][-1].text)

"""Memory for agent loops: for plain lists of messages, and for frameworks.

    from burrow_sandbox.agents import AgentMemory            # any loop
    from burrow_sandbox.agents.langchain import MemoryMiddleware, with_memory
    from burrow_sandbox.agents.openai_agents import RunMemory

The last two require extras: `burrow-sandbox[langchain]`, `burrow-sandbox[openai-agents]`.
"""

from __future__ import annotations

from .._async.agent_memory import AsyncAgentMemory
from .._sync.agent_memory import AgentMemory

__all__ = ["AgentMemory", "AsyncAgentMemory"]

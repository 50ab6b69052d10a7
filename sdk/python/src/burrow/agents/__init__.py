"""Memory for agent loops: for plain lists of messages, and for frameworks.

    from burrow.agents import AgentMemory            # any loop
    from burrow.agents.langchain import MemoryMiddleware, with_memory
    from burrow.agents.openai_agents import RunMemory

The last two require extras: `pip install 'burrow-sdk[langchain]'`, `'burrow-sdk[openai-agents]'`.
"""

from __future__ import annotations

from .._async.agent_memory import AsyncAgentMemory
from .._sync.agent_memory import AgentMemory

__all__ = ["AgentMemory", "AsyncAgentMemory"]

"""Memory for agent loops: a plain list of messages here, frameworks beside.

    from burrow.agents import AgentMemory            # any loop
    from burrow.agents.langchain import MemoryMiddleware, with_memory
    from burrow.agents.openai_agents import RunMemory

The last two need what they are for: `pip install 'burrow-sdk[langchain]'`, `'burrow-sdk[openai-agents]'`.
"""

from __future__ import annotations

from .._async.agent_memory import AsyncAgentMemory
from .._sync.agent_memory import AgentMemory

__all__ = ["AgentMemory", "AsyncAgentMemory"]

"""heaveto: LLM-agent runs that can be stopped, cut off or killed with their process, with nothing broken afterwards.

The session always goes on with its next message. Pausing a run and continuing it, after a crash too, is not there yet.

Names are loaded on first use, so that importing the package is quick and loads no SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heaveto.agents.base import BaseAgent
    from heaveto.agents.context import AgentContext
    from heaveto.agents.llm import LlmAgent
    from heaveto.agents.tool import AgentTool
    from heaveto.agents.workflow import LoopAgent, ParallelAgent, SequentialAgent
    from heaveto.core.project import project
    from heaveto.core.request import Generation, ModelRequest, Profile
    from heaveto.errors import HeavetoError, ModelError, RunCancelled, RunFailedError, ToolFatalError
    from heaveto.events.contents import Blob, Content, FileRef, FunctionCall, Text, Thought
    from heaveto.events.records import (
        CallSettled,
        CallStarted,
        Delta,
        Message,
        Record,
        RunEnded,
        RunStarted,
        SessionKey,
        StopReport,
        Usage,
    )
    from heaveto.models.base import Model
    from heaveto.models.openai_chat import OpenAIChat
    from heaveto.runner.app import App
    from heaveto.runner.config import RunConfig
    from heaveto.runner.hooks import Plugin, RunEnd
    from heaveto.runner.run import Run, RunStream
    from heaveto.runner.runner import Runner
    from heaveto.stores.base import Store
    from heaveto.stores.memory import MemoryStore
    from heaveto.stores.sqlite import SqliteStore
    from heaveto.tools.base import Tool, ToolContext
    from heaveto.tools.function import FunctionTool

_HOMES = {
    "heaveto.agents.base": ("BaseAgent",),
    "heaveto.agents.context": ("AgentContext",),
    "heaveto.agents.llm": ("LlmAgent",),
    "heaveto.agents.tool": ("AgentTool",),
    "heaveto.agents.workflow": ("LoopAgent", "ParallelAgent", "SequentialAgent"),
    "heaveto.core.project": ("project",),
    "heaveto.core.request": ("Generation", "ModelRequest", "Profile"),
    "heaveto.errors": ("HeavetoError", "ModelError", "RunCancelled", "RunFailedError", "ToolFatalError"),
    "heaveto.events.contents": ("Blob", "Content", "FileRef", "FunctionCall", "Text", "Thought"),
    "heaveto.events.records": (
        "CallSettled",
        "CallStarted",
        "Delta",
        "Message",
        "Record",
        "RunEnded",
        "RunStarted",
        "SessionKey",
        "StopReport",
        "Usage",
    ),
    "heaveto.models.base": ("Model",),
    "heaveto.models.openai_chat": ("OpenAIChat",),
    "heaveto.runner.app": ("App",),
    "heaveto.runner.config": ("RunConfig",),
    "heaveto.runner.hooks": ("Plugin", "RunEnd"),
    "heaveto.runner.run": ("Run", "RunStream"),
    "heaveto.runner.runner": ("Runner",),
    "heaveto.stores.base": ("Store",),
    "heaveto.stores.memory": ("MemoryStore",),
    "heaveto.stores.sqlite": ("SqliteStore",),
    "heaveto.tools.base": ("Tool", "ToolContext"),
    "heaveto.tools.function": ("FunctionTool",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of the table
    "BaseAgent", "AgentContext", "LlmAgent", "AgentTool", "LoopAgent", "ParallelAgent", "SequentialAgent", "project",
    "Generation", "ModelRequest", "Profile", "HeavetoError", "ModelError", "RunCancelled", "RunFailedError",
    "ToolFatalError", "Blob", "Content", "FileRef", "FunctionCall", "Text", "Thought", "CallSettled", "CallStarted",
    "Delta", "Message", "Record", "RunEnded", "RunStarted", "SessionKey", "StopReport", "Usage", "Model",
    "OpenAIChat", "App", "RunConfig", "Plugin", "RunEnd", "Run", "RunStream", "Runner", "Store", "MemoryStore",
    "SqliteStore", "Tool", "ToolContext", "FunctionTool",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'heaveto' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

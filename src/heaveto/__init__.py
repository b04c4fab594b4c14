"""heaveto: LLM-agent runs that can be stopped, cut off or killed with their process, with nothing broken afterwards.

A run whose process died goes on from its log, and executes no call twice that its tool does not declare safe for it.
A run that waits for an answer is paused: it holds no process, and goes on in any.

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
    from heaveto.artifacts.base import ArtifactService
    from heaveto.artifacts.files import FileArtifacts
    from heaveto.artifacts.in_store import StoreArtifacts
    from heaveto.core.project import project
    from heaveto.core.repair.report import RepairReport
    from heaveto.core.request import Generation, ModelProfile, ModelRequest
    from heaveto.core.validate import Violation, validate
    from heaveto.errors import (
        AnswerError,
        HeavetoError,
        InDoubtError,
        ModelError,
        RunCancelled,
        RunFailedError,
        RunPausedError,
        ToolFatalError,
    )
    from heaveto.events.contents import Blob, Content, FileRef, FunctionCall, Text, Thought
    from heaveto.events.records import (
        Answered,
        CallSettled,
        CallStarted,
        Delta,
        Message,
        Paused,
        Record,
        RunEnded,
        RunStarted,
        SessionKey,
        StopReport,
        Usage,
    )
    from heaveto.histories.dangling import repair_dangling_tool_calls
    from heaveto.histories.repairer import Repairer
    from heaveto.histories.repairing import repair
    from heaveto.models.anthropic_messages import AnthropicMessages
    from heaveto.models.base import Model
    from heaveto.models.gemini import Gemini
    from heaveto.models.held_calls import settle_held_calls
    from heaveto.models.litellm import LiteLLM
    from heaveto.models.openai_chat import OpenAIChat
    from heaveto.models.openai_responses import OpenAIResponses
    from heaveto.runner.application.app import App, ResumabilityConfig
    from heaveto.runner.application.compaction import Compaction
    from heaveto.runner.application.config import RunConfig
    from heaveto.runner.application.hooks import Plugin, RunEnd
    from heaveto.runner.handle import Run, RunStream
    from heaveto.runner.runner import Runner
    from heaveto.runner.session.desk import Question
    from heaveto.stores.base import Store
    from heaveto.stores.memory import MemoryStore
    from heaveto.stores.sqlite import SqliteStore
    from heaveto.tools.artifacts import LoadArtifactTool
    from heaveto.tools.base import Confirmation, Hold, Reply, Tool, ToolContext
    from heaveto.tools.command import CommandTool, run_command
    from heaveto.tools.function import FunctionTool
    from heaveto.tools.outside import ClientTool, LongRunningFunctionTool, RequestInputTool
    from heaveto.tools.retry import Retry
    from heaveto.tools.toolset import Toolset

_HOMES = {
    "heaveto.agents.base": ("BaseAgent",),
    "heaveto.agents.context": ("AgentContext",),
    "heaveto.agents.llm": ("LlmAgent",),
    "heaveto.agents.tool": ("AgentTool",),
    "heaveto.agents.workflow": ("LoopAgent", "ParallelAgent", "SequentialAgent"),
    "heaveto.artifacts.base": ("ArtifactService",),
    "heaveto.artifacts.files": ("FileArtifacts",),
    "heaveto.artifacts.in_store": ("StoreArtifacts",),
    "heaveto.core.project": ("project",),
    "heaveto.core.repair.report": ("RepairReport",),
    "heaveto.core.request": ("Generation", "ModelProfile", "ModelRequest"),
    "heaveto.core.validate": ("Violation", "validate"),
    "heaveto.errors": (
        "AnswerError",
        "HeavetoError",
        "InDoubtError",
        "ModelError",
        "RunCancelled",
        "RunFailedError",
        "RunPausedError",
        "ToolFatalError",
    ),
    "heaveto.events.contents": ("Blob", "Content", "FileRef", "FunctionCall", "Text", "Thought"),
    "heaveto.events.records": (
        "Answered",
        "CallSettled",
        "CallStarted",
        "Delta",
        "Message",
        "Paused",
        "Record",
        "RunEnded",
        "RunStarted",
        "SessionKey",
        "StopReport",
        "Usage",
    ),
    "heaveto.histories.dangling": ("repair_dangling_tool_calls",),
    "heaveto.histories.repairing": ("repair",),
    "heaveto.histories.repairer": ("Repairer",),
    "heaveto.models.anthropic_messages": ("AnthropicMessages",),
    "heaveto.models.base": ("Model",),
    "heaveto.models.gemini": ("Gemini",),
    "heaveto.models.held_calls": ("settle_held_calls",),
    "heaveto.models.litellm": ("LiteLLM",),
    "heaveto.models.openai_chat": ("OpenAIChat",),
    "heaveto.models.openai_responses": ("OpenAIResponses",),
    "heaveto.runner.application.app": ("App", "ResumabilityConfig"),
    "heaveto.runner.session.desk": ("Question",),
    "heaveto.runner.application.compaction": ("Compaction",),
    "heaveto.runner.application.config": ("RunConfig",),
    "heaveto.runner.application.hooks": ("Plugin", "RunEnd"),
    "heaveto.runner.handle": ("Run", "RunStream"),
    "heaveto.runner.runner": ("Runner",),
    "heaveto.stores.base": ("Store",),
    "heaveto.stores.memory": ("MemoryStore",),
    "heaveto.stores.sqlite": ("SqliteStore",),
    "heaveto.tools.artifacts": ("LoadArtifactTool",),
    "heaveto.tools.base": ("Confirmation", "Hold", "Reply", "Tool", "ToolContext"),
    "heaveto.tools.command": ("CommandTool", "run_command"),
    "heaveto.tools.function": ("FunctionTool",),
    "heaveto.tools.outside": ("ClientTool", "LongRunningFunctionTool", "RequestInputTool"),
    "heaveto.tools.retry": ("Retry",),
    "heaveto.tools.toolset": ("Toolset",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AgentContext", "AgentTool", "AnswerError", "Answered", "AnthropicMessages", "App", "ArtifactService", "BaseAgent",
    "Blob", "CallSettled", "CallStarted", "ClientTool", "CommandTool", "Compaction", "Confirmation", "Content", "Delta",
    "FileArtifacts", "FileRef", "FunctionCall", "FunctionTool", "Gemini", "Generation", "HeavetoError", "Hold",
    "InDoubtError", "LiteLLM", "LlmAgent", "LoadArtifactTool", "LongRunningFunctionTool", "LoopAgent", "MemoryStore",
    "Message", "Model", "ModelError", "ModelProfile", "ModelRequest", "OpenAIChat", "OpenAIResponses", "ParallelAgent",
    "Paused", "Plugin", "Question", "Record", "RepairReport", "Repairer", "Reply", "RequestInputTool",
    "ResumabilityConfig", "Retry", "Run", "RunCancelled", "RunConfig", "RunEnd", "RunEnded", "RunFailedError",
    "RunPausedError", "RunStarted", "RunStream", "Runner", "SequentialAgent", "SessionKey", "SqliteStore", "StopReport",
    "Store", "StoreArtifacts", "Text", "Thought", "Tool", "ToolContext", "ToolFatalError", "Toolset", "Usage",
    "Violation", "project", "repair", "repair_dangling_tool_calls", "run_command", "settle_held_calls", "validate",
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

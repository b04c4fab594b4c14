"""For apps that run on google-adk: the model is told the truth about calls whose results were lost. Extra ``[adk]``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heaveto.errors import MissingExtraError

if TYPE_CHECKING:
    from heaveto.adk.plugin import ToolCallRepairPlugin, repair_tool_calls_before_model

__all__ = ["ToolCallRepairPlugin", "repair_tool_calls_before_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("heaveto.adk.plugin"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "google":
            raise
        raise MissingExtraError("adk", f"heaveto.adk.{name}") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

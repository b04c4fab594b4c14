"""Which functions a worker process can find."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from heaveto.errors import ToolDefinitionError

_DO = "define it at the top level of a module that can be imported"


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a function is found."""

    module: str
    name: str

    def resolve(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        found: Any = importlib.import_module(self.module)
        for step in self.name.split("."):
            found = getattr(found, step)
        return cast("Callable[..., Any]", found)


def refer_to(tool: str, func: Callable[..., Any]) -> Reference:
    """Return where a worker finds the function.

    Raises:
        ToolDefinitionError: it would not find it, or it would gain nothing by a process.
    """
    if sys.platform == "win32":
        raise ToolDefinitionError(tool, "isolation='process' needs process groups, which Windows does not have")
    if not inspect.isfunction(func):
        raise ToolDefinitionError(tool, f"isolation='process' takes a plain function, not a {type(func).__name__}")
    if inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func):
        raise ToolDefinitionError(tool, "isolation='process' is for blocking functions; it is async: leave it out")
    where = Reference(func.__module__, func.__qualname__)
    if where.module == "__main__":
        raise ToolDefinitionError(
            tool, f"a worker process cannot import it from the program's main file; {_DO}, and import it from there"
        )
    if "<" in where.name:
        raise ToolDefinitionError(tool, f"a worker process cannot find {where.name}; {_DO}")
    if _found(where) is not func:
        raise ToolDefinitionError(
            tool, f"{where.module}.{where.name} is not this function (is it decorated, or defined twice?); {_DO}"
        )
    return where


def _found(where: Reference) -> object:
    if where.module not in sys.modules:
        return None
    try:
        return where.resolve()
    except (ImportError, AttributeError):
        return None

"""What a function takes from a model, as its signature says.

Rules, each held by a `ToolDefinitionError` that names the parameter:

- Every parameter can be given by name: no ``*args``, no ``**kwargs``, nothing positional-only.
- A parameter without annotation takes any JSON value. A parameter whose default is None takes null too.
- The context is the parameter that is annotated `ToolContext`, or named ``tool_context`` or ``ctx``. One at most.
- What ``functools.partial`` has bound by name is the program's, not the model's.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Any, ForwardRef, Optional, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from heaveto.errors import ToolDefinitionError
from heaveto.tools.base import ToolContext
from heaveto.tools.naming import require_argument_name

Function: TypeAlias = Callable[..., Any]

CONTEXT_NAMES = frozenset({"tool_context", "ctx"})
_CONTEXT_TEXT = re.compile(r"""(None\s*\|\s*|[\w.]*Optional\[)?["']?([\w.]*\.)?ToolContext["']?(\]|\s*\|\s*None)?""")
_UNSET = inspect.Parameter.empty


class Parameter(msgspec.Struct, frozen=True):
    """One argument that a model may give."""

    name: str
    annotation: Any
    required: bool
    default: Any = None


class Signature(msgspec.Struct, frozen=True):
    """What a function takes: the model's arguments, and the name of its context parameter."""

    parameters: tuple[Parameter, ...]
    context: str | None = None


def without_partial(func: Function) -> Function:
    """Return what a partial, or a partial of one, calls in the end."""
    while isinstance(func, functools.partial):
        func = func.func
    return func


def plain_function(func: Function) -> Function:
    """Return the function that holds the annotations and the docstring of any kind of callable."""
    inner: Function = inspect.unwrap(without_partial(func))
    if isinstance(inner, types.MethodType):
        inner = inner.__func__
    elif not isinstance(inner, types.FunctionType | types.BuiltinFunctionType):
        inner = type(inner).__call__
    found: Function = inspect.unwrap(inner)
    return found


def read_signature(tool: str, func: Function) -> Signature:
    """Read what a function takes.

    Raises:
        ToolDefinitionError: a parameter breaks one of the module's rules.
    """
    found = _parameters(tool, func)
    contexts = [name for name, parameter in found.items() if _is_context(tool, parameter)]
    if len(contexts) > 1:
        raise ToolDefinitionError(
            tool, f"parameters {contexts[0]!r} and {contexts[1]!r} both take the context; keep one"
        )
    space = _namespace(plain_function(func))
    parameters = tuple(_parameter(tool, found[name], space) for name in found if name not in contexts)
    return Signature(parameters, contexts[0] if contexts else None)


def _parameters(tool: str, func: Function) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(func).parameters
    except (TypeError, ValueError, NameError) as error:
        raise ToolDefinitionError(tool, f"its signature cannot be read ({error}); wrap it in a function") from error
    bound = _bound_by_partial(func)
    for name, parameter in found.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolDefinitionError(tool, f"parameter '{parameter}': a model cannot fill it; name each argument")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(tool, f"parameter {name!r} is positional-only; a model gives arguments by name")
    return {name: parameter for name, parameter in found.items() if name not in bound}


def _bound_by_partial(func: Function) -> set[str]:
    bound: set[str] = set()
    while isinstance(func, functools.partial):
        bound |= func.keywords.keys()
        func = func.func
    return bound


def _is_context(tool: str, parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if _names_context(annotation):
        return True
    if parameter.name not in CONTEXT_NAMES:
        return False
    if annotation in (_UNSET, Any, object, "Any", "object", "typing.Any"):
        return True
    raise ToolDefinitionError(
        tool, f"parameter {parameter.name!r} is reserved for the context; rename it, or annotate it as ToolContext"
    )


def _names_context(annotation: Any) -> bool:
    """Whether an annotation is ToolContext or optional; also as text, as its import may be for type checkers only."""
    if isinstance(annotation, str):
        return _CONTEXT_TEXT.fullmatch(annotation) is not None
    if isinstance(annotation, ForwardRef):
        return _names_context(annotation.__forward_arg__)
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_names_context(option) for option in get_args(annotation))
    return annotation is ToolContext


def _namespace(function: Function) -> dict[str, Any]:
    """The names that a function's annotations may use: its module's, and those that its body closes over."""
    if not isinstance(function, types.FunctionType):
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells if _is_filled(cell)}}


def _is_filled(cell: types.CellType) -> bool:
    """Whether the variable has its value yet: a function may close over one that is assigned below it."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _parameter(tool: str, parameter: inspect.Parameter, space: dict[str, Any]) -> Parameter:
    name = require_argument_name(tool, parameter.name)
    annotation = _resolved(tool, parameter, space)
    if parameter.default is _UNSET:
        return Parameter(name, annotation, required=True)
    if type(parameter.default).__name__ == "FieldInfo":
        raise ToolDefinitionError(
            tool, f"parameter {name!r}: its default is a Field; write 'Annotated[…, Field(…)] = default' instead"
        )
    if parameter.default is None and annotation is not Any:
        annotation = Optional[annotation]  # noqa: UP045 -- annotation is a value here
    return Parameter(name, annotation, required=False, default=parameter.default)


def _resolved(tool: str, parameter: inspect.Parameter, space: dict[str, Any]) -> Any:
    if parameter.annotation is _UNSET:
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(holder, globalns=space, include_extras=True)[parameter.name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ToolDefinitionError(
            tool,
            f"parameter {parameter.name!r}: its annotation {parameter.annotation!r} cannot be resolved ({error}); "
            "define the type at the top of its module",
        ) from error

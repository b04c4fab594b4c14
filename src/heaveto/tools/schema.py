"""From a function to a JSON schema and a strict validator.

Rules, each held by a `ToolDefinitionError` that names the parameter:

- Every parameter can be given by name: no ``*args``, no ``**kwargs``, nothing positional-only.
- A parameter without annotation takes any JSON value. A parameter whose default is None takes null too.
- The context is the parameter that is annotated `ToolContext`, or named ``tool_context`` or ``ctx``. One at most.
- What ``functools.partial`` has bound by name is the program's, not the model's.

Values are validated as JSON is: strictly, but with what JSON cannot say (dates, enums, tuples, models) read from what
stands for it. pydantic is imported with the first tool, not before.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    ForwardRef,
    NotRequired,
    Optional,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from heaveto.errors import NotSerializableError, ToolArgumentsError, ToolDefinitionError
from heaveto.events.contents import Json
from heaveto.tools.base import ToolContext
from heaveto.tools.docstring import parse_docstring
from heaveto.tools.naming import require_argument_name
from heaveto.tools.response import to_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails, ValidationError

Function: TypeAlias = Callable[..., Any]

CONTEXT_NAMES = frozenset({"tool_context", "ctx"})
_CONTEXT_TEXT = re.compile(r"""(None\s*\|\s*|[\w.]*Optional\[)?["']?([\w.]*\.)?ToolContext["']?(\]|\s*\|\s*None)?""")
_UNSET = inspect.Parameter.empty
_REPORTED_PROBLEMS = 8
_SHOWN_CHARACTERS = 120


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


# --- reading a function -------------------------------------------------------------------------------------------


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


# --- the schema ---------------------------------------------------------------------------------------------------


class Arguments:
    """The arguments of one tool: their JSON schema, computed once, and their validator."""

    def __init__(self, tool: str, signature: Signature, docstring: str | None) -> None:
        from pydantic_core import ValidationError

        adapter = _adapter(tool, signature.parameters)
        self.schema = _schema(adapter, signature, parse_docstring(docstring).arguments)
        self._names = tuple(parameter.name for parameter in signature.parameters)
        # Bound once: bind() runs for each call.
        self._validate = adapter.validator.validate_json
        self._encode = msgspec.json.Encoder().encode
        self._invalid = ValidationError

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        """Validate strictly and return what was given, in the function's types. Defaults are left to the function.

        Raises:
            ToolArgumentsError: names the arguments that do not fit, what is expected and what was given.
        """
        try:
            given = self._encode(args)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ToolArgumentsError(f"the arguments are not valid JSON: {error}") from error
        try:
            bound: dict[str, Any] = self._validate(given, strict=True)
        except self._invalid as error:
            raise ToolArgumentsError(_explain(error, self._names)) from error
        return bound


def _adapter(tool: str, parameters: tuple[Parameter, ...]) -> TypeAdapter[Any]:
    fields = {p.name: p.annotation if p.required else NotRequired[p.annotation] for p in parameters}
    try:
        adapter = _typed_dict_adapter(fields)
        adapter.json_schema()
    except _definition_errors() as error:
        raise ToolDefinitionError(tool, _blame(parameters, error)) from error
    return adapter


def _typed_dict_adapter(fields: dict[str, Any]) -> TypeAdapter[Any]:
    """Make a validator that returns a plain dict of what was given: no attribute names to collide with."""
    import typing_extensions
    from pydantic import ConfigDict, TypeAdapter

    make: Any = typing_extensions.TypedDict
    arguments = make("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(arguments)


def _definition_errors() -> tuple[type[Exception], ...]:
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError
    from pydantic_core import SchemaError

    return (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)


def _blame(parameters: tuple[Parameter, ...], error: Exception) -> str:
    """Say which parameter's type cannot be used: the first one that fails by itself."""
    for parameter in parameters:
        try:
            _typed_dict_adapter({parameter.name: parameter.annotation}).json_schema()
        except _definition_errors() as cause:
            reason = str(cause).splitlines()[0]
            return f"parameter {parameter.name!r}: its type cannot be given as JSON ({reason}); use another type"
    return f"its parameters cannot be given as JSON ({str(error).splitlines()[0]})"


def _schema(adapter: TypeAdapter[Any], signature: Signature, described: dict[str, str]) -> dict[str, Json]:
    schema: dict[str, Json] = _without_titles(adapter.json_schema())
    properties: dict[str, Json] = schema.setdefault("properties", {})
    for parameter in signature.parameters:
        told = properties[parameter.name]
        if described.get(parameter.name):
            told.setdefault("description", described[parameter.name])
        if not parameter.required:
            told.update(_default(parameter))
    schema["additionalProperties"] = False
    return schema


def _default(parameter: Parameter) -> dict[str, Json]:
    """The default as a schema tells it; nothing where it is null, or cannot be said in JSON."""
    if parameter.default is None:
        return {}
    try:
        return {"default": to_json(parameter.default)}
    except NotSerializableError:
        return {}


_MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
_PLAIN_VALUES = frozenset({"default", "const", "enum", "examples", "required", "mapping"})


def _without_titles(schema: Json) -> Json:
    """Drop the titles that pydantic makes from names: they cost tokens and say nothing. Properties called so stay."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("Iterable[Json]", schema)]
    if not isinstance(schema, dict):
        return schema
    words = cast("dict[str, Json]", schema).items()
    return {key: _kept(key, value) for key, value in words if not (key == "title" and isinstance(value, str))}


def _kept(key: str, value: Json) -> Json:
    if key in _PLAIN_VALUES:
        return value
    if key in _MAPS_OF_SCHEMAS:
        return {name: _without_titles(schema) for name, schema in value.items()}
    return _without_titles(value)


# --- messages for the model ---------------------------------------------------------------------------------------


def _explain(error: ValidationError, names: tuple[str, ...]) -> str:
    problems = error.errors(include_url=False, include_context=False)
    shown = [_problem(problem, names) for problem in problems[:_REPORTED_PROBLEMS]]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return "invalid arguments: " + "; ".join(shown)


def _problem(problem: ErrorDetails, names: tuple[str, ...]) -> str:
    where = "".join(_location(problem["loc"])) or "arguments"
    match problem["type"]:
        case "missing":
            return f"{where} is missing"
        case "extra_forbidden":
            known = f"; the arguments are {', '.join(names) or 'none'}" if len(problem["loc"]) == 1 else ""
            return f"{where} is not known{known}"
        case _:
            expected = problem["msg"].replace("Input should be", "should be", 1)
            return f"{where}: {expected}, but got {_shown(problem['input'])}"


def _location(loc: tuple[int | str, ...]) -> Iterator[str]:
    for position, step in enumerate(loc):
        yield f"[{step}]" if isinstance(step, int) else f".{step}" if position else step


def _shown(value: Any) -> str:
    try:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"

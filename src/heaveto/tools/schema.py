"""From a function's signature to a JSON schema and a strict validator.

Values are validated as JSON is: strictly, but with what JSON cannot say (dates, enums, tuples, models) read from what
stands for it. pydantic is imported with the first tool, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NotRequired, cast

import msgspec

from heaveto.errors import NotSerializableError, ToolArgumentsError, ToolDefinitionError
from heaveto.events.contents import Json
from heaveto.tools.docstring import parse_docstring
from heaveto.tools.response import to_json
from heaveto.tools.signature import Parameter, Signature

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails, ValidationError

_REPORTED_PROBLEMS = 8
_SHOWN_CHARACTERS = 120


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

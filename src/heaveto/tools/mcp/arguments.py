"""A model's arguments against a server's schema, so that a call that does not fit is not sent."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, cast

from jsonschema import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from heaveto.errors import ToolArgumentsError
from heaveto.events.contents import Json

_TOLD = 5


class Arguments:
    """A tool's input schema. It is compiled on first use; references out of it are not followed."""

    def __init__(self, tool: str, schema: dict[str, Json], log: logging.Logger) -> None:
        self._tool, self._schema, self._log = tool, schema, log
        self._validator: Validator | None = None
        self._unusable = False

    def bind(self, args: dict[str, Json]) -> dict[str, Json]:
        """Return the arguments if they fit.

        Where the schema itself cannot be used, that is logged once, and the server is left to judge.

        Raises:
            ToolArgumentsError: they do not fit.
        """
        if self._unusable:
            return args
        try:
            problems = [_problem(error) for error in islice(self._compiled().iter_errors(args), _TOLD)]
        except (SchemaError, Unresolvable, RecursionError) as error:
            self._unusable = True
            self._log.warning("the input schema of tool %r cannot be used: %s", self._tool, error)
            return args
        if problems:
            raise ToolArgumentsError("; ".join(problems))
        return args

    def _compiled(self) -> Validator:
        if self._validator is None:
            kind: Any = validator_for(self._schema)
            kind.check_schema(self._schema)
            self._validator = cast("Validator", kind(self._schema, registry=Registry[Any]()))
        return self._validator


def _problem(error: ValidationError) -> str:
    where = ".".join(str(step) for step in error.absolute_path)
    return f"{where}: {error.message}" if where else error.message

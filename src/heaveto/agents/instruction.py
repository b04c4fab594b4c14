"""Instructions as text with placeholders: ``{name}`` is the state value of that name, ``{name?}`` may be missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from heaveto.core.notes import as_json
from heaveto.errors import ConfigError
from heaveto.events.contents import Json

_PLACEHOLDER = re.compile(r"\{((?:app:|user:|temp:)?[A-Za-z_][A-Za-z0-9_]*)(\?)?\}")


def fill_instruction(template: str, state: Mapping[str, Json]) -> str:
    """Return the instruction with its placeholders filled from the state.

    Braces around anything that is not a name stay as they are, so that JSON examples need no escape.

    Raises:
        ConfigError: a value is missing whose placeholder has no ``?``.
    """

    def value(match: re.Match[str]) -> str:
        name, optional = match.group(1), match.group(2)
        found = state.get(name)
        if found is None:
            if optional:
                return ""
            raise ConfigError(
                f"instruction placeholder {{{name}}}: the state has no such value; set it, or write {{{name}?}}"
            )
        return found if isinstance(found, str) else as_json(found)

    return _PLACEHOLDER.sub(value, template)

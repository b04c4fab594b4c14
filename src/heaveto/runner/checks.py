"""What a caller hands to a runner, checked at its door, so that a mistake is told where it was made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from reprlib import repr as short_repr
from typing import get_args

from heaveto.agents.base import AGENT_ADVICE, BaseAgent
from heaveto.agents.pieces import require_piece
from heaveto.errors import CallInMessageError, ConfigError, EmptyMessageError, InputError
from heaveto.events.codec import decode_value, encode_value
from heaveto.events.contents import Content, FunctionCall, FunctionResponse, Json, Part, Text
from heaveto.events.records import StopScope
from heaveto.runner.application.app import App

_MOST_DELIVERED = 2**63 - 1


def require_parts_of_runner(agent: object, app: object, store: object) -> None:
    """Refuse an agent, app or store that is none; None stands for one that was left out.

    Raises:
        ConfigError: the message says what was given and what to pass.
    """
    if agent is not None:
        require_piece(agent, BaseAgent, "Runner: agent", AGENT_ADVICE)
    if app is not None:
        require_piece(app, App, "Runner: app", "pass App('name', agent), or the agent as agent=")
    if isinstance(store, (str, os.PathLike)):
        raise ConfigError(f"Runner: store is not a store but {store!r}; pass SqliteStore({os.fspath(store)!r})")
    require_piece(store, object, "Runner: store", "pass a store")


def require_id(name: str, value: object) -> None:
    """Refuse what cannot name a user or a session.

    Raises:
        InputError: it is no text, or empty.
    """
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} must be a str that is not empty; it is {short_repr(value)}")


def require_count(name: str, value: object) -> None:
    """Refuse what is no number of things of which there must be one.

    Raises:
        InputError: it is no integer, or less than 1.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be an int of at least 1; it is {short_repr(value)}")


def require_delivered(value: object) -> None:
    """Refuse what is no number of characters.

    Raises:
        InputError: it is no integer, negative, or more than a record can hold.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_DELIVERED
    if value is not None and not is_count:
        raise InputError(
            "delivered must be how many characters reached the user, an int from 0 to 2**63 - 1; "
            f"it is {short_repr(value)}"
        )


def require_scope(scope: object) -> None:
    """Refuse what does not say how far a stop reaches.

    Raises:
        InputError: the message says what does.
    """
    if scope not in get_args(StopScope):
        raise InputError(f"scope must be one of {', '.join(get_args(StopScope))}; not {short_repr(scope)}")


def checked_message(message: str | Content | Part) -> Content:
    """Return a message as a content of parts.

    Raises:
        InputError: it is neither text nor a part nor a content of parts.
        CallInMessageError, EmptyMessageError
    """
    parts = message.parts if isinstance(message, Content) else (message,)
    if not isinstance(message, str) and not all(isinstance(part, get_args(Part)) for part in parts):
        raise InputError(
            "new_message must be a str, a part such as Text or Blob, or a Content of parts; "
            f"it is {short_repr(message)}"
        )
    content = message if isinstance(message, Content) else Content.of(message)
    for part in content.parts:
        if isinstance(part, FunctionCall):
            raise CallInMessageError(part.name)
    if not any(not isinstance(part, Text) or part.text.strip() for part in content.parts):
        raise EmptyMessageError
    return content


def holds_answers(message: str | Content | Part) -> bool:
    """Whether a message answers waiting calls."""
    parts = message.parts if isinstance(message, Content) else (message,)
    return any(isinstance(part, FunctionResponse) for part in parts)


def as_recorded(key: str, value: Json) -> Json:
    """Return a value as the log will hold it.

    Raises:
        NotSerializableError: it cannot.
    """
    return decode_value(encode_value(value, key))


def recorded_delta(delta: Mapping[str, Json]) -> dict[str, Json]:
    """Return a state delta as the log will hold it; ``temp:`` values, which it never holds, as they are."""
    return {
        key: value if key.startswith("temp:") else as_recorded(f"state_delta[{key!r}]", value)
        for key, value in delta.items()
    }

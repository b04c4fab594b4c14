"""What parent and worker say to each other: pickled tuples, each behind its length.

Foreign values in them (arguments, results, output, errors) are pickled by themselves first, so that one that cannot be
pickled, or not made again, is an error of its call and never breaks the conversation.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from heaveto.errors import NotTransportableError
from heaveto.tools.process.reference import Reference

Message: TypeAlias = tuple[Any, ...]

LENGTH = struct.Struct(">Q")
MAX_VALUE_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """What a worker is to do.

    Attributes:
        tool: the tool's name, for errors.
        where: the function.
        args: its arguments, packed once more, so that an argument that cannot be made again is an error of the call.
        context: the parameter that takes the context.
        stoppable: a generator is closed between two pieces when a stop was asked for.
        facts: what the context knows.
    """

    tool: str
    where: Reference
    args: bytes
    context: str | None
    stoppable: bool
    facts: dict[str, Any]


def frame(message: Message) -> bytes:
    """Return a message of ours as bytes, its length included. What is foreign in it has been packed before."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def pack(value: Any, what: str) -> bytes:
    """Return a foreign value as bytes; `what` names it in errors.

    Raises:
        NotTransportableError: it cannot be pickled, or is too large.
    """
    try:
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotTransportableError(_named(what, value), f"{type(error).__name__}: {error}") from error
    if len(body) > MAX_VALUE_BYTES:
        problem = f"it takes {len(body)} bytes, and the limit is {MAX_VALUE_BYTES}; write it to a file"
        raise NotTransportableError(_named(what, value), problem)
    return body


def unpack(body: bytes, what: str) -> Any:
    """Return what `pack` was given.

    Raises:
        NotTransportableError: it cannot be made again here, as its class is not importable for example.
    """
    try:
        return pickle.loads(body)
    except Exception as error:
        raise NotTransportableError(what, f"{type(error).__name__}: {error}") from error


def _named(what: str, value: Any) -> str:
    return f"{what} of type {type(value).__qualname__}"

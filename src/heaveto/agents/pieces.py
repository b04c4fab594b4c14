"""What agents and runners are put together from, checked where it is handed in.

A piece of the wrong kind would else be met by the first run that needs it, with an error about a missing attribute.
"""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as short_repr
from typing import TypeVar

from heaveto.errors import ConfigError

_T = TypeVar("_T")


def require_piece(value: object, kind: type, where: str, advice: str) -> None:
    """Refuse what is not an instance of `kind`. `where` names its place, `advice` what to do instead.

    Raises:
        ConfigError: the message says what was given and what to pass.
    """
    if isinstance(value, type):
        raise ConfigError(f"{where} is the class {value.__name__}; pass an instance, such as {value.__name__}(…)")
    if not isinstance(value, kind):
        raise ConfigError(f"{where} is not a {kind.__name__} but {short_repr(value)}; {advice}")


def as_pieces(values: Iterable[_T], kind: type, where: str, advice: str) -> tuple[_T, ...]:
    """Return several pieces as a tuple, each checked by `require_piece`.

    Raises:
        ConfigError: as in `require_piece`; also for one piece, or a text, instead of a list.
    """
    _require_list(values, where)
    pieces = tuple(values)
    for position, piece in enumerate(pieces):
        require_piece(piece, kind, f"{where}[{position}]", advice)
    return pieces


def _require_list(given: object, where: str) -> None:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{where} is not a list but {short_repr(given)}; pass a list")

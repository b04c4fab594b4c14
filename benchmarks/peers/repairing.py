"""How a peer is asked to go on from each broken history: one line of JSON about each, the rest goes over the wire."""

from __future__ import annotations

import json
from collections.abc import Callable

from shapes import SHAPES, Shape


def play(ask: Callable[[Shape], None], *, ids_only: bool = True) -> None:
    """Ask about each history; an exception is the peer's answer to it."""
    for shape in SHAPES:
        if ids_only and not shape.ids:
            continue
        error = ""
        try:
            ask(shape)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:300]
        print(json.dumps({"shape": shape.name, "error": error}), flush=True)

"""What users need to test their own agents: a scripted model, a fake clock, an emulated provider, and the suite that
every store passes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heaveto.testing.clock import FakeClock, settle
    from heaveto.testing.script import (
        call,
        cut,
        delay,
        fault,
        finish,
        gate,
        give,
        hang,
        raw_call,
        say,
        think,
        usage,
    )
    from heaveto.testing.scripted_model import ScriptedModel
    from heaveto.testing.store_contract import StoreContract

_SCRIPT = ("call", "cut", "delay", "fault", "finish", "gate", "give", "hang", "raw_call", "say", "think", "usage")
_HOME_OF = {
    "FakeClock": "heaveto.testing.clock",
    "settle": "heaveto.testing.clock",
    "ScriptedModel": "heaveto.testing.scripted_model",
    "StoreContract": "heaveto.testing.store_contract",
    **dict.fromkeys(_SCRIPT, "heaveto.testing.script"),
}

__all__ = [
    "FakeClock",
    "ScriptedModel",
    "StoreContract",
    "call",
    "cut",
    "delay",
    "fault",
    "finish",
    "gate",
    "give",
    "hang",
    "raw_call",
    "say",
    "settle",
    "think",
    "usage",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'heaveto.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)

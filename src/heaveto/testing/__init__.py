"""What users need to test their own agents: a scripted model, a fake clock, an emulated provider, crashes on purpose,
and the suites that every store, artifact service and model connector pass.

Names are loaded on first use. Only `StoreContract`, `ArtifactContract` and `ModelContract` need pytest, so ``import *``
leaves them out: import them by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heaveto.testing.artifact_contract import ArtifactContract as ArtifactContract  # public, though not in __all__
    from heaveto.testing.clock import FakeClock, settle
    from heaveto.testing.crash import CrashingStore
    from heaveto.testing.emulator import Emulator, EmulatorThread
    from heaveto.testing.emulator.echo import echo
    from heaveto.testing.model_contract import ModelContract as ModelContract  # public, though not in __all__
    from heaveto.testing.promises import check_promises
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
    from heaveto.testing.store_contract import StoreContract as StoreContract  # public, though not in __all__

_SCRIPT = ("call", "cut", "delay", "fault", "finish", "gate", "give", "hang", "raw_call", "say", "think", "usage")
_HOME_OF = {
    "ArtifactContract": "heaveto.testing.artifact_contract",
    "CrashingStore": "heaveto.testing.crash",
    "Emulator": "heaveto.testing.emulator",
    "EmulatorThread": "heaveto.testing.emulator",
    "FakeClock": "heaveto.testing.clock",
    "ModelContract": "heaveto.testing.model_contract",
    "ScriptedModel": "heaveto.testing.scripted_model",
    "StoreContract": "heaveto.testing.store_contract",
    "check_promises": "heaveto.testing.promises",
    "echo": "heaveto.testing.emulator.echo",
    "settle": "heaveto.testing.clock",
    **dict.fromkeys(_SCRIPT, "heaveto.testing.script"),
}

__all__ = [
    "CrashingStore",
    "Emulator",
    "EmulatorThread",
    "FakeClock",
    "ScriptedModel",
    "call",
    "check_promises",
    "cut",
    "delay",
    "echo",
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

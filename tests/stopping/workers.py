"""Functions that work in processes of their own, which import them from here."""

from __future__ import annotations

import os
import time
from pathlib import Path

from heaveto.tools.base import ToolContext


def process_polite(hold: bool, pids: str, ctx: ToolContext) -> str:
    """Sleep, and let the interruption pass."""
    _begin(hold, pids, ctx)
    if hold:
        time.sleep(3600)
    return "done"


def process_deaf(hold: bool, pids: str, ctx: ToolContext) -> str:
    """Sleep, and take no notice of anything."""
    _begin(hold, pids, ctx)
    while hold:
        try:
            time.sleep(3600)
        except BaseException:
            continue
    return "done"


def _begin(hold: bool, pids: str, ctx: ToolContext) -> None:
    if hold:
        Path(pids).write_text(str(os.getpid()))
        ctx.output("begun")

"""Histories as providers know them: read, repaired, written with as few changes as possible.

`core.repair` decides what becomes of calls and results; a format here reads its messages into steps, applies the plan,
and sees to what else its provider wants: nothing empty, no bad ends, its own ids. A provider's peculiarities are data
(`profiles`), so that a strict backend of a known format is a table entry.
"""

from heaveto.histories.dangling import repair_dangling_tool_calls
from heaveto.histories.profiles import REGISTRY, Profile, formats, profile_named
from heaveto.histories.repairer import Repairer
from heaveto.histories.repairing import repair

__all__ = ["REGISTRY", "Profile", "Repairer", "formats", "profile_named", "repair", "repair_dangling_tool_calls"]

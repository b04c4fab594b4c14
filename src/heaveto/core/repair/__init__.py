"""Repair: the patch that makes a foreign or broken history valid. Pure: it knows steps, not formats.

`decide` binds results to calls by an ordered walk and says what moves, what goes, what is made up and which ids change.
A format (`heaveto.histories`) reads its history into steps, and applies the plan.
"""

from heaveto.core.repair.decision import decide
from heaveto.core.repair.report import Change, RepairReport
from heaveto.core.repair.rules import Fault, Options, Policy
from heaveto.core.repair.steps import GAP, Block, Call, Made, Moved, Plan, Quoted, Result, Turn

__all__ = [
    "GAP",
    "Block",
    "Call",
    "Change",
    "Fault",
    "Made",
    "Moved",
    "Options",
    "Plan",
    "Policy",
    "Quoted",
    "RepairReport",
    "Result",
    "Turn",
    "decide",
]

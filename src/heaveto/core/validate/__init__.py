"""Whether a provider accepts a request body: one pure validator per format, and `validate` in front of them.

A validator returns the first `Violation` that it finds, or None. Rules that no public report confirms are only applied
with ``strict_unconfirmed=True``: what we send must keep them too, what others send need not.
"""

from heaveto.core.validate.front import FORMATS, validate
from heaveto.core.validate.rules import RULES, Rule
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import ALIASES

__all__ = ["ALIASES", "FORMATS", "RULES", "Rule", "Violation", "validate"]

"""Whether a provider accepts a request body: one pure validator per format.

A validator returns the first `Violation` that it finds, or None. Rules that no public report confirms are only applied
with ``strict_unconfirmed=True``: what we send must keep them too, what others send need not.
"""

from heaveto.core.validate.violation import Violation

__all__ = ["Violation"]

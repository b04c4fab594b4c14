"""What tokens cost."""

from __future__ import annotations

import msgspec

from heaveto.events.records import Usage

_PER = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """Prices per million tokens, in one currency. `cached_input` is that of cached input tokens, if it is another."""

    input: float
    output: float
    cached_input: float | None = None

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        cost = fresh * self.input + usage.cached_tokens * cached_price + usage.output_tokens * self.output
        return msgspec.structs.replace(usage, cost=cost / _PER)

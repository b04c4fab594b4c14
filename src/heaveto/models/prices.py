"""What tokens cost."""

from __future__ import annotations

import msgspec

from heaveto.events.records import Usage

_PER = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """Prices per million tokens, in one currency.

    `cached_input` and `cache_write` are those of input that is read from a cache and written to one, where they differ
    from `input`.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        fresh = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
        cost = fresh * self.input + usage.output_tokens * self.output
        cost += usage.cached_tokens * cached_price + usage.cache_write_tokens * write_price
        return msgspec.structs.replace(usage, cost=cost / _PER)

"""What a validator finds."""

from __future__ import annotations

import msgspec

from heaveto.core.json_values import Body, fields, text


class Violation(msgspec.Struct, frozen=True):
    """A broken rule, with the answer that the provider gives: HTTP status, error body, and headers that tell of it.

    `rule` is an id such as ``O3``, explained in the reference page of validators; `unconfirmed` tells that no public
    report proves it. Of `headers` only those are there that belong to the error: a request id, the type of the error.
    """

    rule: str
    status: int
    body: Body
    unconfirmed: bool = False
    headers: dict[str, str] = {}

    @property
    def message(self) -> str:
        """The provider's words."""
        return text(fields(self.body.get("error")).get("message")) or text(self.body.get("message"))

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"

"""Whether and when a failed attempt of a call is repeated: a pure policy."""

from __future__ import annotations

from dataclasses import dataclass

from heaveto.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeat a failed attempt, as a further attempt of the same call with the same idempotency key.

    Attributes:
        attempts: how many there are at most, the first one included.
        backoff_seconds: the pause before the second one; doubled each time, up to `max_backoff_seconds`.
        on: the errors after which it is repeated; a time limit that passed counts as `TimeoutError`.
    """

    attempts: int = 3
    backoff_seconds: float = 0.5
    max_backoff_seconds: float = 30.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"Retry: attempts must be at least 1, not {self.attempts}")
        if self.backoff_seconds < 0 or self.max_backoff_seconds < 0:
            raise ConfigError("Retry: a pause must not be negative")

    def pause(self, failures: int, error: Exception) -> float | None:
        """Return the seconds to wait after so many failed attempts, the last with `error`; None to give up."""
        if failures >= self.attempts or not isinstance(error, self.on):
            return None
        doubled: float = self.backoff_seconds * 2 ** min(failures - 1, 60)
        return min(doubled, self.max_backoff_seconds)

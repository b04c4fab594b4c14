"""A session's lease in this process, and how it is given back although the store has trouble."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from heaveto.errors import StoreClosedError
from heaveto.events.records import SessionKey
from heaveto.runner.services import Services, logger
from heaveto.stores.base import Lease

_RETRY_RELEASE_SECONDS = 1.0


class Tenure:
    """Claims a session, and gives it back.

    Attributes:
        is_owed: the store could not take a lease back yet: nobody else can claim the session.
    """

    def __init__(self, services: Services, key: SessionKey) -> None:
        self._services, self._key = services, key
        self._owed: tuple[Lease, Sequence[str]] | None = None
        """The lease that goes back, with the runs that are settled."""

    @property
    def is_owed(self) -> bool:
        return self._owed is not None

    async def claim(self) -> Lease:
        """Claim the session; errors as in `Store.claim`. What is still owed goes back first."""
        await self._release()
        return await self._services.store.claim(self._key)

    async def give_back(self, lease: Lease, settled: Sequence[str]) -> None:
        """Release the lease. Where the store cannot take it now, see to it that it is tried again."""
        self._owed = lease, settled
        try:
            await self._release()
        except StoreClosedError:
            self._owed = None  # what an instance holds ends with it
        except Exception:  # noqa: BLE001 - whatever the store's trouble is, the session must not stay locked for it
            logger.warning("session %s could not be given back; trying again", self._key, exc_info=True)
            self._services.spawn(self._release_later(), f"release of session {self._key}")

    async def _release(self) -> None:
        owed = self._owed
        if owed is not None:
            await self._services.store.release(owed[0], settled=owed[1])
            if self._owed is owed:
                self._owed = None

    async def _release_later(self) -> None:
        while self._owed is not None and not self._services.closed:
            await self._services.clock.sleep(_RETRY_RELEASE_SECONDS)
            with suppress(Exception):
                await self._release()

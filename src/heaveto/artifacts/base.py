"""The interface of artifact services."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import SessionKey

Infos: TypeAlias = list[ArtifactInfo]
Versions: TypeAlias = list[int]


class ArtifactService(Protocol):
    """Named, versioned content, beside the log. `heaveto.testing.ArtifactContract` is the suite that each one passes.

    A name is any relative path; one that begins with ``user:`` belongs to the user of the app, in all sessions, and the
    others to one session. A version is whole or not there, durable on return, and never changed. Every method may be
    cancelled: its effect has then happened whole or not at all.

    All methods raise `ArtifactNameError` for a name that is not acceptable, and `StoreOpenError` where the medium
    cannot be used.
    """

    async def save(self, key: SessionKey, name: str, content: Blob, *, id: str | None = None) -> int:
        """Store content as the next version, and return which: 0, or one more than the newest.

        The first save of an `id` under a name counts: another one stores nothing and returns the same version,
        whatever it brings, so that an attempt may be repeated.

        Raises:
            StoreFullError: no space is left; nothing was stored.
            SessionErasedError: the session was erased.
        """
        ...

    async def load(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        """Return a version, the newest if none is named, or None if there is no such artifact."""
        ...

    async def list(self, key: SessionKey) -> Infos:
        """Return the newest version of each artifact of the session and of its user, by name."""
        ...

    async def versions(self, key: SessionKey, name: str) -> Versions:
        """Return the versions that there are, ascending; empty if there is no such artifact."""
        ...

    async def delete(self, key: SessionKey, name: str) -> None:
        """Delete all versions of an artifact, if there are any. The next one saved under its name is version 0."""
        ...

    async def erase(self, key: SessionKey) -> None:
        """Delete the session's artifacts, not those of its user. Idempotent; called when a session is erased."""
        ...

"""What every artifact service promises, as a test suite. Subclass it, say how one is opened, and run pytest.

    class TestMyArtifacts(ArtifactContract):
        async def open_service(self) -> ArtifactService:
            return MyArtifacts(self.place)

As with `StoreContract`, `another_instance` returns a second service on the same content, as another process would have
it, or None; the test methods are coroutines, for pytest-asyncio in auto mode or anyio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from heaveto.artifacts.base import ArtifactService
from heaveto.errors import ArtifactNameError, SessionErasedError
from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import SessionKey

KEY = SessionKey("app", "ann", "s1")
OTHER = SessionKey("app", "ann", "s2")
STRANGERS = (
    SessionKey("app", "bob", "s1"),
    SessionKey("zoo", "ann", "s1"),
    SessionKey("app", "ann/s1", "s1"),
    SessionKey("app/ann", "s1", "s1"),
    SessionKey("..", "..", ".."),
    SessionKey("APP", "Ann", "S1"),
    SessionKey("app", "ann", "user"),
)
"""Sessions whose keys, put together carelessly, would be `KEY`, its user, or a place outside."""
NAMES = (
    "report.txt", "Report.txt", "report txt", "report/2026/may.csv", "report", "a" * 900, "ä", "a\u0308",
    "отчёт 🚢.pdf", "CON", "nul.txt", ".hidden", "0", "content", "about.json", "dot.", "user", "app:x",
    "%2e%2e", "x:y?*|<>\"'", "user:report.txt", "user:user:x", "user:0",
)  # fmt: skip
"""Acceptable names, among them those that file systems confuse, reserve or cannot store."""
BAD_NAMES = (
    "", " ", "user:", "..", "../x", "a/../../x", "a\\..\\x", "/etc/passwd", "\\x", "C:\\x", "c:/x", "user:../x",
    "user:/x", "nul\x00.txt", "line\nfeed", "\ud800", "x" * 1001,
)  # fmt: skip
BIG = bytes(range(256)) * 8192


def blob(content: bytes | str, mime_type: str = "text/plain") -> Blob:
    """Return content as a blob."""
    return Blob(mime_type=mime_type, content=content.encode() if isinstance(content, str) else content)


async def names_of(service: ArtifactService, key: SessionKey) -> list[str]:
    """Return the names that a listing has."""
    return [info.name for info in await service.list(key)]


class ArtifactContract:
    """The suite. Every test's docstring is a sentence of the contract."""

    # --- what a subclass says

    async def open_service(self) -> ArtifactService:
        """Return a service without artifacts, in whose place the sessions of this suite exist."""
        raise NotImplementedError

    async def another_instance(self, service: ArtifactService) -> ArtifactService | None:
        """Return a second instance on the content of `service`, as another process would have it."""
        return None

    async def erase_session(self, service: ArtifactService, key: SessionKey) -> None:
        """Erase a session as a runner does: the service's part, and that of the store if it keeps the artifacts."""
        await service.erase(key)

    # --- saving and loading

    async def test_an_artifact_has_versions(self) -> None:
        """Each save is a new version from 0; the newest is loaded unless one is named."""
        service = await self.open_service()
        for version, content in enumerate((blob(b""), blob("one", "text/csv"), blob(BIG, "x/y"), blob("three"))):
            assert await service.save(KEY, "a.txt", content) == version
            assert await service.load(KEY, "a.txt") == content
        assert await service.load(KEY, "a.txt", 1) == blob("one", "text/csv")
        assert await service.load(KEY, "a.txt", 2) == blob(BIG, "x/y")
        assert await service.load(KEY, "a.txt", 4) is await service.load(KEY, "a.txt", -1) is None
        assert await service.versions(KEY, "a.txt") == [0, 1, 2, 3]
        assert await service.list(KEY) == [ArtifactInfo("a.txt", 3, "text/plain", 5)]

    async def test_what_is_not_there_is_none(self) -> None:
        """Asking and deleting makes nothing and raises nothing."""
        service = await self.open_service()
        for name in ("a", "user:a"):
            assert await service.load(KEY, name) is None
            assert await service.versions(KEY, name) == []
            await service.delete(KEY, name)
        assert await service.list(KEY) == []

    async def test_every_name_is_an_artifact_of_its_own(self) -> None:
        """Case, Unicode forms, slashes, reserved and long names are told apart, and listed as they were given."""
        service = await self.open_service()
        for name in NAMES:
            assert await service.save(KEY, name, blob(name)) == 0
        for name in NAMES:
            assert await service.load(KEY, name) == blob(name)
        assert await names_of(service, KEY) == sorted(NAMES)

    @pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
    async def test_a_name_that_leads_astray_is_refused(self, name: str) -> None:
        """Nothing that leads out of a directory or cannot be shown is a name, for any method."""
        service = await self.open_service()
        uses: list[Awaitable[Any]] = [
            service.save(KEY, name, blob("x")),
            service.load(KEY, name),
            service.versions(KEY, name),
            service.delete(KEY, name),
        ]
        for use in uses:
            with pytest.raises(ArtifactNameError):
                await use
        assert await service.list(KEY) == []

    async def test_a_repeated_save_makes_no_second_version(self) -> None:
        """An attempt that is repeated with its id gets the version of the first one, whose content stands (F117)."""
        service = await self.open_service()
        assert await service.save(KEY, "a", blob("first"), id="call-1") == 0
        assert await service.save(KEY, "a", blob("other"), id="call-2") == 1
        assert await service.save(KEY, "a", blob("first, again"), id="call-1") == 0
        assert await service.load(KEY, "a", 0) == blob("first")
        assert await service.versions(KEY, "a") == [0, 1]
        assert await service.save(KEY, "b", blob("x"), id="call-1") == 0
        assert await service.save(OTHER, "a", blob("x"), id="call-1") == 0

    async def test_saves_at_the_same_moment_get_versions_of_their_own(self) -> None:
        """No version is given twice and none is lost, by whichever instance; of saves with one id one counts."""
        service = await self.open_service()
        second = await self.another_instance(service) or service
        contents = [blob(str(number)) for number in range(12)]
        saves = [(service, second)[number % 2].save(KEY, "n", content) for number, content in enumerate(contents)]
        versions = await asyncio.gather(*saves)
        assert sorted(versions) == await service.versions(KEY, "n") == list(range(12))
        for version, content in zip(versions, contents, strict=True):
            assert await second.load(KEY, "n", version) == content
        twins = [(service, second)[number % 2].save(KEY, "twins", blob("x"), id="same") for number in range(6)]
        assert len(set(await asyncio.gather(*twins))) == 1
        assert len(await service.versions(KEY, "twins")) == 1

    # --- whose they are

    async def test_an_artifact_belongs_to_its_session_or_to_its_user(self) -> None:
        """``user:`` names are seen in all sessions of the user in the app, the others in one."""
        service = await self.open_service()
        await service.save(KEY, "user:photo", blob("ann"))
        await service.save(KEY, "note", blob("s1"))
        assert await service.save(OTHER, "user:photo", blob("ann again")) == 1
        assert await service.save(OTHER, "note", blob("s2")) == 0
        assert await names_of(service, OTHER) == ["note", "user:photo"]
        assert await service.load(OTHER, "note") == blob("s2")
        assert await service.load(KEY, "user:photo") == blob("ann again")
        assert await names_of(service, SessionKey("app", "ann", "never made")) == ["user:photo"]

    @pytest.mark.parametrize("key", STRANGERS, ids=str)
    async def test_no_other_session_or_user_reaches_it(self, key: SessionKey) -> None:
        """Keys that look alike, or lead to each other's places when put together, are strangers."""
        service = await self.open_service()
        await service.save(KEY, "note", blob("mine"))
        await service.save(KEY, "user:note", blob("mine"))
        await service.save(key, "note", blob("theirs"))
        is_of_ann = (key.app, key.user) == (KEY.app, KEY.user)
        assert await service.save(key, "user:note", blob("theirs")) == (1 if is_of_ann else 0)
        assert await service.load(KEY, "note") == blob("mine")
        assert await service.load(KEY, "user:note", 0) == blob("mine")
        await self.erase_session(service, key)
        await service.delete(key, "user:note")
        assert await names_of(service, KEY) == (["note"] if is_of_ann else ["note", "user:note"])

    # --- deleting and erasing

    async def test_a_deleted_artifact_is_gone(self) -> None:
        """All its versions go and no other artifact's; its name is free, and its ids, too."""
        service = await self.open_service()
        for name in ("a", "user:a"):
            await service.save(KEY, name, blob("0"), id="i")
            await service.save(KEY, name, blob("1"))
            await service.save(KEY, name + "/b", blob("kept"))
            await service.delete(KEY, name)
            assert await service.load(KEY, name) is await service.load(KEY, name, 0) is None
            assert await service.versions(KEY, name) == []
            assert await service.save(KEY, name, blob("new"), id="i") == 0
            assert await service.load(KEY, name) == blob("new")
        assert await names_of(service, KEY) == ["a", "a/b", "user:a", "user:a/b"]

    async def test_erasing_takes_what_is_the_sessions(self) -> None:
        """The user's artifacts and those of other sessions stay; a second time changes nothing."""
        service = await self.open_service()
        for key, name in ((KEY, "a"), (KEY, "b/c"), (KEY, "user:a"), (OTHER, "a")):
            await service.save(key, name, blob("x"))
        for _ in range(2):
            await self.erase_session(service, KEY)
            assert await names_of(service, KEY) == ["user:a"]
            assert await service.load(KEY, "a") is None
            assert await names_of(service, OTHER) == ["a", "user:a"]

    async def test_an_erased_session_takes_no_artifacts(self) -> None:
        """What works on after the erasure cannot bring content back; the user's can still be saved."""
        service = await self.open_service()
        await service.save(KEY, "a", blob("x"))
        await self.erase_session(service, KEY)
        await self.erase_session(service, OTHER)
        for key in (KEY, OTHER):
            with pytest.raises(SessionErasedError):
                await service.save(key, "a", blob("late"))
        assert await service.save(KEY, "user:a", blob("x")) == 0
        assert await names_of(service, KEY) == ["user:a"]

    async def test_nothing_slips_in_while_a_session_is_erased(self) -> None:
        """Saves at the same moment as an erasure are erased or refused."""
        service = await self.open_service()
        saves = [asyncio.ensure_future(service.save(KEY, f"n{number}", blob("x"))) for number in range(8)]
        await asyncio.gather(*saves[:2])
        await self.erase_session(service, KEY)
        results = await asyncio.gather(*saves, return_exceptions=True)
        assert {type(result) for result in results} <= {int, SessionErasedError}
        assert await service.list(KEY) == []

    # --- being cancelled

    async def test_a_cancelled_save_happened_whole_or_not_at_all(self) -> None:
        """Cancelled at any moment, a save has left its version or nothing, and can be repeated with its id (F158)."""
        service = await self.open_service()
        for yields in range(10):
            name = str(yields)
            task = asyncio.ensure_future(service.save(KEY, name, blob(BIG), id="i"))
            for _ in range(yields):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await service.save(KEY, name, blob(BIG), id="i") == 0
            assert await service.load(KEY, name) == blob(BIG)

"""Blobs: versions of named content, of a session or of its user."""

from __future__ import annotations

import asyncio

import pytest

from heaveto.errors import SessionErasedError, UnknownSessionError
from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import SessionKey
from heaveto.testing.store_contract.content import BIG, KEY, OTHER
from heaveto.testing.store_contract.suite import StoreSuite, cancel_after


class BlobContract(StoreSuite):
    """What a store promises of blobs."""

    async def test_a_blob_has_versions(self) -> None:
        """Each save is a new version from 0; the newest is loaded unless one is named."""
        async with self.opened(KEY) as store:
            for version, content in enumerate((b"", b"\x00\xff", BIG, b"x")):
                assert await store.save_blob(KEY, "a/b.bin", content, mime_type=f"x/{version}") == version
            assert await store.load_blob(KEY, "a/b.bin") == Blob(mime_type="x/3", content=b"x")
            assert await store.load_blob(KEY, "a/b.bin", 2) == Blob(mime_type="x/2", content=BIG)
            assert await store.load_blob(KEY, "a/b.bin", 0) == Blob(mime_type="x/0", content=b"")
            assert await store.load_blob(KEY, "a/b.bin", 4) is await store.load_blob(KEY, "a/b.bin", -1) is None
            assert await store.blob_versions(KEY, "a/b.bin") == [0, 1, 2, 3]
            assert await store.read(KEY) == []

    async def test_blobs_are_listed_by_name(self) -> None:
        """A listing has the newest version of each blob, with its type and size."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.list_blobs(KEY) == []
            await store.save_blob(KEY, "ä \U0001f600", b"123", mime_type="text/plain")
            await store.save_blob(KEY, "b", b"1", mime_type="x/old")
            await store.save_blob(KEY, "b", b"22", mime_type="x/new")
            await store.save_blob(OTHER, "c", b"", mime_type="x/y")
            assert await store.list_blobs(KEY) == [
                ArtifactInfo("b", 1, "x/new", 2),
                ArtifactInfo("ä \U0001f600", 0, "text/plain", 3),
            ]

    async def test_a_blob_belongs_to_its_session_or_to_its_user(self) -> None:
        """``user:`` names are seen in all sessions of the user in the app, and need none; others in one only."""
        elsewhere = [SessionKey("app", "bob", "s1"), SessionKey("zoo", "ann", "s1"), SessionKey("", "", "")]
        async with self.opened(KEY, OTHER, *elsewhere) as store:
            await store.save_blob(KEY, "user:photo", b"ann", mime_type="x/y")
            await store.save_blob(KEY, "note", b"s1", mime_type="x/y")
            assert await store.save_blob(OTHER, "user:photo", b"ann again", mime_type="x/y") == 1
            assert await store.save_blob(OTHER, "note", b"s2", mime_type="x/y") == 0
            assert [info.name for info in await store.list_blobs(OTHER)] == ["note", "user:photo"]
            assert await store.load_blob(OTHER, "note") == Blob(mime_type="x/y", content=b"s2")
            assert await store.load_blob(KEY, "user:photo", 0) == Blob(mime_type="x/y", content=b"ann")
            for key in elsewhere:
                assert await store.list_blobs(key) == []
                assert await store.blob_versions(key, "user:photo") == []
                assert await store.load_blob(key, "user:photo") is await store.load_blob(key, "note") is None
            nowhere = SessionKey("app", "ann", "never made")
            assert [info.name for info in await store.list_blobs(nowhere)] == ["user:photo"]
            assert await store.save_blob(nowhere, "user:photo", b"3", mime_type="x/y") == 2
            assert await store.load_blob(nowhere, "note") is None

    async def test_a_repeated_save_makes_no_second_version(self) -> None:
        """An attempt that is repeated with its id gets the version of the first one, whose content stands (F117)."""
        async with self.opened(KEY) as store:
            for content in (b"first", BIG):
                name = f"of {len(content)}"
                assert await store.save_blob(KEY, name, content, mime_type="x/y", id="call-1") == 0
                assert await store.save_blob(KEY, name, b"other", mime_type="x/z", id="call-2") == 1
                assert await store.save_blob(KEY, name, content + b"again", mime_type="x/y", id="call-1") == 0
                assert await store.load_blob(KEY, name, 0) == Blob(mime_type="x/y", content=content)
                assert await store.blob_versions(KEY, name) == [0, 1]
            assert await store.save_blob(KEY, "another name", b"", mime_type="x/y", id="call-1") == 0

    async def test_saves_at_the_same_moment_get_versions_of_their_own(self) -> None:
        """No version is given twice and none is lost; of saves with one id one counts."""
        async with self.opened(KEY) as store:
            contents = [BIG + b"1", b"2", BIG + b"3", b"4"]
            saves = [store.save_blob(KEY, "n", content, mime_type="x/y") for content in contents]
            versions = await asyncio.gather(*saves)
            assert sorted(versions) == [0, 1, 2, 3]
            for version, content in zip(versions, contents, strict=True):
                assert await store.load_blob(KEY, "n", version) == Blob(mime_type="x/y", content=content)
            twins = [store.save_blob(KEY, "twins", BIG, mime_type="x/y", id="same") for _ in range(4)]
            assert await asyncio.gather(*twins) == [0, 0, 0, 0]
            assert await store.blob_versions(KEY, "twins") == [0]

    async def test_a_deleted_blob_is_gone(self) -> None:
        """All versions go; the name is free; deleting what is not there does nothing."""
        async with self.opened(KEY, OTHER) as store:
            for name in ("a", "user:a"):
                await store.save_blob(KEY, name, BIG, mime_type="x/y", id="i")
                await store.save_blob(KEY, name, b"1", mime_type="x/y")
                await store.save_blob(KEY, name + "b", b"kept", mime_type="x/y")
                await store.delete_blob(OTHER if name == "user:a" else KEY, name)
                await store.delete_blob(KEY, name)
                assert await store.load_blob(KEY, name) is await store.load_blob(KEY, name, 0) is None
                assert await store.blob_versions(KEY, name) == []
            assert [info.name for info in await store.list_blobs(KEY)] == ["ab", "user:ab"]
            assert await store.save_blob(KEY, "a", b"new", mime_type="x/y", id="i") == 0
            await store.delete_blob(SessionKey("no", "such", "one"), "a")

    async def test_erasing_a_session_erases_its_blobs(self) -> None:
        """The session's own go with it; those of its user stay, and can be deleted without it."""
        async with self.opened(KEY, OTHER) as store:
            for key, name in ((KEY, "a"), (KEY, "user:a"), (OTHER, "a")):
                await store.save_blob(key, name, BIG, mime_type="x/y")
            await store.erase_session(KEY, by="ann")
            assert [info.name for info in await store.list_blobs(KEY)] == ["user:a"]
            assert await store.load_blob(KEY, "a") is None
            for content in (b"late", BIG):
                with pytest.raises(SessionErasedError):
                    await store.save_blob(KEY, "a", content, mime_type="x/y")
                with pytest.raises(UnknownSessionError):
                    await store.save_blob(SessionKey("no", "such", "one"), "a", content, mime_type="x/y")
            await store.delete_blob(KEY, "user:a")
            assert [info.name for info in await store.list_blobs(OTHER)] == ["a"]

    async def test_a_cancelled_save_happened_whole_or_not_at_all(self) -> None:
        """Cancelled at any moment, a save has left its version or nothing, and can be repeated with its id (F158)."""
        async with self.opened(KEY) as store:
            for yields in range(0, 24, 3):
                name = str(yields)
                await cancel_after(yields, store.save_blob(KEY, name, BIG, mime_type="x/y", id="i"))
                assert await store.blob_versions(KEY, name) in ([], [0])
                assert await store.save_blob(KEY, name, BIG, mime_type="x/y", id="i") == 0
                assert await store.load_blob(KEY, name) == Blob(mime_type="x/y", content=BIG)
            assert len(await store.list_blobs(KEY)) == 8

    async def test_blobs_are_there_after_reopening(self) -> None:
        """Blobs and their ids outlive the instance."""
        store = await self.open_store()
        await store.create_session(KEY)
        await store.save_blob(KEY, "a", BIG, mime_type="x/y", id="i")
        await store.save_blob(KEY, "user:a", b"1", mime_type="x/y")
        again = await self.reopen(store)
        if again is None:
            pytest.skip("this store does not outlive its instance")
        try:
            assert await again.load_blob(KEY, "a") == Blob(mime_type="x/y", content=BIG)
            assert await again.save_blob(KEY, "a", BIG, mime_type="x/y", id="i") == 0
            assert [info.name for info in await again.list_blobs(KEY)] == ["a", "user:a"]
        finally:
            await again.aclose()

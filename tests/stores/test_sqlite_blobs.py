"""Blobs in the SQLite file: what a cut-off save leaves, and what it does to the others."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.stores.test_sqlite_processes import LaterClock, child

from heaveto.errors import StoreError, StoreFullError
from heaveto.stores.sqlite import SqliteStore
from heaveto.stores.sqlite.blobs import CHUNK_BYTES, Upload
from heaveto.stores.sqlite.ledger import Ledger
from heaveto.stores.sqlite.schema import check_integrity
from heaveto.testing.store_contract import KEY, OTHER, message

SECRET = b"7c02-the-bytes-that-must-go"
CHUNK = memoryview(b"c" * CHUNK_BYTES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def rows_of(path: Path) -> tuple[int, int]:
    """Return how many blobs and chunks there are, seen and unseen."""
    with closing(sqlite3.connect(path)) as connection:
        counts: tuple[int, int] = connection.execute(
            "SELECT (SELECT count(*) FROM blobs), (SELECT count(*) FROM chunks)"
        ).fetchone()
    return counts


async def add_chunk(store: SqliteStore, upload: Upload, place: int) -> None:
    await store._write(partial(Ledger.add_chunk, upload=upload, place=place, content=CHUNK))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
async def test_a_save_of_a_killed_process_leaves_nothing(path: Path) -> None:
    """kill -9 in the middle: nobody ever saw the blob, and the next instance that saves one removes its chunks."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        async with child("begin", path) as other:
            assert await other.line() == "begun"
            assert await store.list_blobs(KEY) == []
            assert await store.load_blob(KEY, "big") is None
            await store.save_blob(OTHER, "user:x", b"1", mime_type="x/y")
            assert rows_of(path) == (2, 3), "its process lives: nobody takes its chunks away"
            await other.kill()
        async with SqliteStore(path) as later:
            await later.save_blob(KEY, "a", b"1", mime_type="x/y")
            assert [info.name for info in await later.list_blobs(KEY)] == ["a", "user:x"]
            assert rows_of(path) == (2, 2)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs file locks")
async def test_a_save_may_take_longer_than_a_sign_of_life(path: Path) -> None:
    """A process that is slow or frozen is not gone: its save is completed when it goes on."""
    clock = LaterClock()
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        async with child("begin", path) as other:
            assert await other.line() == "begun"
            async with SqliteStore(path, clock=clock) as later:
                clock.seconds = 3600
                await later.save_blob(KEY, "a", b"1", mime_type="x/y")
            assert await other.ask() == "0"
        loaded = await store.load_blob(KEY, "big")
        assert loaded is not None and loaded.content == b"s" * (3 * CHUNK_BYTES)


async def test_what_was_begun_and_is_gone_is_not_published(path: Path) -> None:
    """A blob of which a part is missing never gets a version; its saver is told to begin again."""
    upload = Upload(7, KEY, "big", "x/y", 2 * CHUNK_BYTES, None)
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        await add_chunk(store, upload, 0)
        with pytest.raises(StoreError, match="save it again"):
            await store._write(lambda ledger: ledger.blobs.publish(upload))
        await store._write(lambda ledger: ledger.blobs.discard(7))
        with pytest.raises(StoreError, match="save it again"):
            await add_chunk(store, upload, 1)
        assert rows_of(path) == (0, 0)


async def test_a_cancelled_save_leaves_no_chunks(path: Path) -> None:
    """What was written until then is removed at once, in the order of the writes."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        for turns in range(0, 40, 4):
            task = asyncio.ensure_future(store.save_blob(KEY, "big", bytes(CHUNK) * 20, mime_type="x/y"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await store.append(KEY, [message()], token=None)
            assert rows_of(path) == (0, 0)


async def test_appends_get_in_between_the_chunks(path: Path) -> None:
    """A blob of many chunks does not keep the appends of others waiting for its end, nor other reads."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        saving = asyncio.ensure_future(store.save_blob(KEY, "big", bytes(CHUNK) * 200, mime_type="x/y"))
        for number in range(1, 6):
            assert await store.append(KEY, [message()], token=None) == number
            assert not saving.done()
        assert await saving == 0
        loading = asyncio.ensure_future(store.load_blob(KEY, "big"))
        for _ in range(3):
            assert await store.find_run("r") is None
            assert not loading.done()
        loaded = await loading
        assert loaded is not None and loaded.content == bytes(CHUNK) * 200


async def test_a_blob_that_does_not_fit_is_refused_whole(path: Path) -> None:
    """A full store says so, keeps nothing of it, and goes on with what fits; small appends were never in danger."""
    async with SqliteStore(path, max_bytes=3_000_000) as store:
        await store.create_session(KEY)
        await store.save_blob(KEY, "fits", bytes(CHUNK) * 3, mime_type="x/y")
        before = rows_of(path)
        for size in (20, 40):
            with pytest.raises(StoreFullError) as caught:
                await store.save_blob(KEY, "big", bytes(CHUNK) * size, mime_type="x/y", id="i")
            assert caught.value.retryable
            await store.append(KEY, [message()], token=None)
            assert rows_of(path) == before
        await store.delete_blob(KEY, "fits")
        assert await store.save_blob(KEY, "big", bytes(CHUNK) * 4, mime_type="x/y", id="i") == 0
    assert check_integrity(path) == []


@pytest.mark.parametrize("way", ["delete", "erase"])
async def test_deleted_content_is_in_no_file(path: Path, way: str) -> None:
    """A deleted blob, and those of an erased session, are not on the disk any more, in the WAL neither."""
    content = SECRET + bytes(CHUNK) * 2 + SECRET
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        await store.save_blob(KEY, "a", content, mime_type="x/y")
        await store.save_blob(KEY, "a", SECRET, mime_type="x/y")
        assert _files_with_secret(path.parent)
        if way == "delete":
            await store.delete_blob(KEY, "a")
        else:
            await store.erase_session(KEY, by="ann")
        assert _files_with_secret(path.parent) == []
        assert rows_of(path) == (0, 0)


def _files_with_secret(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir() if SECRET in file.read_bytes()]

"""The SQLite file: what it may be when it is opened, and what happens when it is torn, full, damaged or locked."""

# ruff: noqa: ASYNC110, ASYNC240 -- files of a few kB, and other processes that only polling can see

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from heaveto.errors import (
    NotSerializableError,
    StoreBusyError,
    StoreCorruptError,
    StoreFullError,
    StoreOpenError,
    StoreTooNewError,
    WrongLoopError,
)
from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import SessionKey
from heaveto.stores.base import Unfinished
from heaveto.stores.sqlite import SqliteStore
from heaveto.stores.sqlite.schema import MIGRATIONS, check_integrity, open_file
from heaveto.testing.store_contract import KEY, OTHER, draft, message

BATCH = 3
SECRET = "4f1e-the-text-that-must-go"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def build(path: Path, *scripts: str) -> bytes:
    """Make a database file of scripts; return its bytes."""
    with closing(sqlite3.connect(path)) as connection:
        for script in scripts:
            connection.executescript(script)
    return path.read_bytes()


# --- opening


async def test_opening_is_lazy(path: Path) -> None:
    """Making a store and closing it unused touches no file."""
    store = SqliteStore(path)
    await store.aclose()
    assert not path.exists()


async def test_an_empty_file_is_a_new_store(path: Path) -> None:
    """`mktemp` makes one: it is taken, not refused."""
    path.touch()
    async with SqliteStore(path) as store:
        await store.create_session(KEY)


async def test_a_name_that_is_no_unicode_is_a_typed_error(path: Path) -> None:
    """A lone surrogate in a key cannot be stored; writing and reading say so."""
    key = SessionKey("app", "\ud800", "s")
    async with SqliteStore(path) as store:
        for attempt in (store.create_session(key), store.claim(key), store.read(key)):
            with pytest.raises(NotSerializableError):
                await attempt
        await store.create_session(KEY)


@pytest.mark.parametrize(
    ("place", "problem"), [("", "directory"), ("no/such/x.db", "does not exist"), ("nul\x00.db", "null|writable")]
)
async def test_an_impossible_path_is_named(tmp_path: Path, place: str, problem: str) -> None:
    """A directory, or a file in a missing one: the error says which, and nothing is created."""
    with pytest.raises(StoreOpenError, match=problem):
        await SqliteStore.open(tmp_path / place)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc as a directory nobody can write")
async def test_a_directory_that_cannot_be_written_is_named() -> None:
    """Not even root can make files in /proc."""
    with pytest.raises(StoreOpenError):
        await SqliteStore.open("/proc/heaveto.db")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
async def test_a_read_only_file_is_refused(path: Path) -> None:
    """A store that cannot be written is not opened half."""
    async with SqliteStore(path):
        pass
    path.chmod(0o444)
    with pytest.raises(StoreOpenError, match="not writable"):
        await SqliteStore.open(path)


async def test_a_failed_opening_is_tried_again(tmp_path: Path) -> None:
    """Each use of a store that could not be opened says why, until the reason is gone."""
    store = SqliteStore(tmp_path / "later" / "store.db")
    for _ in range(2):
        with pytest.raises(StoreOpenError):
            await store.get_session(KEY)
    (tmp_path / "later").mkdir()
    assert await store.get_session(KEY) is None
    await store.aclose()


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000, b"{}"])
async def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    """Garbage is a typed error, and is not overwritten."""
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError):
        await SqliteStore.open(path)
    assert path.read_bytes() == content


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    """A wrong path must not put our tables into somebody's data."""
    content = build(path, "CREATE TABLE cookies (a);")
    with pytest.raises(StoreCorruptError, match="not of heaveto"):
        await SqliteStore.open(path)
    assert path.read_bytes() == content


async def test_a_newer_schema_is_left_alone(path: Path) -> None:
    """An older program refuses the store of a newer one, and says to upgrade."""
    newer = f"PRAGMA user_version = {len(MIGRATIONS) + 1}"
    content = build(path, Path(__file__).with_name("schema_v1.sql").read_text(), newer)
    with pytest.raises(StoreTooNewError, match="upgrade"):
        await SqliteStore.open(path)
    assert path.read_bytes() == content


async def test_a_store_of_version_1_is_read_for_ever(path: Path) -> None:
    """The file that the first schema wrote opens, with everything in it, and can be written."""
    build(path, Path(__file__).with_name("schema_v1.sql").read_text())
    async with SqliteStore(path) as store:
        assert [record.id for record in await store.read(KEY)] == ["a", "b"]
        assert await store.unfinished() == [Unfinished(KEY, "r", ended=False)]
        assert await store.find_guard(KEY, "g") == "v"
        assert await store.find_run("r") == KEY
        assert [item.message_id for item in await store.drafts(KEY, "r")] == ["m"]
        lease = await store.claim(KEY)
        assert (lease.token, lease.last_seq, lease.shared) == (4, 2, {"app:theme": "dark"})
        assert await store.append(KEY, [message()], token=lease.token) == 3
        assert await store.save_blob(KEY, "new", b"1", mime_type="x/y") == 0


async def test_a_store_of_version_2_is_read_for_ever(path: Path) -> None:
    """The file that the second schema wrote opens, with its blobs, and takes more of them."""
    build(path, Path(__file__).with_name("schema_v2.sql").read_text())
    async with SqliteStore(path) as store:
        assert [record.id for record in await store.read(KEY)] == ["a"]
        assert await store.list_blobs(KEY) == [
            ArtifactInfo("note.txt", 1, "text/plain", 5),
            ArtifactInfo("user:photo", 0, "image/png", 2),
        ]
        assert await store.load_blob(KEY, "note.txt", 0) == Blob(mime_type="text/plain", content=b"first")
        assert await store.save_blob(KEY, "note.txt", b"again", mime_type="text/plain", id="call-1") == 0
        assert await store.save_blob(KEY, "note.txt", b"third", mime_type="text/plain") == 2


def test_the_newest_schema_is_the_migrated_one(path: Path, tmp_path: Path) -> None:
    """A migrated store and a new one have the same tables."""
    build(path, Path(__file__).with_name("schema_v1.sql").read_text())
    listing = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"
    with closing(open_file(path, 1.0)) as old, closing(open_file(tmp_path / "new.db", 1.0)) as new:
        assert old.execute(listing).fetchall() == new.execute(listing).fetchall()


def test_a_migration_happens_whole_or_not_at_all(path: Path) -> None:
    """A migration that fails in its second statement leaves the old version, which opens as before."""
    build(path, Path(__file__).with_name("schema_v1.sql").read_text())
    good = "ALTER TABLE sessions ADD COLUMN colour TEXT;\nUPDATE sessions SET colour='red';"
    with pytest.raises(Exception, match="nowhere"):
        open_file(path, 1.0, [*MIGRATIONS[:1], good + "\nINSERT INTO nowhere VALUES (1);"])
    with closing(open_file(path, 1.0, MIGRATIONS[:1])) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert "colour" not in str(connection.execute("SELECT sql FROM sqlite_master").fetchall())
    with closing(open_file(path, 1.0, [*MIGRATIONS[:1], good])) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("SELECT colour, last_seq FROM sessions").fetchall() == [("red", 2)]


async def test_many_instances_open_a_new_file_at_once(path: Path) -> None:
    """The tables are made by one of them; all work."""
    stores = [SqliteStore(path) for _ in range(5)]
    await asyncio.gather(*(store.list_sessions() for store in stores))
    await asyncio.gather(*(store.aclose() for store in stores))


# --- event loops


def test_a_store_may_move_from_one_loop_to_the_next(path: Path) -> None:
    """Blocking scripts call `asyncio.run` more than once."""
    store = SqliteStore(path)
    asyncio.run(_create(store))
    assert asyncio.run(_last_seq(store)) == 1
    asyncio.run(store.aclose())


async def _create(store: SqliteStore) -> None:
    await store.create_session(KEY)
    await store.append(KEY, [message()], token=None)


async def _last_seq(store: SqliteStore) -> int:
    info = await store.get_session(KEY)
    return info.last_seq if info else -1


async def test_two_loops_at_once_are_refused(path: Path) -> None:
    """A second running loop gets a typed error instead of a future that never ends."""
    async with SqliteStore(path) as store:
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(asyncio.run, _create(store))
        assert await store.get_session(KEY) is None


# --- torn, damaged, locked


@pytest.fixture
async def torn(path: Path) -> Path:
    """A copy of a store whose last batches are in the WAL only."""
    copy = path.with_name("copy.db")
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        for _ in range(10):
            await store.append(KEY, [message("x" * 500) for _ in range(BATCH)], token=None)
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


@pytest.mark.parametrize("fill", [None, b"\x00", b"\xa5"], ids=["cut", "zeros", "garbage"])
@pytest.mark.parametrize("round_", range(3))
async def test_a_torn_tail_costs_only_what_is_torn(torn: Path, fill: bytes | None, round_: int) -> None:
    """A WAL cut or overwritten anywhere leaves whole batches from the start, and appends go on from there (F108)."""
    wal = Path(f"{torn}-wal")
    content = wal.read_bytes()
    used = len(content.rstrip(b"\x00"))
    at = random.randrange(used)
    wal.write_bytes(content[:at] + (fill * (used - at) if fill else b""))
    async with SqliteStore(torn) as store:
        if await store.get_session(KEY) is None:
            await store.create_session(KEY)
        records = await store.read(KEY)
        assert len(records) % BATCH == 0
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert await store.append(KEY, [message()], token=None) == len(records) + 1
    async with SqliteStore(torn) as store:
        assert len(await store.read(KEY)) == len(records) + 1
    assert check_integrity(torn) == []


async def test_the_copy_with_its_whole_wal_holds_everything(torn: Path) -> None:
    """What the other test tears is really there when it is not torn."""
    async with SqliteStore(torn) as store:
        assert len(await store.read(KEY)) == 10 * BATCH


async def test_damage_is_found_when_it_is_met(path: Path) -> None:
    """Overwritten pages are a typed error of the call that reads them."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        await store.append(KEY, [message("x" * 3000) for _ in range(50)], token=None)
    content = path.read_bytes()
    half = len(content) // 8192 * 4096
    path.write_bytes(content[:half] + b"\xa5" * (len(content) - half))
    async with SqliteStore(path) as store:
        with pytest.raises(StoreCorruptError):
            await store.read(KEY)


async def test_a_lock_that_is_kept_too_long_is_a_typed_error(path: Path) -> None:
    """Another program that keeps the write lock: the append fails after the busy timeout, and can be repeated."""
    async with SqliteStore(path, busy_timeout_seconds=0.02) as store:
        await store.create_session(KEY)
        record = message()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError) as caught:
                await store.append(KEY, [record], token=None)
            assert caught.value.retryable
            with pytest.raises(StoreBusyError):
                await store.claim(KEY)
            other.execute("ROLLBACK")
        assert await store.append(KEY, [record], token=None) == 1


# --- full


async def test_a_full_store_refuses_and_goes_on(path: Path) -> None:
    """Without space nothing of a batch is written; what was confirmed is there; after an erase it goes on."""
    async with SqliteStore(path, max_bytes=600_000) as store:
        await store.create_session(KEY)
        await store.create_session(OTHER)
        await store.append(OTHER, [message("x" * 200_000)], token=None)
        confirmed = 0
        with pytest.raises(StoreFullError) as caught:
            while True:
                confirmed = await store.append(KEY, [message("x" * 20_000) for _ in range(BATCH)], token=None)
        assert caught.value.retryable
        assert len(await store.read(KEY)) == confirmed > 0
        await store.erase_session(OTHER, by="ann")
        assert await store.append(KEY, [message("x" * 20_000)], token=None) == confirmed + 1
    assert check_integrity(path) == []


async def test_an_append_that_is_too_big_does_not_hurt_the_others(path: Path) -> None:
    """Small appends of the same moment are stored although the big one is refused."""
    async with SqliteStore(path, max_bytes=300_000) as store:
        await store.create_session(KEY)
        results = await asyncio.gather(
            store.append(KEY, [message("small")], token=None),
            store.append(KEY, [message("x" * 1_000_000)], token=None),
            store.append(KEY, [message("small")], token=None),
            return_exceptions=True,
        )
        assert results[0] == 1 and results[2] == 2 and isinstance(results[1], StoreFullError)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB, where mounting is permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount command")
async def test_a_full_disk_refuses_and_goes_on(small_disk: Path) -> None:
    """A real file system without space: nothing is half written, and the store works once there is some."""
    ballast = small_disk / "ballast"
    async with SqliteStore(small_disk / "store.db") as store:
        await store.create_session(KEY)
        ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - 65536))
        confirmed = 0
        with pytest.raises(StoreFullError):
            while confirmed < 10_000:
                confirmed = await store.append(KEY, [message("x" * 60_000) for _ in range(BATCH)], token=None)
        assert len(await store.read(KEY)) == confirmed
        ballast.unlink()
        assert await store.append(KEY, [message("x" * 60_000)], token=None) == confirmed + 1
    assert check_integrity(small_disk / "store.db") == []


# --- erased


async def test_erased_text_is_in_no_file(path: Path) -> None:
    """Records, drafts and state of an erased session are not on the disk any more, in the WAL neither."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY, {"note": SECRET})
        await store.create_session(OTHER)
        for size in (0, 100, 3000, 20_000):
            await store.append(KEY, [message("x" * size + SECRET) for _ in range(20)], token=None)
            await store.append(OTHER, [message("kept")], token=None)
            await store.save_drafts(KEY, [draft(f"m{size}", SECRET), draft("again", SECRET + "x" * size)])
        assert _files_with(SECRET, path.parent)
        await store.erase_session(KEY, by="ann")
        assert _files_with(SECRET, path.parent) == []
        assert len(await store.read(OTHER)) == 4
    assert _files_with(SECRET, path.parent) == []


async def test_erased_text_goes_when_the_last_reader_does(path: Path) -> None:
    """A reader in another process keeps the WAL; it is emptied as soon as that reader is done."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        await store.append(KEY, [message(SECRET)], token=None)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM records").fetchone()
            await store.erase_session(KEY, by="ann")
            assert _files_with(SECRET, path.parent)
        await store.create_session(OTHER)
        async with asyncio.timeout(10):
            while _files_with(SECRET, path.parent):
                await asyncio.sleep(0.01)


def _files_with(text: str, directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir() if text.encode() in file.read_bytes()]


async def test_many_may_open_a_new_file_at_the_same_moment(tmp_path: Path) -> None:
    """The first to come makes the file, the others wait for it: nobody is told that it is locked."""
    for number in range(40):
        stores = [SqliteStore(tmp_path / f"{number}.db") for _ in range(4)]
        await asyncio.gather(*(store.unfinished() for store in stores))
        await asyncio.gather(*(store.aclose() for store in stores))

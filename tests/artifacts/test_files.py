"""Artifacts in a directory: the contract, and what happens when it is torn, full, blocked, or its writer killed."""

# ruff: noqa: ASYNC240 -- files of a few bytes

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heaveto.artifacts.base import ArtifactService
from heaveto.artifacts.files import ABANDONED_SECONDS, FileArtifacts
from heaveto.artifacts.naming import directory_name
from heaveto.clock import SystemClock
from heaveto.errors import SessionErasedError, StoreCorruptError, StoreFullError, StoreOpenError
from heaveto.events.records import SessionKey
from heaveto.testing.artifact_contract import KEY, NAMES, OTHER, STRANGERS, ArtifactContract, blob

CHILD = Path(__file__).with_name("artifact_process.py")


class TestFileArtifacts(ArtifactContract):
    """The contract, on `FileArtifacts`."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "artifacts"

    async def open_service(self) -> ArtifactService:
        return FileArtifacts(self.directory)

    async def another_instance(self, service: ArtifactService) -> ArtifactService | None:
        return FileArtifacts(self.directory)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def place_of(directory: Path, key: SessionKey, name: str) -> Path:
    return directory.joinpath(*map(directory_name, (key.app, key.user, key.session, name)))


class LaterClock(SystemClock):
    """A clock that is set forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


# --- where things are


async def test_making_a_service_touches_nothing(directory: Path) -> None:
    """The directory is made by the first save, not by looking."""
    service = FileArtifacts(directory)
    assert await service.list(KEY) == []
    assert not directory.exists()
    await service.save(KEY, "a", blob("x"))
    assert directory.is_dir()


async def test_nothing_is_written_outside(tmp_path: Path, directory: Path) -> None:
    """No key and no name leads out of the directory, and no directory in it has a name that a file system changes."""
    service = FileArtifacts(directory)
    for key in STRANGERS:
        for name in NAMES:
            await service.save(key, name, blob("x"))
    assert [path.name for path in tmp_path.iterdir()] == ["artifacts"]
    names = {path.name for path in directory.rglob("*")}
    assert len({name.casefold() for name in names}) == len(names)
    assert all(name.isascii() and len(name) < 64 for name in names)


async def test_a_content_is_a_plain_file(directory: Path) -> None:
    """It can be opened with anything; what is known about it lies beside."""
    await FileArtifacts(directory).save(KEY, "a.csv", blob("1,2", "text/csv"), id="i")
    version = place_of(directory, KEY, "a.csv") / "0"
    assert sorted(path.name for path in version.iterdir()) == ["about.json", "content"]
    assert (version / "content").read_bytes() == b"1,2"
    about = json.loads((version / "about.json").read_bytes())
    assert about == {"name": "a.csv", "mime_type": "text/csv", "size": 3, "id": "i"}


async def test_an_erased_session_leaves_one_empty_file(directory: Path) -> None:
    """What was in it is in no file any more."""
    service = FileArtifacts(directory)
    await service.save(KEY, "a", blob("secret"))
    await service.save(KEY, "a", blob("secret"))
    await service.erase(KEY)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files == [place_of(directory, KEY, "a").parent]
    assert files[0].read_bytes() == b""


# --- what a killed process leaves


async def test_what_was_begun_is_never_seen_and_goes_in_time(directory: Path) -> None:
    """A version whose writer was killed is invisible; a save an hour later removes it, an earlier one does not."""
    clock = LaterClock()
    service = FileArtifacts(directory, clock=clock)
    await service.save(KEY, "a", blob("x"))
    place = place_of(directory, KEY, "a")
    begun = place / ".new-0123"
    begun.mkdir()
    (begun / "content").write_bytes(b"hal")
    assert await service.versions(KEY, "a") == [0]
    assert await service.save(KEY, "a", blob("x")) == 1
    assert begun.exists()
    clock.ahead = ABANDONED_SECONDS + 60
    assert await service.save(KEY, "a", blob("x")) == 2
    assert not begun.exists()


async def test_an_erasure_that_was_cut_short_is_completed(directory: Path) -> None:
    """Killed behind the renaming, it has hidden the content; erasing again removes it."""
    service = FileArtifacts(directory)
    await service.save(KEY, "a", blob("secret"))
    session = place_of(directory, KEY, "a").parent
    session.rename(session.with_name(".gone-0123"))
    assert await service.list(KEY) == []
    await service.erase(KEY)
    assert not list(directory.rglob("content"))


async def test_kill_9_leaves_whole_versions_only(directory: Path) -> None:
    """Whenever the writer is killed, what it confirmed is there, and every version that is there is whole (F108)."""
    service = FileArtifacts(directory)
    confirmed = 0
    for delay_lines in (1, 2, 4):
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), str(directory), "a", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(delay_lines):
            confirmed = int(await process.stdout.readline())
        process.kill()
        await process.wait()
        versions = await service.versions(KEY, "a")
        assert versions == list(range(len(versions))) and confirmed in versions
        for version in versions:
            content = await service.load(KEY, "a", version)
            assert content is not None and len(set(content.content)) == 1 and len(content.content) == 200_000


async def test_two_processes_never_share_a_version(directory: Path) -> None:
    """Each save of each process has a number of its own, and its own content under it (F72)."""
    service = FileArtifacts(directory)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(CHILD), str(directory), "a", "15", stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    outputs = [(await process.communicate())[0].split() for process in processes]
    assert sorted(int(line) for output in outputs for line in output) == list(range(30))
    for process, output in zip(processes, outputs, strict=True):
        for line in output:
            content = await service.load(KEY, "a", int(line))
            assert content is not None and content.mime_type == f"x/{process.pid}"


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_at_the_same_moment_ends_well(directory: Path, seed: int) -> None:
    """Saves, deletions and two erasures in any order: each is done or refused by its typed error, nothing is left."""
    services = [FileArtifacts(directory) for _ in range(2)]
    chance = random.Random(seed)
    ids = [None, "i", "j"]
    works: list[Awaitable[Any]] = []
    for number, service in enumerate(services * 4):
        works.append(service.save(KEY, f"n{number % 3}", blob("x"), id=chance.choice(ids)))
        works.append(service.save(OTHER, "kept", blob("x"), id="same"))
        works.append(service.delete(KEY, f"n{number % 3}"))
        works.append(service.list(KEY))
        works.append(service.load(KEY, "n0"))
    works += [service.erase(KEY) for service in services]
    chance.shuffle(works)
    results = await asyncio.gather(*works, return_exceptions=True)
    assert [error for error in results if isinstance(error, Exception) and type(error) is not SessionErasedError] == []
    assert await services[0].list(KEY) == []
    assert await services[1].versions(OTHER, "kept") == [0]
    assert len(list(directory.rglob("content"))) == 1
    assert place_of(directory, KEY, "n0").parent.is_file()


# --- what can be wrong with the place


async def test_damage_is_a_typed_error(directory: Path) -> None:
    """Content of another size, or facts that cannot be read, are not passed on as if they were whole."""
    service = FileArtifacts(directory)
    await service.save(KEY, "a", blob("whole"))
    version = place_of(directory, KEY, "a") / "0"
    (version / "content").write_bytes(b"who")
    with pytest.raises(StoreCorruptError, match="3 bytes instead of 5"):
        await service.load(KEY, "a")
    (version / "about.json").write_bytes(b'{"name": "a')
    for attempt in (service.load(KEY, "a"), service.list(KEY), service.save(KEY, "a", blob("x"), id="i")):
        with pytest.raises(StoreCorruptError, match=r"about\.json"):
            await attempt


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses /proc as a directory nobody can write")
@pytest.mark.parametrize("place", ["/proc/heaveto", "/dev/null/heaveto"])
async def test_a_place_that_cannot_be_used_is_named(place: str) -> None:
    """Not even root can make directories there: a typed error that names the place."""
    service = FileArtifacts(place)
    with pytest.raises(StoreOpenError, match="heaveto"):
        await service.save(KEY, "a", blob("x"))
    with pytest.raises(StoreOpenError, match="heaveto"):
        await service.erase(KEY)
    assert await service.list(KEY) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, where mounting is permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount command")
async def test_a_full_disk_refuses_and_goes_on(small_disk: Path) -> None:
    """Nothing is half written, nothing is left over, and it works once there is space."""
    service = FileArtifacts(small_disk)
    await service.save(KEY, "a", blob("x" * 500_000))
    free = os.statvfs(small_disk).f_bavail
    with pytest.raises(StoreFullError) as caught:
        await service.save(KEY, "a", blob("y" * 3_000_000))
    assert caught.value.retryable
    assert os.statvfs(small_disk).f_bavail == free
    assert await service.load(KEY, "a") == blob("x" * 500_000)
    await service.delete(KEY, "a")
    assert await service.save(OTHER, "b", blob("x" * 1_000_000)) == 0

"""Artifacts in a directory, for any number of processes of one machine.

    DIRECTORY/app-…/user-…/session-…/name-…/0/content       as it was saved
                                             /about.json    its name, type, size and id
    DIRECTORY/app-…/user-…/user/name-…/0/…                  what belongs to the user

A version is made in a hidden directory, synced, and renamed to its number: that shows it whole, and the file system
lets one writer only have the number. Where an erased session was, a file lies, so that its directory cannot be made
again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from heaveto.artifacts.base import Infos, Versions
from heaveto.artifacts.naming import check_name, directory_name, is_of_user
from heaveto.clock import Clock, SystemClock
from heaveto.errors import SessionErasedError, StoreCorruptError, StoreError, StoreFullError, StoreOpenError
from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import SessionKey

ABANDONED_SECONDS = 3600.0
"""A version that has been in the making for so long will not be finished: its writer was killed."""
ATTEMPTS = 100
"""How often a save begins again because the artifact was deleted under it."""
_BEGUN, _GONE = ".new-", ".gone-"
_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY}  # Windows says EACCES
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
T = TypeVar("T")


class _About(msgspec.Struct, frozen=True):
    name: str
    mime_type: str
    size: int
    id: str | None = None


class FileArtifacts:
    """An `ArtifactService` on a local directory, which is made when it is first needed.

    Contents are plain files, to be opened with anything. Work is done in threads; a save that is cancelled may still
    be completed. A session's artifacts do not need the session to exist.

    Args:
        directory: where; it must belong to this service alone.
    """

    def __init__(self, directory: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._clock = clock or SystemClock()

    async def save(self, key: SessionKey, name: str, content: Blob, *, id: str | None = None) -> int:
        about = _About(check_name(name), content.mime_type, len(content.content), id)
        return await self._do(lambda: self._save(key, about, content.content))

    async def load(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        place = self._place(key, check_name(name))
        return await self._do(lambda: _load(place, version))

    async def list(self, key: SessionKey) -> Infos:
        return await self._do(lambda: self._list(key))

    async def versions(self, key: SessionKey, name: str) -> Versions:
        place = self._place(key, check_name(name))
        return await self._do(lambda: _versions(place))

    async def delete(self, key: SessionKey, name: str) -> None:
        place = self._place(key, check_name(name))
        await self._do(lambda: _remove(place))

    async def erase(self, key: SessionKey) -> None:
        await self._do(lambda: self._erase(self._session(key)))

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (OSError, ValueError) as error:
            raise _typed(error, self.directory) from error

    # --- places

    def _user(self, key: SessionKey) -> Path:
        return self.directory / directory_name(key.app) / directory_name(key.user)

    def _session(self, key: SessionKey) -> Path:
        return self._user(key) / directory_name(key.session)

    def _place(self, key: SessionKey, name: str) -> Path:
        # No session has the directory "user": theirs end with a hash.
        scope = self._user(key) / "user" if is_of_user(name) else self._session(key)
        return scope / directory_name(name)

    # --- work, in a thread

    def _save(self, key: SessionKey, about: _About, content: bytes) -> int:
        place = self._place(key, about.name)
        for _ in range(ATTEMPTS):
            earlier = _saved(place, about.id)
            if earlier is not None:
                return earlier
            try:
                _make_directories(place)
                self._sweep(place)
                return _publish(place, about, content)
            except _NOT_THERE:  # deleted meanwhile: once more; or erased, which is for good
                if not _is_blocked(place):
                    continue
                if self._session(key).is_file() and not is_of_user(about.name):
                    raise SessionErasedError(key) from None
                raise
        raise StoreOpenError(str(place), "directories that are made here are not there")

    def _list(self, key: SessionKey) -> Infos:
        places = [*_children(self._user(key) / "user"), *_children(self._session(key))]
        infos = [info for info in map(_newest, places) if info is not None]
        return sorted(infos, key=lambda info: info.name)

    def _erase(self, session: Path) -> None:
        _make_directories(session.parent)
        while not session.is_file():
            _remove(session)
            try:
                os.close(os.open(session, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:  # a save has just made it again
                continue
            except PermissionError:
                if not session.is_dir():  # what Windows says of a directory
                    raise
        for gone in session.parent.glob(f"{_GONE}*"):  # what an erasure that was cut short left
            _delete_tree(gone)
        _sync(session.parent)

    def _sweep(self, place: Path) -> None:
        """Remove what killed processes left, which nobody can see."""
        gone = [*place.glob(f"{_GONE}*"), *place.parent.glob(f"{_GONE}*")]
        for hidden in (*place.glob(f"{_BEGUN}*"), *gone):
            with suppress(OSError):  # tried again by the next save
                age = self._clock.time() - hidden.stat().st_mtime
                if hidden in gone or age > ABANDONED_SECONDS:
                    _delete_tree(hidden)


# --- writing


def _publish(place: Path, about: _About, content: bytes) -> int:
    begun = place / f"{_BEGUN}{os.urandom(8).hex()}"
    begun.mkdir()
    try:
        _write(begun / "content", content)
        _write(begun / "about.json", msgspec.json.encode(about))
        _sync(begun)
        version = _claim(place, begun)
        _sync(place)
    except BaseException:
        shutil.rmtree(begun, ignore_errors=True)
        raise
    return _settled(place, about.id, version)


def _claim(place: Path, begun: Path) -> int:
    """Rename to the next free number; a directory that is not empty is never replaced.

    A number that was taken, and then taken back as a second save of one id, is tried once more.
    """
    version = max(_versions(place), default=-1) + 1
    while True:
        try:
            begun.rename(place / str(version))
        except OSError as error:
            if error.errno not in (*_TAKEN, errno.EACCES):
                raise
            if (place / str(version)).exists():
                version += 1
            elif error.errno == errno.EACCES:
                raise  # not taken: forbidden
        else:
            return version


def _settled(place: Path, id: str | None, version: int) -> int:
    """Of saves of one id at the same moment the lowest version stands, and the others take theirs back."""
    first = _saved(place, id)
    if first is None or first >= version:
        return version
    _remove(place / str(version))
    return first


def _remove(place: Path) -> None:
    """Take a directory out of sight in one step, and then away; leave anything else alone."""
    gone = place.with_name(f"{_GONE}{os.urandom(8).hex()}")
    try:
        os.rename(f"{place}{os.sep}", gone)
    except _NOT_THERE:
        return
    with suppress(*_NOT_THERE):  # what it lies in was removed meanwhile, which makes it durable, too
        _sync(place.parent)
    _delete_tree(gone)


def _delete_tree(directory: Path) -> None:
    while directory.is_dir():
        with suppress(*_NOT_THERE):  # somebody else is at it, too, or at the session that it lies in
            shutil.rmtree(directory)


def _write(file: Path, content: bytes) -> None:
    with file.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _make_directories(place: Path) -> None:
    """Make a directory and those above it, durably."""
    missing: list[Path] = []
    while not place.is_dir():
        missing.append(place)
        place = place.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir()
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
        _sync(directory.parent)


def _is_blocked(place: Path) -> bool:
    """Whether something that is no directory lies in the way."""
    for above in (place, *place.parents):
        with suppress(OSError):  # not there, or behind what lies in the way
            return not stat.S_ISDIR(above.stat().st_mode)
    return False


def _sync(directory: Path) -> None:
    if os.name == "nt":  # directories cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- reading


def _children(directory: Path) -> Iterator[Path]:
    with suppress(*_NOT_THERE):
        yield from (child for child in directory.iterdir() if not child.name.startswith("."))


def _versions(place: Path) -> Versions:
    names = (child.name for child in _children(place))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _about(place: Path, version: int) -> _About | None:
    try:
        return msgspec.json.decode((place / str(version) / "about.json").read_bytes(), type=_About)
    except _NOT_THERE:  # deleted meanwhile
        return None
    except msgspec.MsgspecError as error:
        raise StoreCorruptError(str(place / str(version)), f"its about.json is damaged ({error})") from error


def _saved(place: Path, id: str | None) -> int | None:
    """Return the first version that was saved with this id."""
    if id is None:
        return None
    for version in _versions(place):
        about = _about(place, version)
        if about is not None and about.id == id:
            return version
    return None


def _load(place: Path, version: int | None) -> Blob | None:
    for candidate in reversed(_versions(place)) if version is None else [version]:
        blob = _load_version(place, candidate)
        if blob is not None:
            return blob
    return None


def _load_version(place: Path, version: int) -> Blob | None:
    about = _about(place, version)
    if about is None:
        return None
    try:
        content = (place / str(version) / "content").read_bytes()
    except _NOT_THERE:  # deleted meanwhile
        return None
    if len(content) != about.size:
        raise StoreCorruptError(
            str(place / str(version)), f"its content has {len(content)} bytes instead of {about.size}"
        )
    return Blob(mime_type=about.mime_type, content=content)


def _newest(place: Path) -> ArtifactInfo | None:
    for version in reversed(_versions(place)):
        about = _about(place, version)
        if about is not None:
            return ArtifactInfo(about.name, version, about.mime_type, about.size)
    return None


def _typed(error: OSError | ValueError, directory: Path) -> StoreError:
    if isinstance(error, OSError) and error.errno in _FULL:
        return StoreFullError(f"artifacts in {directory}: no space left; nothing was stored")
    return StoreOpenError(str(directory), f"cannot be used for artifacts ({error})")

"""Replacing a file so that at no moment there is less than a whole one, and the old one is kept."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True, slots=True)
class Original:
    """A file as it was read: what it held, and what tells whether it was written since."""

    path: Path
    data: bytes
    status: os.stat_result

    @staticmethod
    def read(path: Path) -> Original:
        """Read a file; a link is followed."""
        with path.resolve().open("rb") as file:
            status = os.fstat(file.fileno())
            return Original(path.resolve(), file.read(), status)

    def require_unchanged(self) -> None:
        """Refuse to go on if the file was written, replaced or removed since it was read.

        Raises:
            click.ClickException
        """
        try:
            now = self.path.stat()
        except FileNotFoundError:
            raise click.ClickException(f"{self.path} was removed meanwhile; nothing was written") from None
        if _identity(now) != _identity(self.status) or self.status.st_size != len(self.data):
            raise click.ClickException(
                f"{self.path} was changed meanwhile; nothing was written. Close what writes it, and try again"
            )


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def replace_file(original: Original, data: bytes) -> Path:
    """Put `data` in a file's place and return the backup of what it held, with its mode and owner.

    The new content is on the disk before the name points to it, and the backup before that. Whatever fails on the way,
    also this process, leaves the file as it was.

    Raises:
        click.ClickException: the file was written meanwhile. OSError: it cannot be written.
    """
    new = _written_beside(original.path, data, original.status)
    try:
        original.require_unchanged()
        backup = _backed_up(original)
        try:
            original.require_unchanged()
            new.replace(original.path)
        except BaseException:
            backup.unlink()
            raise
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_directory(original.path.parent)
    return backup


def write_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: there is the old one, if any, until the new one is complete."""
    target = path.resolve()
    status = target.stat() if target.exists() else None
    new = _written_beside(target, data, status)
    try:
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _written_beside(path: Path, data: bytes, like: os.stat_result | None) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                _owned_like(file.fileno(), like)
            else:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
    except BaseException:
        new.unlink()
        raise
    return new


def _owned_like(descriptor: int, like: os.stat_result) -> None:
    if (like.st_uid, like.st_gid) != (os.getuid(), os.getgid()):
        with suppress(PermissionError):  # another's file in a shared directory: only root may give files away
            os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _backed_up(original: Original) -> Path:
    """Give the old file a second name, ``FILE.bak`` or the first of ``FILE.bak.1``, … that is free."""
    number = 0
    while True:
        backup = original.path.with_name(f"{original.path.name}.bak{f'.{number}' if number else ''}")
        number += 1
        try:
            os.link(original.path, backup)
        except FileExistsError:
            continue
        except OSError:  # a file system without hard links
            copied = _written_beside(original.path, original.data, original.status)
            if backup.exists():
                copied.unlink()
                continue
            copied.rename(backup)
        return backup


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Names of artifacts: which are accepted, whose they are, and what they are called on a disk. Pure."""

from __future__ import annotations

import re
import unicodedata
from base64 import b32encode
from hashlib import sha256

from heaveto.errors import ArtifactNameError
from heaveto.stores.base import OF_USER

MAX_CHARACTERS = 1000
_SEPARATOR = re.compile(r"[/\\]")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}
_UNREADABLE = re.compile(r"[^A-Za-z0-9]+")
_READABLE_CHARACTERS = 16


def is_of_user(name: str) -> bool:
    """Whether an artifact of this name belongs to the user, over all sessions, and not to one session."""
    return name.startswith(OF_USER)


def check_name(name: str) -> str:
    """Return an acceptable name as it is: a relative path of any text, behind ``user:`` or not.

    Names never become paths here, but others will save artifacts under them, so what would lead out of a directory is
    refused, and what cannot be shown.

    Raises:
        ArtifactNameError: it is not acceptable; the message says why.
    """
    problem = _problem(name.removeprefix(OF_USER))
    if problem:
        raise ArtifactNameError(name, problem)
    return name


def _problem(path: str) -> str:
    if not path.strip():
        return "it is empty"
    if len(path) > MAX_CHARACTERS:
        return f"it has more than {MAX_CHARACTERS} characters"
    if any(unicodedata.category(character) in _UNSEEN for character in path):
        return "it has control characters"
    if _ABSOLUTE.match(path):
        return "it is an absolute path; name it relative"
    if ".." in _SEPARATOR.split(path):
        return "it leads out of its directory by '..'"
    return ""


def directory_name(text: str) -> str:
    """Return a directory name for any text: readable at its start, and the same only for the same text.

    The end is 160 bits of a hash in lower case, so it does not matter whether the file system tells case apart, how it
    normalises Unicode, what it reserves (``CON``), or how long the text is. It never begins with a dot.
    """
    readable = _UNREADABLE.sub("-", text)[:_READABLE_CHARACTERS].strip("-").lower()
    digest = b32encode(sha256(text.encode("utf-8", "surrogatepass")).digest()[:20]).decode().lower()
    return f"{readable}-{digest}" if readable else digest

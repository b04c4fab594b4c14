"""Names on a disk: the same only for the same text, and safe on every file system."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from heaveto.artifacts.naming import check_name, directory_name, is_of_user
from heaveto.errors import ArtifactNameError

_ANY = st.text(st.characters(exclude_categories=[]), max_size=60)


@given(_ANY)
def test_a_directory_name_is_safe_for_any_text(text: str) -> None:
    """Lower-case letters, digits and dashes, at most 49 of them: no dot, no separator, nothing reserved."""
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{31,48}", directory_name(text))


@given(_ANY, _ANY)
def test_a_directory_name_tells_texts_apart(one: str, two: str) -> None:
    """Two texts have one name only if they are the same."""
    assert (directory_name(one) == directory_name(two)) == (one == two)


def test_a_directory_name_never_changes() -> None:
    """Content that was saved is found by every later version of this program."""
    assert directory_name("Bericht Mai.pdf") == "bericht-mai-pdf-rrk4xnxp5ac2gsqmhhewnk3dqzehg6gp"
    assert directory_name("") == "4oymiquy7qobjgx36tejs35zeqt24qpe"


@given(_ANY)
def test_an_accepted_name_stays_in_its_directory(name: str) -> None:
    """Whatever is accepted can be joined to a directory without leaving it."""
    try:
        path = check_name(name).removeprefix("user:")
    except ArtifactNameError:
        return
    assert ".." not in re.split(r"[/\\]", path) and not path.startswith(("/", "\\")) and "\x00" not in path


def test_the_prefix_says_whose_it_is() -> None:
    """Only the prefix itself, at the start and in lower case."""
    assert is_of_user("user:a")
    assert not any(map(is_of_user, ("a", "user", "User:a", " user:a", "a/user:b")))

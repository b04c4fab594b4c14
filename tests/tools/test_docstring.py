"""Docstrings in three styles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.tools.docstring import parse_docstring

GOOGLE = """Book a flight.

    Costs money.

    Args:
        city (str): Where to,
            as an IATA code.
        days: How long: in days.

    Returns:
        The booking's number.
    """

NUMPY = """Book a flight.

    Costs money.

    Parameters
    ----------
    city : str
        Where to,
        as an IATA code.
    days : int, optional
        How long: in days.

    Returns
    -------
    int
        The booking's number.
    """

SPHINX = """Book a flight.

    Costs money.

    :param str city: Where to,
        as an IATA code.
    :param days: How long: in days.
    :type days: int
    :returns: The booking's number.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_gives_the_same_parts(text: str) -> None:
    """The text before the sections describes the tool; each argument gets its own words, on one line."""
    parsed = parse_docstring(text)
    assert parsed.description == "Book a flight.\n\nCosts money."
    assert parsed.arguments == {"city": "Where to, as an IATA code.", "days": "How long: in days."}


def test_numpy_names_may_share_a_description() -> None:
    """``a, b : int`` describes both."""
    parsed = parse_docstring("Add.\n\nParameters\n----------\na, b : int\n    A number.\n")
    assert parsed.arguments == {"a": "A number.", "b": "A number."}


def test_plain_prose_is_all_description() -> None:
    """Text without sections is kept whole."""
    assert parse_docstring("Say hello.\n\nNote: politely.").description == "Say hello.\n\nNote: politely."


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_no_docstring_gives_empty_parts(text: str | None) -> None:
    """A function may have no docstring."""
    assert parse_docstring(text).description == ""


@given(
    st.text(alphabet="ab: \n-()*", max_size=80)
    | st.sampled_from([GOOGLE, NUMPY, SPHINX]).flatmap(st.permutations).map("".join)
)
def test_any_text_is_taken(text: str) -> None:
    """No docstring raises."""
    parse_docstring(text)


@given(
    st.lists(
        st.sampled_from(["Args:", "Parameters", "----", ":param x: y", ":param : y", "  a: b", "c", "", "Returns:"])
    )
)
def test_any_order_of_headings_is_taken(lines: list[str]) -> None:
    """Headings may stand anywhere, even with nothing under them."""
    parse_docstring("\n".join(lines))

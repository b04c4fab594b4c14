"""Functions as tools: what is read from them, what is accepted, what is refused and how it is said."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.errors import ToolArgumentsError, ToolDefinitionError
from heaveto.events.records import Cause, SessionKey
from heaveto.tools.base import CallHost, Tool, ToolContext
from heaveto.tools.function import FunctionTool, as_tool

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


class QuietHost:
    """A run that nobody stops and that records nothing."""

    cancelled: Cause | None = None

    def on_cancel(self, hook: Callable[[], None]) -> None: ...
    async def progress(self, value: Any) -> None: ...
    def progress_from_thread(self, value: Any) -> None: ...
    async def cancel_run(self, by: str, reason: str) -> None: ...


def context(host: CallHost | None = None) -> ToolContext:
    return ToolContext(
        host=host or QuietHost(),
        call_id="c1",
        idempotency_key="k1",
        attempt=1,
        state={},
        agent="a",
        branch="",
        run_id="r",
        session=SessionKey("app", "u", "s"),
    )


class Seat(enum.Enum):
    AISLE = "aisle"
    WINDOW = "window"


@dataclass
class Passenger:
    name: str
    age: int = 30


class Address(pydantic.BaseModel):
    title: str
    street: str


class Node(pydantic.BaseModel):
    children: list[Node] = []


async def book(
    city: str,
    days: int,
    tool_context: ToolContext,
    price: float = 1.5,
    seat: Seat = Seat.AISLE,
    mode: Literal["fast", "cheap"] = "fast",
    note: str | None = None,
) -> str:
    """Book a flight.

    Args:
        city: Where to.
        days: How long.
    """
    return f"{city} {days} {price} {seat} {mode} {note} {tool_context.call_id}"


def schema_of(func: Callable[..., Any]) -> dict[str, Any]:
    return FunctionTool(func).declaration().parameters


def test_the_declaration_comes_from_signature_and_docstring() -> None:
    """Names, types, defaults and words are told to the model; the context and pydantic's titles are not."""
    declaration = FunctionTool(book).declaration()
    assert (declaration.name, declaration.description) == ("book", "Book a flight.")
    assert declaration.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to."},
            "days": {"type": "integer", "description": "How long."},
            "price": {"type": "number", "default": 1.5},
            "seat": {"$ref": "#/$defs/Seat", "default": "aisle"},
            "mode": {"type": "string", "enum": ["fast", "cheap"], "default": "fast"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"Seat": {"type": "string", "enum": ["aisle", "window"]}},
    }


async def test_a_bound_call_gets_defaults_types_and_context() -> None:
    """What the model leaves out has the function's default; what it gives has the function's type."""
    tool = FunctionTool(book)
    args = tool.bind({"city": "Oslo", "days": 2, "price": 3, "seat": "window"})
    assert args == {"city": "Oslo", "days": 2, "price": 3.0, "seat": Seat.WINDOW}
    assert await tool.run(args, context()) == "Oslo 2 3.0 Seat.WINDOW fast None c1"


def test_the_declaration_is_computed_once() -> None:
    """Asking again gives the same object."""
    tool = FunctionTool(book)
    assert tool.declaration() is tool.declaration()


# --- kinds of callables -------------------------------------------------------------------------------------------


class Desk:
    def greet(self, name: str) -> str:
        """Greet."""
        return f"hello {name}"

    async def call(self, name: str) -> str:
        return f"calling {name}"

    def __call__(self, name: str) -> str:
        """Serve."""
        return f"served {name}"


class AsyncDesk:
    async def __call__(self, name: str) -> str:
        """Serve soon."""
        return f"served {name}"


def traced(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


async def send(name: str, text: str) -> str:
    """Send."""
    return f"{name}: {text}"


@pytest.mark.parametrize(
    ("func", "name", "description", "result"),
    [
        (Desk().greet, "greet", "Greet.", "hello Ann"),
        (Desk(), "Desk", "Serve.", "served Ann"),
        (AsyncDesk(), "AsyncDesk", "Serve soon.", "served Ann"),
        (functools.partial(AsyncDesk()), "AsyncDesk", "Serve soon.", "served Ann"),
        (Desk().call, "call", "", "calling Ann"),
        (functools.partial(send, text="hi"), "send", "Send.", "Ann: hi"),
        (functools.partial(functools.partial(send), text="hi"), "send", "Send.", "Ann: hi"),
        (traced(Desk().greet), "greet", "Greet.", "hello Ann"),
        (functools.lru_cache(Desk.greet.__get__(Desk())), "greet", "Greet.", "hello Ann"),
    ],
)
async def test_every_kind_of_callable_can_be_a_tool(
    func: Callable[..., Any], name: str, description: str, result: str
) -> None:
    """Methods, partials, callable objects and decorated functions work like functions."""
    tool = FunctionTool(func)
    assert (tool.name, tool.description) == (name, description)
    assert tool.declaration().parameters["properties"] == {"name": {"type": "string"}}
    args = tool.bind({"name": "Ann"})
    value = tool.run_blocking(args, context()) if tool.blocking else await tool.run(args, context())
    assert value == result


@pytest.mark.parametrize(
    ("func", "blocking"),
    [(Desk().greet, True), (Desk(), True), (AsyncDesk(), False), (Desk().call, False), (book, False)],
)
def test_only_async_callables_run_on_the_event_loop(func: Callable[..., Any], blocking: bool) -> None:
    """What is not async runs in a thread."""
    assert FunctionTool(func).blocking is blocking


def test_a_hidden_coroutine_is_told_and_closed() -> None:
    """A sync wrapper around an async function is an error that says so, not a lost coroutine."""
    with pytest.raises(ToolDefinitionError, match="make it async"):
        FunctionTool(traced(send)).run_blocking({"name": "a", "text": "b"}, context())


def test_options_are_kept() -> None:
    """Name, description and policies can be given."""
    tool = FunctionTool(send, name="post", description="Post.", replay="safe", on_cancel="finish")
    assert (tool.name, tool.description, tool.replay, tool.on_cancel) == ("post", "Post.", "safe", "finish")


def test_as_tool_keeps_tools_and_wraps_callables() -> None:
    """A list of tools may mix both."""
    tool = FunctionTool(send)
    assert as_tool(tool) is tool
    assert isinstance(as_tool(send), Tool)
    with pytest.raises(ToolDefinitionError, match="neither"):
        as_tool("send")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- the context --------------------------------------------------------------------------------------------------


def by_annotation(x: int, anything: ToolContext) -> str:
    return anything.call_id


def by_name(x: int, ctx) -> str:  # type: ignore[no-untyped-def]
    return ctx.call_id  # type: ignore[no-any-return]


def by_optional(x: int, c: ToolContext | None = None) -> str:
    return c.call_id if c else ""


def by_old_optional(x: int, c: Optional[ToolContext] = None) -> str:  # noqa: UP045
    return c.call_id if c else ""


def by_quoted(x: int, c: "ToolContext") -> str:  # noqa: UP037
    return c.call_id


@pytest.mark.parametrize("func", [by_annotation, by_name, by_optional, by_old_optional, by_quoted])
def test_the_context_is_found_and_hidden(func: Callable[..., Any]) -> None:
    """By annotation or by name; the model does not see it and cannot set it."""
    tool = FunctionTool(func)
    assert list(tool.declaration().parameters["properties"]) == ["x"]
    assert tool.run_blocking(tool.bind({"x": 1}), context()) == "c1"
    with pytest.raises(ToolArgumentsError):
        tool.bind({"x": 1, "ctx": "mine", "c": 1, "anything": 1})


def test_evaluated_optional_annotations_are_found_too() -> None:
    """Modules without the annotations future give objects, not text."""

    def tool(x: int, c: Any = None) -> str:
        return c.call_id  # type: ignore[no-any-return]

    for annotation in (ToolContext, ToolContext | None, Optional["ToolContext"]):
        tool.__annotations__["c"] = annotation
        assert list(schema_of(tool)["properties"]) == ["x"]


# --- what cannot be a tool ----------------------------------------------------------------------------------------


def star(*args: int) -> None: ...
def stars(**options: int) -> None: ...
def positional(x: int, /) -> None: ...
def two_contexts(a: ToolContext, ctx: ToolContext) -> None: ...
def taken(ctx: str) -> None: ...
def unresolved(x: int, y: Missing) -> None: ...
def unsupported(x: int, y: threading_lock) -> None: ...
def callback(x: int, y: Callable[[], None]) -> None: ...
def field_default(x: int = pydantic.Field(3)) -> None: ...
def umlaut(größe: int) -> None: ...


class threading_lock:
    """A class that JSON knows nothing of."""


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (star, r"\*args"),
        (stars, r"\*\*options"),
        (positional, "'x' is positional-only"),
        (two_contexts, "'a' and 'ctx'"),
        (taken, "'ctx' is reserved"),
        (unresolved, "'y'.*Missing"),
        (unsupported, "'y'.*threading_lock"),
        (callback, "'y'"),
        (field_default, "'x'.*Field"),
        (umlaut, "größe"),
        (threading_lock, "class"),
        (lambda x: x, "name="),
    ],
)
def test_a_definition_error_names_what_to_change(func: Callable[..., Any], words: str) -> None:
    """A function that cannot be a tool is refused when the program starts."""
    with pytest.raises(ToolDefinitionError, match=words):
        FunctionTool(func)


@pytest.mark.parametrize("option", ["replay", "on_cancel", "isolation"])
def test_an_option_that_there_is_not_is_refused(option: str) -> None:
    """A slip of the pen is told where it was made, and what there is."""
    options: dict[str, Any] = {option: "saef"}
    with pytest.raises(ToolDefinitionError, match=rf"{option} must be one of .*; not 'saef'"):
        FunctionTool(send, **options)


@given(st.text(max_size=70))
def test_names_are_those_that_all_providers_take(name: str) -> None:
    """1 to 64 characters of A-Z a-z 0-9 _ - and nothing else."""
    fits = 0 < len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    if fits:
        assert FunctionTool(send, name=name).name == name
    else:
        with pytest.raises(ToolDefinitionError):
            FunctionTool(send, name=name)


# --- arguments ----------------------------------------------------------------------------------------------------


def rich(  # type: ignore[no-untyped-def]
    passenger: Passenger | None = None,
    address: Address | None = None,
    tags: list[str] | None = None,
    counts: dict[str, int] = {},  # noqa: B006
    pair: tuple[int, str] = (1, "a"),
    when: datetime.date | None = None,
    cost: decimal.Decimal | None = None,
    ratio: Annotated[float, pydantic.Field(ge=0, le=1, description="A part.")] = 0.5,
    title: str = "x",
    tree: Node | None = None,
    size: int = None,  # type: ignore[assignment]  # noqa: RUF013
    anything=None,
) -> None: ...


@pytest.mark.parametrize(
    ("given_args", "bound"),
    [
        ({"passenger": {"name": "Ann"}}, {"passenger": Passenger("Ann")}),
        ({"address": {"title": "Dr", "street": "S"}}, {"address": Address(title="Dr", street="S")}),
        ({"tags": ["a"], "counts": {"a": 1}}, {"tags": ["a"], "counts": {"a": 1}}),
        ({"pair": [2, "b"]}, {"pair": (2, "b")}),
        ({"when": "2026-01-02"}, {"when": datetime.date(2026, 1, 2)}),
        ({"cost": "1.10"}, {"cost": decimal.Decimal("1.10")}),
        ({"ratio": 1}, {"ratio": 1.0}),
        ({"tree": {"children": [{"children": []}]}}, {"tree": Node(children=[Node()])}),
        ({"size": None, "title": "t"}, {"size": None, "title": "t"}),
        ({"anything": [1, {"a": None}]}, {"anything": [1, {"a": None}]}),
        ({}, {}),
    ],
)
def test_arguments_become_the_functions_types(given_args: dict[str, Any], bound: dict[str, Any]) -> None:
    """What JSON cannot say is read from what stands for it; what was not given is left to the function."""
    assert FunctionTool(rich).bind(given_args) == bound


def test_the_rich_schema_keeps_references_and_properties_called_title() -> None:
    """Dropping titles leaves properties of that name, definitions and constraints alone."""
    schema = schema_of(rich)
    assert schema["properties"]["title"] == {"type": "string", "default": "x"}
    assert set(schema["$defs"]) == {"Passenger", "Address", "Node"}
    assert set(schema["$defs"]["Address"]["properties"]) == {"title", "street"}
    assert schema["properties"]["ratio"] == {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "A part.",
        "default": 0.5,
    }
    assert schema["properties"]["pair"]["default"] == [1, "a"]
    assert schema["properties"]["anything"] == {}
    assert "required" not in schema


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"days": 1}, "city is missing"),
        ({"city": "a", "days": "1"}, 'days: should be a valid integer, but got "1"'),
        ({"city": "a", "days": True}, "days: should be a valid integer, but got true"),
        ({"city": "a", "days": 1.5}, "days: should be a valid integer, but got 1.5"),
        ({"city": 1, "days": 1}, "city: should be a valid string, but got 1"),
        ({"city": "a", "days": 1, "day": 2}, "day is not known; the arguments are city, days, price, seat, mode, note"),
        ({"city": "a", "days": 1, "seat": "roof"}, "seat: should be 'aisle' or 'window', but got \"roof\""),
        ({"city": "a", "days": 1, "mode": None}, "mode: should be 'fast' or 'cheap', but got null"),
        ({"city": "a", "days": 1, "price": "2"}, 'price: should be a valid number, but got "2"'),
    ],
)
def test_a_wrong_argument_is_told_to_the_model(args: dict[str, Any], message: str) -> None:
    """The message names the argument, what is expected and what was given."""
    with pytest.raises(ToolArgumentsError) as caught:
        FunctionTool(book).bind(args)
    assert str(caught.value) == f"invalid arguments: {message}"


def test_a_default_inside_an_annotation_is_filled_in() -> None:
    """``Annotated[int, Field(default=3)]`` without a default of the function's own is honoured too."""

    def tool(x: Annotated[int, pydantic.Field(default=3)]) -> int:
        return x

    assert FunctionTool(tool).bind({}) == {"x": 3}
    assert schema_of(tool)["properties"] == {"x": {"type": "integer", "default": 3}}


def test_nested_places_are_named() -> None:
    """A wrong value deep inside is told with its path; strictness holds there too."""
    with pytest.raises(ToolArgumentsError, match=r'passenger\.age: should be a valid integer, but got "3"'):
        FunctionTool(rich).bind({"passenger": {"name": "Ann", "age": "3"}})
    with pytest.raises(ToolArgumentsError, match=r"tags\[1\]: should be a valid string, but got 2"):
        FunctionTool(rich).bind({"tags": ["a", 2]})


def test_long_messages_are_cut() -> None:
    """A huge wrong value, or very many of them, does not flood the model."""
    with pytest.raises(ToolArgumentsError) as caught:
        FunctionTool(rich).bind({"tags": [["x" * 10_000]] * 100})
    assert len(str(caught.value)) < 3_000
    assert "and 92 more" in str(caught.value)


@pytest.mark.parametrize("value", ["\ud800", [object()]])
def test_what_is_not_json_is_refused(value: Any) -> None:
    """Lone surrogates and objects cannot come from JSON and are an argument error."""
    with pytest.raises(ToolArgumentsError, match="not valid JSON"):
        FunctionTool(rich).bind({"anything": value})


@dataclass
class Sample:
    """Parameters of many types; the properties below draw values for them."""

    number: int = 0
    names: list[str] = field(default_factory=list[str])


def sampled(
    count: int, share: float, label: str, flag: bool, many: list[int], table: dict[str, float], sample: Sample
) -> None: ...


SAMPLED = FunctionTool(sampled)
numbers = st.integers(-(2**70), 2**70)
reals = st.floats(allow_nan=False, allow_infinity=False)
fitting = st.fixed_dictionaries(
    {
        "count": numbers,
        "share": reals | st.integers(-(2**50), 2**50),
        "label": st.text(),
        "flag": st.booleans(),
        "many": st.lists(numbers, max_size=3),
        "table": st.dictionaries(st.text(), reals, max_size=3),
        "sample": st.fixed_dictionaries({"number": numbers, "names": st.lists(st.text(), max_size=3)}),
    }
)


@given(fitting)
def test_fitting_arguments_pass_unchanged(args: dict[str, Any]) -> None:
    """What fits the schema reaches the function as it was given."""
    bound = SAMPLED.bind(args)
    assert bound["sample"] == Sample(**args["sample"])
    assert {**bound, "sample": 0} == {**args, "sample": 0}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | reals | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*SAMPLED.declaration().parameters["properties"], "other"]), json_values))
def test_bind_accepts_or_refuses_and_nothing_else(args: dict[str, Any]) -> None:
    """Whatever a model sends, the answer is bound arguments or a `ToolArgumentsError`; the arguments stay untouched."""
    before = repr(args)
    with contextlib.suppress(ToolArgumentsError):
        bound = SAMPLED.bind(args)
        assert bound.keys() == args.keys() == {*SAMPLED.declaration().parameters["required"]}
        assert type(bound["count"]) is int
    assert repr(args) == before


def test_pydantic_is_imported_with_the_first_tool_only() -> None:
    """Importing the module stays cheap."""
    code = "import sys, heaveto.tools.function; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

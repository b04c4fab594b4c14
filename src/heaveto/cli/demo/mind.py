"""The mind behind the emulated provider: a few rules that read the request, as a model would. Pure.

It knows nothing of the runtime. What it says about stopped calls, it says because the request told it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from heaveto.cli.demo.told import Result, last_results, late_notes, notes, user_text
from heaveto.testing.script import Answer, Piece, call, delay, say

Body = dict[str, Any]

POLICY = (
    "Our refund policy, step by step. First, you have thirty days from the day the parcel arrived. Second, we pay the "
    "full price back, with postage, if the thing was broken. Third, we pay the price without postage if you merely "
    "changed your mind. Fourth, gifts are refunded to whoever paid for them."
)
STORY = (
    "Our shop began in a boat shed in 1987, with eleven compasses and one lantern. In the first winter the roof came "
    "down, and the lantern was all that was left. We sold it the next day, bought a roof, and have kept a lantern in "
    "the window ever since. Today we ship to forty countries, and every parcel still holds a card with that lantern "
    "on it. People write to us about the card more than about anything else we sell, which tells you something."
)
STORY_PACE_SECONDS = 0.03
"""It lasts for seconds at any pace of the rest: it is to be killed in its middle."""

RETURNS = (
    "Put the thing back into its box, print the label from your account, stick it over the old one, and hand the "
    "parcel to any carrier's shop. Keep the receipt."
)


def mind(pace_seconds: float) -> Callable[[Body], Answer]:
    """Return the function that answers requests; streamed words come at this pace."""

    def answer(body: Body) -> Answer:
        returned = last_results(body)
        if returned:
            return _spoken(_about_results(returned), pace_seconds)
        return _to_user(body, pace_seconds)

    return answer


def _to_user(body: Body, pace: float) -> Answer:
    text = user_text(body)
    if not text and any("was cut off" in note for note in notes(body)):
        return _spoken("I was cut off: the lantern stands in our window to this day, and that is the story.", pace)
    if "Tell me about your shop" in text:
        return _spoken(STORY, STORY_PACE_SECONDS)
    for phrase, reply in _REPLIES:
        if phrase in text:
            return _spoken(reply, pace) if isinstance(reply, str) else reply
    news = late_notes(body)
    return _spoken(f"Yes: {' '.join(news)}" if news else "Nothing new.", pace)


_REPLIES: tuple[tuple[str, str | tuple[Piece, ...]], ...] = (
    ("Where is order 7?", (call("lookup_order", order=7),)),
    ("Explain your refund policy", POLICY),
    ("in one sentence", "Thirty days, full price, no questions."),
    ("Refund order 8,", (call("refund_order", order=8), call("print_letter", order=8), call("print_label", order=8))),
    ("happened to order 8", (call("check_refund", order=8),)),
    ("Refund order 9", (call("refund_order", order=9),)),
    ("order 9 go through", (call("check_refund", order=9),)),
    ("Send a voucher over 500", (call("send_voucher", order=10, amount=500),)),
    ("How do I return a parcel", RETURNS),
    ("how long does a refund take", "Three days, once the parcel is here."),
    ("return it by boat", RETURNS),
    ("by mule", "By mule, gladly: our stable is open from nine to five."),
)


def _about_results(results: Iterable[Result]) -> str:
    return " ".join(_about(result) for result in results)


def _about(result: Result) -> str:
    match result.name, result.content:
        case "lookup_order", {"order": order, "status": status, "carrier": carrier}:
            return f"Order {order} is {status}, with {carrier}."
        case "refund_order", {"status": "unknown"}:
            return "I cannot tell whether the refund was paid, and did not repeat it. Ask me to look it up."
        case "check_refund", {"order": order, "payments": 1}:
            return f"I looked it up before doing anything again: order {order} was refunded once. No need to repeat it."
        case "check_refund", {"order": order, "payments": payments}:
            return f"Order {order} was refunded {payments} times."
        case "send_voucher", {"amount": amount, "sent": True}:
            return f"Approved, with a change: the voucher over {amount} is on its way."
        case name, content:
            return f"{name} says {content}."


def _spoken(text: str, pace: float) -> tuple[Piece, ...]:
    words = text.split(" ")
    pieces: list[Piece] = []
    for number, word in enumerate(words):
        pieces += [say(word if number == 0 else f" {word}"), delay(pace)]
    return tuple(pieces)

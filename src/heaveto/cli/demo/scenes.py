"""The scenes of the demo, in order. Each shows something and checks what the runtime promises about it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from heaveto.cli.demo.kill import killed_at_work, killed_while_it_waits
from heaveto.cli.demo.show import Show
from heaveto.cli.demo.told import late_notes, notes, results, said_before
from heaveto.cli.describe import compact_json, report_in_words
from heaveto.errors import AnswerConflictError
from heaveto.events.contents import text_of
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    Delta,
    Message,
    Queued,
    Record,
    RunEnded,
    RunStarted,
    StopReport,
)
from heaveto.runner.application.config import RunConfig
from heaveto.runner.handle import StreamItem
from heaveto.runner.session.desk import Question

T = TypeVar("T")
USER = "al"
_PROMPT_SECONDS = 1.0
"""What counts as prompt, on a machine that may be busy with other things."""


async def plain_turn(show: Show) -> None:
    """A turn with a tool."""
    first = len(show.emulator.exchanges)
    run = await show.say(USER, "order-7", "Where is order 7?")
    seen = await show.follow(run)
    records = await show.log(USER, "order-7")
    started, settled = position(records, CallStarted), position(records, CallSettled)
    show.check("P5", "the call was recorded as started before it did anything", 0 <= started < settled)
    show.check("P4", "the answer that was streamed is the answer in the log", seen == last_text(records))
    show.check_accepted(first)


async def stop_in_stream(show: Show) -> None:
    """A stop while the answer is being streamed; then the next message (F51, F134)."""
    run = await show.say(USER, "policy", "Explain your refund policy, please.")
    seen = await show.follow(run, until=words_seen(14))
    exchange, since = show.last_request, time.monotonic()
    report, took = await timed(run.cancel(by=USER))
    closed = await show.closed_after(exchange, since)
    show.stage.line("STOP", report_in_words(report), "warn")
    kept = cut_text(await show.log(USER, "policy"))
    show.check("P3", f"the stop took {took * 1000:.0f} ms", took < _PROMPT_SECONDS)
    words = "never" if closed is None else f"after {closed * 1000:.0f} ms"
    show.check("P3", f"the provider saw the socket close {words}", closed is not None and closed < _PROMPT_SECONDS)
    show.check("P4", f"all {len(seen)} characters that were seen are kept, marked as cut off", kept.startswith(seen))
    show.check("P7", "a stop is no error: the run ended as cancelled", report.outcome == "cancelled")
    show.stage.gap()

    first = len(show.emulator.exchanges)
    run = await show.say(USER, "policy", "Sorry. Now in one sentence, please.")
    body = (await show.request(first)).body
    show.told(notes(body))
    await show.follow(run)
    show.check_accepted(first)
    show.check("P2", "the model sees its half answer, and that it was cut off", is_told_of_cut(body, kept))


async def stop_in_tools(show: Show) -> None:
    """A stop while one tool can be stopped, one cannot, and one has not begun."""
    config = RunConfig(cancel_grace_seconds=0.3)
    text = "Refund order 8, and send the customer a letter and a label."
    run = await show.say(USER, "order-8", text, config)
    await show.follow(run, until=calls_started(2))
    await show.wait_for(lambda: show.service.payments(8), "the payment of order 8")
    show.stage.line("", "the money has moved, the bank's confirmation is pending, the printer is printing", "quiet")
    report, took = await timed(run.cancel(by=USER))
    for operation in report.operations:
        show.stage.line("STOP", f"{operation.name}: {operation.state.replace('_', ' ')}", "warn")
    await show.log(USER, "order-8")
    expected = {"refund_order": "stopped", "print_letter": "still_running", "print_label": "not_started"}
    show.check("P3", "the report says of each call what became of it", states(report) == expected)
    words = f"the stop took {took:.2f} s, with a grace of {config.cancel_grace_seconds} s for what cannot be stopped"
    show.check("P3", words, took < config.cancel_grace_seconds + _PROMPT_SECONDS)


async def next_message(show: Show) -> None:
    """The message after that stop."""
    first = len(show.emulator.exchanges)
    run = await show.say(USER, "order-8", "What happened to order 8?")
    body = (await show.request(first)).body
    told = {result.name: result for result in results(body)}
    show.told([f"{name}: {result.explanation}" for name, result in told.items()])
    show.told(notes(body))
    await show.follow(run)
    await show.log(USER, "order-8")
    statuses = {name: result.status for name, result in told.items()}
    expected = {"refund_order": "cancelled", "print_letter": "unknown", "print_label": "not_started"}
    show.check_accepted(first)
    show.check("P2", "stopped, unknown, not started: each call is told as what it is", statuses == expected)
    payments = show.service.payments(8)
    show.check("P5", f"payments for order 8 in the refund service's own books: {payments}", payments == 1)


async def kill_9(show: Show) -> None:
    """A process killed in the middle of a tool and of a stream; this one goes on with both runs."""
    wreck = await killed_at_work(show)
    show.stage.line("KILL", "kill -9, with a refund half done and an answer half said", "bad")
    before_tool = await show.log("bo", "killed-tool", "the log of the refund, as the dead process left it")
    before_text = await show.log("cy", "killed-text", "the log of the answer, as the dead process left it")
    unfinished = not any(isinstance(record, RunEnded) for record in (*before_tool, *before_text))
    first = len(show.emulator.exchanges)
    _, took = await timed(show.runner.recover())
    show.stage.line("RECOVER", f"another process goes on with both runs and ends them, in {took * 1000:.0f} ms", "warn")
    bodies = [exchange.body for exchange in show.emulator.exchanges[first:]]
    after_tool = await show.log("bo", "killed-tool", "what recovery added: the refund")
    after_text = await show.log("cy", "killed-text", "what recovery added: the answer")
    kept = cut_text(after_text)
    words = f"of {len(wreck.seen)} characters seen, {len(kept)} survived; what is older than half a second is safe"
    show.check("P4", words, bool(wreck.safe) and kept.startswith(wreck.safe))
    endings = [sum(isinstance(record, RunEnded) for record in records) for records in (after_tool, after_text)]
    show.check("P7", "both runs were left open, and each has its one ending now", unfinished and endings == [1, 1])
    show.stage.gap()
    _told_in_recovery(show, bodies, kept)
    show.check_accepted(first)
    show.stage.gap()
    await _ask_after_refund(show)


def _told_in_recovery(show: Show, bodies: list[dict[str, Any]], kept: str) -> None:
    of_refund = [result for body in bodies for result in results(body)]
    show.told([f"{result.name}: {result.explanation}" for result in of_refund])
    show.told([note for body in bodies if not results(body) for note in notes(body)])
    unknown = [result.status for result in of_refund] == ["unknown"]
    show.check("P2", "the model is told that the outcome of the refund is unknown", unknown)
    cut = any(is_told_of_cut(body, kept) for body in bodies)
    show.check("P2", "the model sees its half answer, and that it was cut off", cut)


async def _ask_after_refund(show: Show) -> None:
    first = len(show.emulator.exchanges)
    run = await show.say("bo", "killed-tool", "Did the refund of order 9 go through?")
    await show.follow(run)
    show.check_accepted(first)
    payments = show.service.payments(9)
    show.check("P5", f"payments for order 9 in the refund service's own books: {payments}", payments == 1)


async def double_text(show: Show) -> None:
    """Two messages at once: queued; then one that interrupts."""
    first = len(show.emulator.exchanges)
    earlier = await show.say(USER, "double", "How do I return a parcel?")
    async with earlier.stream() as items:
        await show.read(items, until=words_seen(5))
        later = await show.say(USER, "double", "And how long does a refund take?")
        show.stage.line("", "the session is busy: the second message is durable, and waits for its turn", "quiet")
        await show.read(items)
    await show.follow(later)
    records = await show.log(USER, "double")
    order = [record.run_id for record in records if isinstance(record, RunStarted | RunEnded)]
    in_order = order == [earlier.run_id, earlier.run_id, later.run_id, later.run_id]
    queued, ended = position(records, Queued), position(records, RunEnded)
    show.check("P4", "the second message was durable while the first was being answered", 0 <= queued < ended)
    show.check("P6", "both were answered, one after the other, in the order in which they came", in_order)
    show.stage.gap()

    interrupted = await show.say(USER, "double", "Can I return it by boat?")
    seen = await show.follow(interrupted, until=words_seen(6))
    hurried = await show.say(USER, "double", "No: by mule.", RunConfig(busy_policy="interrupt"))
    show.told(notes((await show.request(first + 3)).body))
    await show.follow(hurried)
    records = await show.log(USER, "double")
    ending = await interrupted.wait()
    superseded = (ending.outcome, ending.cause) == ("cancelled", "superseded")
    show.check("P3", "the newer message stopped the older run, which ended as superseded", superseded)
    show.check("P4", "what the older run had said is kept", cut_text(records).startswith(seen))
    show.check_accepted(first)


async def late_result(show: Show) -> None:
    """The printer of scene 3 finishes its page at last."""
    show.printer.page_done.set()
    await show.record(USER, "order-8", lambda record: isinstance(record, CallSettled) and record.late)
    show.stage.line("printer", "finishes the page, long after its run was stopped", "quiet")
    first = len(show.emulator.exchanges)
    run = await show.say(USER, "order-8", "Is there anything new?")
    body = (await show.request(first)).body
    show.told(late_notes(body))
    await show.follow(run)
    records = await show.log(USER, "order-8")
    told_before = [result.status for result in results(body) if result.name == "print_letter"]
    again = [record for record in records if isinstance(record, CallStarted) and record.run_id == run.run_id]
    show.check("P4", "the late result is in the log, and the model is told it once", len(late_notes(body)) == 1)
    show.check("P2", "what the model was told before is not rewritten", told_before == ["unknown"])
    show.check("P5", "nothing was started because of it", not again)
    show.check_accepted(first)


async def question(show: Show) -> None:
    """A question to a person: its process is killed, it is answered in this one, twice and then otherwise."""
    first = len(show.emulator.exchanges)
    status = await killed_while_it_waits(show)
    show.stage.line("KILL", f"the run is {status}, and its process is killed; a day goes by", "bad")
    questions = await show.runner.questions(user_id="di", session_id="voucher")
    for asked in questions:
        show.stage.line("asks", f"may {asked.tool} run with {compact_json(asked.args)}?", "warn")
    show.check("P8", "the question is there for any process", [asked.tool for asked in questions] == ["send_voucher"])
    show.check("P5", "nothing was done before the yes", show.service.payments(10) == 0)
    await _answer(show, questions[0], first)


async def _answer(show: Show, asked: Question, first: int) -> None:
    show.stage.line("Ann", "yes, but with an amount of 50")
    run = await show.runner.attach(asked.run_id)
    args = {**asked.args, "amount": 50}
    counts = await show.runner.answer(asked.run_id, asked.question_id, args=args, by="ann")
    await show.follow(run)
    again = await show.runner.answer(asked.run_id, asked.question_id, args=args, by="ann")
    refused = await _is_refused(show, asked)
    records = await show.log("di", "voucher")
    show.check("P8", "Ann's yes counts, also when it comes twice; Bob's no comes too late", again == counts and refused)
    told = [result.content.get("executed_with_arguments") for result in results(show.last_request.body)]
    show.check("P2", "the model is told with which arguments it was executed", told == [args])
    one_start = sum(isinstance(record, CallStarted) for record in records) == 1
    payments = show.service.payments(10)
    show.check("P5", f"vouchers in the service's own books: {payments}", payments == 1 and one_start)
    show.check_accepted(first)


async def _is_refused(show: Show, asked: Question) -> bool:
    show.stage.line("Bob", "no")
    try:
        await show.runner.answer(asked.run_id, asked.question_id, accept=False, by="bob")
    except AnswerConflictError as error:
        show.stage.line("refused", str(error), "quiet")
        return True
    return False


async def accounts(show: Show) -> None:
    """Check what holds over all sessions of the demo."""
    endings: Counter[str] = Counter()
    started: set[str] = set()
    for name in show.sessions:
        user, _, session = name.partition("/")
        for record in await show.runner.records(user_id=user, session_id=session):
            started |= {record.run_id} if isinstance(record, RunStarted) else set()
            endings[record.run_id] += isinstance(record, RunEnded)
    one_each = all(endings[run_id] == 1 for run_id in started)
    show.check("P7", f"{len(started)} runs, {endings.total()} endings, one for each", one_each)
    show.check("P7", "nothing is left unfinished in the store", await show.is_settled())
    show.check_accepted(0)


Scene = Callable[[Show], Awaitable[None]]

SCENES: tuple[tuple[str, str, Scene], ...] = (
    ("A turn with a tool", "The agent looks an order up. Every step is durable before anyone sees it.", plain_turn),
    (
        "Stop, in mid-stream",
        "The user presses Stop while the answer is being streamed over HTTP, and then goes on talking.",
        stop_in_stream,
    ),
    (
        "Stop, in mid-tool",
        "A refund waits for the bank, a blocking driver prints a letter, a label waits for the printer. Then: Stop.",
        stop_in_tools,
    ),
    (
        "The next message",
        "Elsewhere this is HTTP 400: a call has no result. Here the model learns what is known of each call.",
        next_message,
    ),
    (
        "kill -9",
        "Another process carries two runs, a refund and a long answer, and is killed in the middle of both.",
        kill_9,
    ),
    (
        "A double text",
        "A second message comes while the first is being answered; then one that interrupts.",
        double_text,
    ),
    ("The late result", "The letter of scene 3 could not be stopped. Now it is printed.", late_result),
    (
        "A yes from a person",
        "A voucher needs somebody's yes. The run waits in the store; no process has to.",
        question,
    ),
    ("The accounts", "What must hold over everything that happened above.", accounts),
)


# --- reading what came out ----------------------------------------------------------------------------------------


async def timed(work: Awaitable[T]) -> tuple[T, float]:
    """Return what was awaited, and how many seconds it took."""
    begun = time.perf_counter()
    result = await work
    return result, time.perf_counter() - begun


def words_seen(count: int) -> Callable[[StreamItem], bool]:
    """Return a predicate that holds once so many pieces of text were streamed."""
    left = [count]

    def is_enough(item: StreamItem) -> bool:
        left[0] -= isinstance(item, Delta) and item.kind == "text"
        return left[0] <= 0

    return is_enough


def calls_started(count: int) -> Callable[[StreamItem], bool]:
    """Return a predicate that holds once so many calls were started."""
    left = [count]

    def is_enough(item: StreamItem) -> bool:
        left[0] -= isinstance(item, CallStarted)
        return left[0] <= 0

    return is_enough


def position(records: list[Record], kind: type[Record]) -> int:
    """Return where the first record of a kind stands, or -1."""
    return next((place for place, record in enumerate(records) if isinstance(record, kind)), -1)


def last_text(records: list[Record]) -> str:
    """Return the text of the last message."""
    return next((text_of(record.parts) for record in reversed(records) if isinstance(record, Message)), "")


def cut_text(records: list[Record]) -> str:
    """Return the text of the last message that was cut off."""
    cut = (record for record in reversed(records) if isinstance(record, Message) and record.interrupted)
    return next((text_of(record.parts) for record in cut), "")


def states(report: StopReport) -> dict[str, str]:
    """Return what a stop report says of each tool."""
    return {work.name: work.state for work in report.operations if work.kind == "tool"}


def is_told_of_cut(body: dict[str, Any], kept: str) -> bool:
    """Whether a request holds the half answer, and a note that it was cut off."""
    return bool(kept) and kept in said_before(body) and any("was cut off" in note for note in notes(body))

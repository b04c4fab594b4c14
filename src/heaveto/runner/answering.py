"""Answers to waiting calls, as callers give them: checked against the tree of agents before they count."""

from __future__ import annotations

from collections.abc import Mapping

from heaveto.agents.llm import LlmAgent
from heaveto.core.answers import Decision, Given, addressed, given_by_response, last_question
from heaveto.core.fold import RunState
from heaveto.errors import (
    AgentTreeChangedError,
    AnswerInvalidError,
    InputError,
    MixedAnswerError,
    ToolArgumentsError,
    UnknownCallError,
)
from heaveto.events.contents import Content, FunctionResponse, Json
from heaveto.events.records import Answered, WaitingCall
from heaveto.runner.application.app import App
from heaveto.runner.checks import as_recorded
from heaveto.runner.lane.lane import Lane


def require_tree(app: App, run: RunState) -> None:
    """Refuse to touch a run whose agents or tools are gone, so that they can be brought back.

    Raises:
        AgentTreeChangedError
    """
    missing = app.missing(run) if app.on_tree_change == "fail" else ()
    if missing:
        raise AgentTreeChangedError(run.run_id, missing)


def decision_of(*, accept: bool, args: Mapping[str, Json] | None, as_result: bool) -> Decision | None:
    """Return what an answer decides by how it was given; None where the question decides.

    Raises:
        InputError: it was given in two ways.
    """
    if (not accept) + (args is not None) + as_result > 1:
        raise InputError("answer: accept=False, args= and as_result=True are three different answers; pass one")
    return "result" if as_result else "deny" if not accept else "approve" if args is not None else None


async def answer_call(
    app: App, lane: Lane, run_id: str, call_id: str, value: Json, decision: Decision | None,
    args: Mapping[str, Json] | None, by: str,
) -> Answered:  # fmt: skip
    """Answer a call of a run; errors as in `Runner.answer`."""
    call_id, question_seq = addressed(call_id)
    state = lane.log.state
    call = state.calls.get(call_id)
    if call is not None and call.run_id != run_id:
        raise UnknownCallError(run_id, call_id, ())
    asked = last_question(state, call_id)
    _check_edited(app, asked, args)
    if call is not None and call.is_waiting:
        require_tree(app, state.run(run_id))
    if decision is None:
        decision = "approve" if asked is not None and asked.kind in ("confirmation", "operator") else "value"
    if decision == "approve" and (isinstance(value, bool) or (isinstance(value, Mapping) and "confirmed" in value)):
        raise AnswerInvalidError(call_id, "value: say yes or no with accept=; a value goes to the tool, with a yes")
    edited = dict(args) if args is not None else None
    given = Given(call_id, decision, as_recorded("answer", value), edited, by, question_seq=question_seq)
    return (await lane.calls.answer([given]))[0]


async def answer_by_message(app: App, lane: Lane, content: Content, run_id: str | None) -> str:
    """Take a message of function responses as answers; return the id of their run. Errors as in `Runner.start`."""
    responses = [part for part in content.parts if isinstance(part, FunctionResponse)]
    if len(responses) < len(content.parts):
        raise MixedAnswerError("the message holds answers and something else; send the answers alone")
    if not all(response.call_id for response in responses):
        raise MixedAnswerError("an answer has no call id; set the id of the function call that it answers")
    state = lane.log.state
    given = [given_by_response(state, response, by=lane.key.user) for response in responses]
    runs = {state.calls[one.call_id].run_id for one in given if one.call_id in state.calls}
    if len(runs) > 1:
        raise MixedAnswerError(f"the answers are for several runs: {', '.join(sorted(runs))}; send them apart")
    if run_id is not None and runs and run_id not in runs:
        raise MixedAnswerError(f"the answers are for run {', '.join(runs)}, not for run {run_id}")
    for answer in given:
        _check_edited(app, last_question(state, answer.call_id), answer.args)
    for one in runs:
        require_tree(app, state.run(one))
    standing = await lane.calls.answer(given)
    return next(iter(runs), standing[0].run_id)


def _check_edited(app: App, asked: WaitingCall | None, args: Mapping[str, Json] | None) -> None:
    """Edited arguments are validated like the model's, before the answer counts."""
    agent = app.agent_named(asked.path.rpartition("/")[2]) if asked is not None else None
    if asked is None or args is None or not isinstance(agent, LlmAgent) or asked.name not in agent.toolbox:
        return
    try:
        agent.toolbox[asked.name].bind(dict(args))
    except ToolArgumentsError as error:
        raise AnswerInvalidError(asked.call_id, f"args: {error}") from error

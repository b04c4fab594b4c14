"""Repaired histories, judged by code that is not ours: Mistral's own validator, and the shapes of the AWS SDK."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from tests.repair.shapes import WRITERS, numbered

from heaveto import repair

_HISTORIES = 250


@pytest.mark.parametrize(("version", "provider"), [("v7", "mistral-11"), ("v11", "mistral-11"), ("v13", "mistral")])
def test_mistrals_own_validator_takes_what_was_repaired(version: str, provider: str) -> None:
    """By count in the older versions, by id in the newer ones."""
    validator: Any = get_validator(TokenizerVersion(version), mode=ValidationMode.serving)
    for seed in range(_HISTORIES):
        messages, _ = repair(WRITERS[provider](numbered(seed)), provider)
        if messages:
            request: Any = ChatCompletionRequest.model_validate({"model": "m", "messages": messages})
            validator.validate_request(request)


def test_the_aws_sdk_takes_what_was_repaired() -> None:
    """Types, lengths and patterns of Converse, tools that the repair declares included."""
    model = botocore.session.get_session().get_service_model("bedrock-runtime")
    shape = model.operation_model("Converse").input_shape
    for seed in range(_HISTORIES):
        body, _ = repair({"modelId": "m", "messages": WRITERS["bedrock"](numbered(seed))}, "bedrock")
        errors = ParamValidator().validate(body, shape)
        assert not errors.has_errors(), f"history {seed}: {errors.generate_report()}"

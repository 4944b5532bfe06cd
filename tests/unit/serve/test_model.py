"""Requests that are computed together: the same answers as alone, and a bad one refused alone."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.serve import Limits, Serve
from pipeline.errors import ConfigError
from pipeline.serve.model import Refused, ServedModel, describe, load
from pipeline.serve.uses import Inputs, Use


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> ServedModel:
    return load(Serve(checkpoint=str(tiny_run)))


def asked(use: Use, *rows: str, top: int = 5) -> Inputs:
    return Inputs(use=use, rows=rows, tokens=1, top=top)


def test_requests_together_are_answered_as_alone(model: ServedModel) -> None:
    requests = [
        asked("embed", "kar", "lost kap"),
        asked("fill", "kar [MASK]", top=2),
        asked("embed", "mist"),
        asked("fill", "[MASK] lost kar"),
        asked("embed"),
    ]
    together, alone = model.answer_all(requests), [model.answer_all([request])[0] for request in requests]
    for number in (0, 2):
        np.testing.assert_allclose(together[number], alone[number], rtol=0, atol=1e-5)
    assert together[4] == [] and [len(masks) for masks in (together[1], together[3])] == [1, 1]
    assert [len(together[1][0][0]), len(together[3][0][0])] == [2, 5]
    assert [guess["token"] for guess in together[3][0][0]] == [guess["token"] for guess in alone[3][0][0]]


def test_rows_that_cannot_be_read_do_not_disturb_other_requests(model: ServedModel) -> None:
    bad = Inputs(use="embed", rows=[("kar", "lost", "kap")], tokens=1)
    good = asked("embed", "kar")
    first, second = model.answer_all([bad, good])
    assert isinstance(first, Refused) and "a text is a string, and a pair of texts a tuple of two" in first.reason
    np.testing.assert_allclose(second, model.loaded.embed(["kar"]), rtol=0, atol=1e-6)


def test_a_limit_above_the_models_length_is_refused(model: ServedModel, tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"^limits.length \(33\) must be at most 32, the tokens that "):
        describe(model, Serve(checkpoint=str(tiny_run), limits=Limits(length=33)))
    assert describe(model, Serve(checkpoint=str(tiny_run), limits=Limits(length=8))).maximum_length == 8

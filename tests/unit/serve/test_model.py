"""Requests that are computed together: the same answers as alone, and a bad one refused alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.serve import Limits, Serve
from pipeline.errors import CheckpointError, ConfigError
from pipeline.serve.model import Refused, ServedModel, _guess, describe_on_cpu, load, load_described
from pipeline.serve.uses import Inputs, Use
from pipeline.text.training import train_vocabulary


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


def test_a_limit_above_the_models_length_is_refused(tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"^limits.length \(33\) must be at most 32, the tokens that "):
        describe_on_cpu(Serve(checkpoint=str(tiny_run), limits=Limits(length=33)))
    assert describe_on_cpu(Serve(checkpoint=str(tiny_run), limits=Limits(length=8))).maximum_length == 8


def test_a_replica_loads_the_described_checkpoint_and_refuses_changed_files(tiny_run: Path, tmp_path: Path) -> None:
    described = describe_on_cpu(Serve(checkpoint=str(tiny_run)))
    loaded = load_described(described, Serve(checkpoint=str(tmp_path)))  # where a run's newest checkpoint has moved on
    assert loaded.loaded.location == described.checkpoint
    with pytest.raises(CheckpointError, match="has changed since the server began"):
        load_described(replace(described, digest="0"), Serve(checkpoint=str(tiny_run)))


def test_guesses_are_text_and_not_the_symbols_of_a_vocabulary(tiny_run: Path) -> None:
    loaded = load(Serve(checkpoint=str(tiny_run))).loaded
    spaced = train_vocabulary(
        [f"kar lost kand {word}" for word in ("mist", "kap", "mir")] * 9,
        size=300,
        lowercase=False,
        kind="byte-bpe",
    )
    token = next(token for token in spaced.tokens if token.startswith("Ġ") and len(token) > 2)
    model = replace(loaded, vocabulary=spaced)
    guess = _guess("<mask> kar <mask>.", "<mask>", 1, {"token": token, "probability": 0.5}, model)
    assert guess["token_str"] == f" {token[1:]}" and guess["sequence"] == f"<mask> kar {token[1:]}."
    assert guess["token"] == spaced.ids[token]
    piece = next(token for token in loaded.vocabulary.tokens if token.startswith("##"))
    joined = _guess("kar [MASK] kap", "[MASK]", 0, {"token": piece, "probability": 0.5}, loaded)
    assert joined["sequence"] == f"kar{piece[2:]} kap" and joined["token_str"] == piece

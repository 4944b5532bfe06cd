"""Requests that are computed together: the same answers as alone, and a bad one refused alone."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import api
from pipeline.config.placement import EmbedPrecision
from pipeline.config.serve import Limits, Serve, ServePlacement
from pipeline.errors import CheckpointError, ConfigError
from pipeline.serve import deployments
from pipeline.serve.model import Refused, ServedModel, _guess, describe_on_cpu, load, load_described, load_here
from pipeline.serve.problems import RequestError
from pipeline.serve.reading import RequestReader
from pipeline.serve.uses import Inputs, ServedDescription, Use
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


def test_a_limit_truncates_the_texts_of_guesses_too(tiny_run: Path) -> None:
    limited = load(Serve(checkpoint=str(tiny_run), limits=Limits(length=8)))
    near, far = limited.answer("fill", ["kar [MASK]", f"{'kar ' * 7}[MASK]"])
    assert len(near) == 1 and far == []


def test_a_replica_loads_the_described_checkpoint_and_refuses_changed_files(tiny_run: Path, tmp_path: Path) -> None:
    described = describe_on_cpu(Serve(checkpoint=str(tiny_run)))
    loaded = load_described(described, Serve(checkpoint=str(tmp_path)))  # where a run's newest checkpoint has moved on
    assert loaded.loaded.location == described.checkpoint
    with pytest.raises(CheckpointError, match="has changed since the server began"):
        load_described(replace(described, digest="0"), Serve(checkpoint=str(tiny_run)))


def test_a_replica_loads_and_computes_in_one_thread(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(described: ServedDescription, config: Serve) -> ServedModel:
        threads.append(threading.current_thread())
        return load_described(described, config)

    def answer_all(self: ServedModel, requests: Sequence[Inputs]) -> list[list[Any] | Refused]:
        threads.append(threading.current_thread())
        return unwatched(self, requests)

    unwatched = ServedModel.answer_all
    monkeypatch.setattr(deployments, "load_described", noted)
    monkeypatch.setattr(ServedModel, "answer_all", answer_all)
    config = Serve(checkpoint=str(tiny_run), placement=ServePlacement(device="cpu", precision="bfloat16", threads=1))
    replica = deployments.RayReplica(config, describe_on_cpu(config))
    (vector,) = asyncio.run(replica.ask(asked("embed", "kar")))
    assert len(threads) == 2 and threads[0] is threads[1] is not threading.current_thread()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = api.load(str(tiny_run)).embed(["kar"])
    np.testing.assert_array_equal([vector], wanted)


def test_a_device_that_is_named_is_used_whatever_gpus_are_asked_for(tiny_run: Path) -> None:
    served = load_here(Serve(checkpoint=str(tiny_run), gpus=1.0, placement=ServePlacement(device="cpu")))
    assert served.loaded.device == torch.device("cpu")


def test_a_vector_of_a_model_that_splits_texts_has_a_length_of_its_own(tuned: Callable[..., Serve]) -> None:
    config = tuned("classification", passages=True)
    reader, texts = RequestReader(describe_on_cpu(config), config), ["kar " * 40]
    assert reader.count("predict", texts, lambda *_: "inputs", None) == 42
    assert reader.count("embed", texts, lambda *_: "inputs", True) == 32  # the model's positions
    with pytest.raises(RequestError) as refused:
        reader.count("embed", texts, lambda *_: "inputs", None)
    assert refused.value.message.startswith("inputs must have at most 32 tokens, and has 42: send a shorter text, or")


@pytest.mark.parametrize("start", [load_here, describe_on_cpu])
def test_a_precision_that_the_device_lacks_is_refused_before_requests(
    start: Callable[[Serve], object], tiny_run: Path
) -> None:
    with pytest.raises(ConfigError, match=r"^placement.precision \(tf32\) needs a GPU, but this is a CPU: use float32"):
        start(Serve(checkpoint=str(tiny_run), placement=ServePlacement(precision="tf32")))


@pytest.mark.parametrize(("asked", "told"), [("auto", "bfloat16"), ("tf32", "tf32")])
def test_replicas_with_gpus_are_described_by_a_process_without(
    asked: EmbedPrecision, told: str, tuned: Callable[..., Serve], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch.cuda, "get_device_name")  # also where this process has a GPU, it is not asked
    config = tuned("classification", lineage={"precision": "bfloat16"})
    assert describe_on_cpu(replace(config, gpus=1.0, placement=ServePlacement(precision=asked))).precision == told
    assert describe_on_cpu(config).precision == "float32"


def test_weights_are_cast_when_a_model_is_loaded(tiny_run: Path) -> None:
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        loaded = load(Serve(checkpoint=str(tiny_run), placement=ServePlacement(device="cpu", precision=precision)))
        assert {part.dtype for part in loaded.loaded.encoder.layers[0].attention.output.parameters()} == {dtype}


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

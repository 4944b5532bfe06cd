"""The bench of serving: its requests, its servers' commands, its table, and the server that it compares with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import requests

from pipeline import api
from pipeline.bench import peer_server, serve
from pipeline.bench.load import Load
from pipeline.command_line.command import Command
from pipeline.config.bench import Serve
from pipeline.config.serve import Batching
from pipeline.config.serve import Serve as Served
from pipeline.errors import ConfigError
from pipeline.saved.checkpoints import folder_of
from tests.unit.bench.test_load import server
from tests.unit.serve.test_routes import running


def load_of(*milliseconds: float, failed: int = 0) -> Load:
    """Requests that took these times, in two seconds."""
    return Load(latencies=[one / 1_000 for one in milliseconds], seconds=2.0, failed=failed)


def test_the_table_by_hand() -> None:
    alone, full = load_of(10, 20, 30), load_of(*[50] * 8, failed=1)
    half, fixed = load_of(40, 40, 40), load_of(0, 100, failed=2)
    head, row = serve.table([("ours", 16, [alone, full, half, fixed])]).splitlines()
    columns = "tokens alone/s p50 p99 full/s half: p50 p99 p99/p50 fixed: p50 p99 failed"
    assert " ".join(head.split()) == columns
    assert row.split() == ["ours", "16", "1.5", "20.0", "29.8", "4.0", "40.0", "40.0", "1.0", "50.0", "99.0", "3"]
    assert len(head) == len(row)


def test_requests_have_exactly_their_tokens(tiny_run: Path) -> None:
    model = api.load(str(tiny_run), "cpu")
    bodies = serve._bodies_of(str(tiny_run), 9)
    assert {len(model.tokenize(body["inputs"][0]).ids) for body in bodies} == {9}
    assert len({body["inputs"][0] for body in bodies}) > 1 and bodies == serve._bodies_of(str(tiny_run), 9)
    with pytest.raises(ConfigError, match=r"^lengths \(33\) must lie between 3 and 32, the model's length$"):
        serve._bodies_of(str(tiny_run), 33)


def ours(config: Serve, unbatched: bool) -> Served:
    """Settings that our server reads from its command."""
    words = serve._ours(config, 8_123, unbatched)
    assert words[:3] == ["-c", serve.BERTSTREAM, "serve"]
    return Command(prog="serve", about="", settings=Served).read(words[3:])


def test_the_measured_server_has_the_settings_of_the_bench() -> None:
    config = Serve(checkpoint="m", threads=3, replicas=2, precision="int8")
    plain = ours(config, unbatched=False)
    assert (plain.checkpoint, plain.port, plain.onnx, plain.limits.truncate) == ("m", 8_123, False, True)
    assert plain.replicas == 2
    assert (plain.placement.threads, plain.placement.precision, plain.placement.device) == (3, "int8", "cpu")
    assert plain.batching == Batching()
    assert ours(config, unbatched=True).batching == Batching(tokens=1, wait=0.0)
    assert ours(Serve(checkpoint="m", onnx=True), unbatched=False).onnx


def settings_of(*words: str) -> Serve:
    """Settings that the bench reads from its command."""
    return Command(prog="bench", about="", settings=Serve).read(words)


def test_the_usual_lengths_are_short_and_long(tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"^lengths \(128\) must lie between 3 and 32, the model's length$"):
        serve.measure(settings_of("--checkpoint", str(tiny_run)))


def test_onnx_has_one_number_format() -> None:
    with pytest.raises(ConfigError) as refused:
        Serve(checkpoint="m", onnx=True, precision="int8")
    assert str(refused.value) == "onnx (True) computes in float32, but precision is int8: leave one out"


@pytest.mark.second
@pytest.mark.parametrize("unbatched", [False, True])
def test_every_server_gets_every_length_and_load(
    unbatched: bool, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    @contextmanager
    def quick(name: str, config: Serve) -> Iterator[str]:
        begun.append(name)
        with server(0.02) as (url, _):
            yield url

    monkeypatch.setattr(serve, "_running", quick)
    monkeypatch.setattr(serve, "CLIENTS", 2)
    words = ["--checkpoint", str(tiny_run), "--lengths", "5", "--lengths", "9", "--seconds", "0.2", "--rate", "50"]
    measured = serve.measure(settings_of(*words, *(["--unbatched"] if unbatched else [])))
    names = ["ours", *(["ours, unbatched"] if unbatched else []), "sentence-transformers"]
    assert begun == names
    assert [row[:2] for row in measured] == [(name, length) for name in names for length in (5, 9)]
    assert all(len(loads) == 4 and min(len(load.latencies) for load in loads) > 0 for _, _, loads in measured)


def test_the_peer_answers_with_the_models_vectors(tiny_run: Path) -> None:
    pytest.importorskip("sentence_transformers")
    texts = ["kar lost", "kap"]
    with running(peer_server._app(folder_of(str(tiny_run), 3))) as url:
        assert requests.get(f"{url}/health", timeout=30).json() == {"ready": True}
        found = requests.post(f"{url}/embed", json={"inputs": texts}, timeout=30).json()
        assert requests.post(f"{url}/embed", json={"input": texts}, timeout=30).status_code == 422
    np.testing.assert_allclose(found, api.load(str(tiny_run)).embed(texts), rtol=0, atol=1e-5)

"""The speed of vectors next to sentence-transformers: its texts, its sides and its verdict."""

import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.bench import finetune
from pipeline.bench.vectors import PEER, VectorBench, _sides, lowest_cosine, read_texts, verdict
from pipeline.errors import ConfigError


def test_the_first_texts_that_are_not_empty_are_read(tmp_path: Path) -> None:
    table = tmp_path / "texts.csv"
    table.write_text('id,body\n1,one\n2," "\n3,three\n4,four\n')
    wanted = VectorBench(checkpoint="/none", input=str(table), text="body", texts=2)
    assert read_texts(wanted) == ["one", "three"]
    with pytest.raises(ConfigError) as refused:
        read_texts(VectorBench(checkpoint="/none", input=str(table), text="body", texts=4))
    assert str(refused.value) == f"texts (4) are more than input ({table}) has: give 3"
    table.write_text('id,body\n1,\n2," "\n')
    with pytest.raises(ConfigError) as refused:
        read_texts(wanted)
    assert str(refused.value) == f"input ({table}) has no text that is not empty in column body"


@pytest.mark.parametrize("name", ["texts", "repetitions"])
def test_numbers_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        VectorBench(checkpoint="/none", input="/none", **{name: 0})
    assert str(refused.value) == f"{name} (0) must be at least 1"


@pytest.mark.parametrize("name", ["rows", "repetitions"])
def test_fine_tunings_to_time_are_at_least_one(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        finetune.Settings(checkpoint="/none", **{name: 0})
    assert str(refused.value) == f"{name} (0) must be at least 1"


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=r"^bench vectors needs sentence-transformers \(.*\): pip install sentence-t"):
        _sides("/none", [])


def test_the_lowest_cosine_by_hand() -> None:
    # Lengths do not matter; (1, 1) and (1, 0) are 45 degrees apart.
    ours, theirs = np.array([[3.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert lowest_cosine(ours, theirs) == pytest.approx(0.5**0.5)


def test_the_verdict_names_what_is_too_slow_or_too_far(capsys: pytest.CaptureFixture[str]) -> None:
    close = {PEER: 1.0, "float32": 1.0, "int8": 0.995}
    assert verdict({PEER: 6.0, "float32": 4.0, "int8": 3.0}, close, 120) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        [PEER, "20.0", "1.00", "1.00000"],
        ["float32", "30.0", "1.50", "1.2", "1.00000"],
        ["int8", "40.0", "2.00", "2", "0.99500"],
    ]
    assert verdict({PEER: 6.0, "float32": 8.0, "int8": 3.0}, close | {"int8": 0.985}, 120) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "below its floor: float32: 0.75, floor 1",
        "int8: lowest cosine 0.98500, and it must be at least 0.99",
    ]

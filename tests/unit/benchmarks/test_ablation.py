"""An ablation on a file of tokens, without Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from tests.benchmarks.ablation import main
from tests.unit.bench.test_train import ROOT, WORDS

SMALL = WORDS[2:]  # without steps, which the tokens determine
WITHOUT_RAY = """
import runpy, sys
for name in ("ray", "mlflow", "transformers", "smart_open", "bm25s"):
    sys.modules[name] = None  # an import raises ModuleNotFoundError
if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def words(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> list[str]:
    location = str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary))
    return ["dropout", "--file", location, "--output", str(tmp_path), "--seeds", "2", "--at-once", "2", *SMALL]


@pytest.mark.second
def test_runs_are_trained_once_on_equal_tokens_and_compared(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_RAY)
    command = [sys.executable, script, "tests.benchmarks", "ablation", *words, "--tokens", "2k"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert first.returncode == 0, first.stderr
    results = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("runs/*/result.json")}
    assert len(results) == 4 and {result["seed"] for result in results.values()} == {0, 1}
    assert all(abs(result["tokens"] - 2_000) < 16 * 32 for result in results.values())
    lines = first.stdout.splitlines()
    assert [line for line in lines if line.endswith(" steps")][0].startswith("0.1: ")
    assert sum("trained in" in line for line in lines) == 4
    assert any(line.startswith("0.1 ") for line in lines) and any(
        "2 seeds per variant prove nothing" in x for x in lines
    )
    assert main([*words, "--tokens", "2k"]) == 0
    again, table = capsys.readouterr().out, first.stdout[first.stdout.index("variant ") :]
    assert "trained in" not in again and again.endswith(table)
    (left, *_) = tmp_path.glob("runs/*/result.json")
    kept = left.read_text()
    left.unlink()
    with pytest.raises(ConfigError, match="of a run that was stopped, which cannot be continued: delete this folder"):
        main([*words, "--tokens", "2k"])
    left.write_text(kept)
    for path in tmp_path.glob("runs/*/source.json"):
        path.write_text(path.read_text().replace('"corpus": "', '"corpus": "other-'))
    with pytest.raises(ConfigError, match="was trained on other text or scored on other pairs"):
        main([*words, "--tokens", "2k"])


def test_steps_of_the_variants_are_timed_in_turns(words: list[str], tmp_path: Path, capsys) -> None:
    assert main([*words, "--tokens", "2k", "--turns", "2"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["variant", "milliseconds", "per", "step", "/", "0.1"]
    assert [row.split()[0] for row in rows] == ["0.1", "0"] and rows[0].split()[-1] == "1.00"
    assert all(float(row.split()[1]) > 0 for row in rows) and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--minutes", "1"], "minutes cannot be set here: give --tokens"),
        (["--tokens", "2k", "--task", "builtin"], r"task \(builtin\) needs Ray"),
        (["--tokens", "2k", "--turns", "0"], r"turns \(0\) must be a whole number of at least 1"),
    ],
)
def test_what_needs_ray_is_refused(words: list[str], changed: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main([*words, *changed])
    with pytest.raises(ConfigError, match="--file is missing"):
        main(["dropout", "--tokens", "2k"])

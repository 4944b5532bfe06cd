import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.bench.train import RESULT, _require_trainable, main, train_on_tokens
from pipeline.config.data import Sampling, TwoCrops, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive
from pipeline.config.phases import TwoPhases
from pipeline.corpus import token_file
from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from tests.conftest import Training

ROOT = Path(__file__).parents[3]
WORDS = (
    *("--steps", "3", "--batch.rows-per-step", "16", "--batch.rows-per-slot", "4", "--sampling.maximum-length", "32"),
    *("--model.layers", "1", "--model.width", "16", "--model.heads", "1", "--model.feed-forward", "32"),
    *("--model.maximum-positions", "32", "--evaluation.rows", "8", "--placement.device", "cpu"),
    *("--placement.precision", "float32", "--placement.compile", "off", "--placement.threads", "1"),
)
WITHOUT_RAY = """
import runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ray", "mlflow", "transformers"):
            raise ImportError(name + " is blocked")
if __name__ == "__main__":
    sys.meta_path.insert(0, Blocked())
    sys.argv = sys.argv[1:]
    sys.path.insert(0, "jobs")
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def tokens(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> str:
    location = str(tmp_path / "tokens.npz")
    token_file.write(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), words=32)
    return location


def state_of(output: Path, name: str, steps: int) -> checkpoint.State:
    return checkpoint.read_state(checkpoint.folder_of(str(output / "runs" / name), steps))


def test_the_run_sees_the_rows_of_the_stream(
    tokens: str, training: Training, tiny_config: Pretrain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(
        tiny_config, output=str(tmp_path), word_embeddings="cooccurrence", vocabulary=VocabularySettings(size=120)
    )
    measured = train_on_tokens(config, tokens, print)
    on_stream, _ = training.run(tiny_config, tmp_path / "stream", {})
    state = state_of(tmp_path, "tiny", tiny_config.steps)
    assert (state.crc32, state.cursor, state.tokens) == (on_stream.crc32, on_stream.cursor, on_stream.tokens)
    assert measured["heldout_after"]["heldout/mlm_loss"] < measured["heldout_before"]["heldout/mlm_loss"]
    assert measured["heldout_after"]["heldout/bits_per_byte"] > 0 and measured["baselines"]
    assert json.loads((tmp_path / "runs" / "tiny" / RESULT).read_text()) == measured
    with pytest.raises(ConfigError, match=r"name \(tiny\) is in use"):
        train_on_tokens(config, tokens, print)


def test_without_ray_and_mlflow(tokens: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_RAY)
    words = ["jobs/bench.py", "train", "bert-tiny", "--tokens", tokens, "--output", str(tmp_path), "--name", "a"]
    done = subprocess.run([sys.executable, script, *words, *WORDS], cwd=ROOT, capture_output=True, text=True, env=None)
    assert done.returncode == 0, done.stderr
    assert "held-out words" in done.stdout and "3 steps" in done.stdout
    assert state_of(tmp_path, "a", 3).step == 3


@pytest.mark.long
def test_processes_of_torchrun_share_the_slots(tokens: str, tmp_path: Path) -> None:
    """Two processes train on the same global batches as one, to the same losses."""
    losses = []
    for number in (1, 2):
        words = ["jobs/bench.py", "train", "bert-tiny", "--tokens", tokens, "--output", str(tmp_path), *WORDS]
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(number), *words]
        done = subprocess.run([*run, "--name", str(number)], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("held-out words") == 1
        result = json.loads((tmp_path / "runs" / str(number) / RESULT).read_text())
        losses.append(result["heldout_after"]["heldout/mlm_loss"])
    assert state_of(tmp_path, "1", 3).crc32 == state_of(tmp_path, "2", 3).crc32
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"corpus": ("text.txt",)}, "corpus cannot be set together with tokens"),
        ({"vocabulary": VocabularySettings(path="vocab.txt")}, "vocabulary.path cannot be set together with tokens"),
        ({"workers": 2}, "workers cannot be set together with tokens"),
        (
            {"phases": TwoPhases(maximum_length=32, rows_per_step=16, rows_per_slot=4)},
            r"phases \(TwoPhases\) must be one-phase",
        ),
        (
            {"objective": Contrastive(), "sampling": Sampling(maximum_length=32, pairs=TwoCrops())},
            "tokens has no texts",
        ),
        (
            {"word_embeddings": "cooccurrence", "model": Model(layers=1, width=16, heads=1, maximum_positions=32)},
            "needs vectors of width 16, but .* has width 32: write it with --words 16",
        ),
    ],
)
def test_settings_that_a_file_of_tokens_cannot_have(
    changed: dict[str, object], problem: str, tokens: str, tiny_config: Pretrain
) -> None:
    with pytest.raises(ConfigError, match=problem):
        _require_trainable(replace(tiny_config, **changed), token_file.read(tokens), tokens)


def test_the_command_needs_tokens() -> None:
    with pytest.raises(ConfigError, match="--tokens is missing"):
        main(["bert-tiny"])

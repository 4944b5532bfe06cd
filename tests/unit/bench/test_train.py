import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch

from pipeline.bench import train as bench_train
from pipeline.bench.token_steps import with_steps_on
from pipeline.bench.train import RESULT, Rank, _require_trainable, _with_choices, main, slots, train_on_tokens
from pipeline.command_line.stopping import TERMINATED
from pipeline.config.data import Sampling, TwoCrops, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive, Distilled
from pipeline.config.phases import OnePhase, SeveralPhases, TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.corpus import token_file, token_file_saving
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.saved import checkpoints
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.encoded_window import EncodedWindow
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from pipeline.train.automatic import FreeMemory
from tests.conftest import Training, of_family, tiers

ROOT = Path(__file__).parents[3]
WORDS = (
    *("--steps", "3", "--batch.rows-per-step", "16", "--batch.rows-per-slot", "4", "--sampling.maximum-length", "32"),
    *("--model.layers", "1", "--model.width", "16", "--model.heads", "1", "--model.feed-forward", "32"),
    *("--model.maximum-positions", "32", "--evaluation.rows", "8", "--placement.device", "cpu"),
    *("--placement.precision", "float32", "--placement.compile", "off", "--placement.threads", "1"),
)
WITH_TIMES = ("state.json", "manifest.json")
"""Files of a checkpoint that differ between equal runs, because they hold times or digests of such files."""
WITHOUT_RAY = (
    *("torch", "torchgen", "functorch", "numpy", "numpy.libs", "pyarrow", "safetensors", "tokenizers"),
    *("requests", "urllib3", "certifi", "charset_normalizer", "idna"),
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing_extensions.py"),
)
"""Files in the folder of installed packages: what `bench.py train` needs, and the packages that these need."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which `python -S` finds no packages but those of WITHOUT_RAY."""
    folder = tmp_path_factory.mktemp("without-ray")
    for name in WITHOUT_RAY:
        (folder / name).symlink_to(Path(torch.__file__).parents[1] / name)
    return os.environ | {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="session")
def tiny_config(tiny_config: Pretrain) -> Pretrain:
    """The tiny training on one thread: two would wait for each other beside other processes."""
    return replace(tiny_config, placement=Placement(threads=1))


@pytest.fixture
def tokens(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> str:
    location = str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary), words=32)
    return location


def state_of(output: Path, name: str, steps: int) -> checkpoint.State:
    return checkpoint.read_state(checkpoints.folder_of(str(output / "runs" / name), steps))


THREE_PHASES = SeveralPhases(
    parts=(0.5, 0.25, 0.25), maximum_lengths=(32, 24), rows_per_step=(12, 8), masking_shares=(0.3, 0.2)
)
"""Steps 0 to 5, 6 to 8 and 9 to 11; the slots that are chosen have 12 and 8 rows."""


@tiers("phases", first=(THREE_PHASES,), second=(OnePhase(),))
def test_the_run_sees_the_rows_of_the_stream(
    tokens: str, training: Training, tiny_config: Pretrain, tmp_path: Path, phases: SeveralPhases | OnePhase
) -> None:
    tiny_config = replace(tiny_config, phases=phases)
    config = replace(
        tiny_config, output=str(tmp_path), word_embeddings="cooccurrence", vocabulary=VocabularySettings(size=120)
    )
    measured = train_on_tokens(config, tokens, print)
    on_stream, _ = training.run_phases(tiny_config, tmp_path / "stream", {})
    assert measured["maximum_length"] == tiny_config.all_phases[-1].sampling.maximum_length
    state = state_of(tmp_path, "tiny", tiny_config.steps)
    assert (state.crc32, state.cursor, state.tokens) == (on_stream.crc32, on_stream.cursor, on_stream.tokens)
    assert measured["heldout_after"]["heldout/mlm_loss"] < measured["heldout_before"]["heldout/mlm_loss"]
    assert measured["heldout_after"]["heldout/bits_per_byte"] > 0 and measured["baselines"]
    assert json.loads((tmp_path / "runs" / "tiny" / RESULT).read_text()) == measured
    with pytest.raises(ConfigError, match=r"name \(tiny\) is in use"):
        train_on_tokens(config, tokens, print)


def test_slots_go_over_the_ends_of_windows(tokens: str) -> None:
    contents, sampling = token_file.read(tokens), Sampling(maximum_length=32)
    windows = [token_file.rows_of_window(contents, sampling, 0, number) for number in range(5)]
    cut, rows = list(slots(iter(windows), 4)), sum(window.num_rows for window in windows)
    assert {slot.num_rows for slot in cut} == {4} and len(cut) == rows // 4
    assert any(window.num_rows % 4 for window in windows[:-1])
    assert pa.concat_tables(cut).equals(pa.concat_tables(windows).slice(0, 4 * len(cut)))


@pytest.mark.second
def test_without_ray_and_mlflow(tokens: str, alone: dict[str, str], tmp_path: Path) -> None:
    """The checkpoint has the files and the weights of a run with all packages."""
    words = ["jobs/bench.py", "train", "bert-tiny", "--token-file", tokens, "--output", str(tmp_path), *WORDS]
    run = [sys.executable, "-S", *words, "--name", "alone"]
    done = subprocess.run(run, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "held-out words" in done.stdout and "3 steps" in done.stdout
    assert main([*words[2:], "--name", "with-all"]) == 0
    assert state_of(tmp_path, "alone", 3).step == 3
    of_one, of_other = (Path(checkpoints.folder_of(str(tmp_path / "runs" / name), 3)) for name in ("alone", "with-all"))
    assert storage.damage(str(of_one)) is None
    names = {path.name for path in of_other.iterdir()}
    assert {path.name for path in of_one.iterdir()} == names > {"model.safetensors", "tokenizer.json", *WITH_TIMES}
    for name in names.difference(WITH_TIMES):
        assert (of_one / name).read_bytes() == (of_other / name).read_bytes(), name


@pytest.mark.second
def test_a_missing_package_is_named_in_one_line(alone: dict[str, str], tmp_path: Path) -> None:
    run = [sys.executable, "-S", "jobs/bench.py", "tokens", "--corpus", str(tmp_path), "--file", str(tmp_path / "f")]
    done = subprocess.run(run, cwd=ROOT, env=alone, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: package \w+ is not installed, and this command needs it: install it, or "
        r"all packages of pyproject.toml \(pip install .\)\n",
        done.stderr,
    )


@pytest.mark.long
def test_processes_of_torchrun_share_the_slots(tokens: str, tmp_path: Path) -> None:
    """Two processes train on the same global batches as one, to the same losses."""
    losses = []
    for number in (1, 2):
        words = ["jobs/bench.py", "train", "bert-tiny", "--token-file", tokens, "--output", str(tmp_path), *WORDS]
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
        ({"corpus": ("text.txt",)}, r"corpus \(text.txt\) cannot be set together with token-file"),
        (
            {"vocabulary": VocabularySettings(path="vocab.txt")},
            r"vocabulary.path \(vocab.txt\) cannot be set together with token-file",
        ),
        ({"workers": 2}, r"workers \(2\) cannot be set together with token-file"),
        (
            {"objective": Contrastive(), "sampling": Sampling(maximum_length=32, pairs=TwoCrops())},
            "token-file has no texts",
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


@pytest.mark.second
@pytest.mark.parametrize("family", ["electra", "roberta", "distilbert"])
def test_other_families(
    family: str, tokens: str, training: Training, tiny_config: Pretrain, tiny_run: Path, tmp_path: Path
) -> None:
    config = of_family(family, replace(tiny_config, output=str(tmp_path), steps=2), training.vocabulary)
    if family == "distilbert":  # from a teacher of the same vocabulary
        teacher = checkpoints.newest_sound(str(tiny_run), print)
        config = replace(config, objective=Distilled(teacher=teacher))
    measured = train_on_tokens(replace(config, placement=Placement(recompute=True, threads=1)), tokens, print)
    assert measured["steps"] == 2 and measured["heldout_after"]["heldout/mlm_loss"] > 0


def test_a_file_without_examples_ends_the_run(
    tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """One sentence per document gives no pairs."""
    location, encoded = str(tmp_path / "tokens.arrow"), token_file_saving.encode_window
    with pytest.MonkeyPatch.context() as patch:

        def first_sentences(*arguments: Any) -> EncodedWindow:
            window = encoded(*arguments)
            return replace(
                window,
                tokens=window.tokens[: window.sentence_offsets[1]],
                sentence_offsets=window.sentence_offsets[:2],
                document_offsets=np.minimum(window.document_offsets, 1),
            )

        patch.setattr(token_file_saving, "encode_window", first_sentences)
        save_tokens(location, tiny_corpus, CachedTokenizer(tiny_vocabulary))
    with pytest.raises(DataError, match="yields no examples: it needs documents of several sentences"):
        train_on_tokens(replace(tiny_config, output=str(tmp_path)), location, print)


@pytest.mark.second
def test_sigterm_leaves_no_process(tokens: str, tmp_path: Path) -> None:
    words = ["jobs/bench.py", "train", "bert-tiny", "--token-file", tokens, "--output", str(tmp_path), "--name", "a"]
    words += [*WORDS, "--steps", "100000", "--tracking.every", "1"]
    run = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert any(line.startswith("step") for line in run.stdout)
    children = psutil.Process(run.pid).children(recursive=True)
    run.terminate()
    _, errors = run.communicate(timeout=60)
    assert run.returncode == TERMINATED and errors == "stopped\n" and children
    assert not psutil.wait_procs(children, timeout=30)[1]


def test_more_processes_than_slots(
    tokens: str, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "5")
    with pytest.raises(ConfigError, match="torchrun started 5 processes, but a step has 4 slots"):
        train_on_tokens(replace(tiny_config, output=str(tmp_path)), tokens, print)


def test_the_line_about_a_gpu_does_not_promise_that_a_bench_goes_on(
    tiny_config: Pretrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bench_train, "free_memory", lambda device: FreeMemory(gpu="NVIDIA H200", bytes=141_000_000_000, has_kernel=True)
    )
    lines: list[str] = []
    config = replace(tiny_config, batch=Batch(rows_per_step=16))
    _with_choices(config, Rank(rank=0, world=1, device=torch.device("cuda")), lines.append)
    assert "batch.rows_per_slot auto: 16 rows" in lines[0] and "go on" not in lines[0] and "--workers" not in lines[0]


def test_the_command_needs_a_file_of_tokens_which_tokens_does_not_name() -> None:
    for words, said in (
        ((), "--token-file is missing: File of tokens"),
        (("--tokens", "100M"), "--token-file is missing: File of tokens"),
        (
            ("--tokens", "a.arrow"),
            r"tokens \(a.arrow\) must be a number of tokens .*: a file of tokens is named with --token-file$",
        ),
    ):
        with pytest.raises(ConfigError, match=f"^{said}"):
            main(["bert-tiny", *words])


def test_epochs_and_tokens_are_steps_on_the_file(tokens: str, tiny_config: Pretrain, tmp_path: Path) -> None:
    """The rows of two epochs are counted one by one."""
    contents, config = token_file.read(tokens), replace(tiny_config, output=str(tmp_path), epochs=2.0)
    windows = [
        token_file.rows_of_window(contents, config.sampling, config.seed, number)
        for number in range(2 * len(contents.train))
    ]
    rows, whole = (
        sum(window.num_rows for window in windows),
        sum(len(window["ids"].combine_chunks().values) for window in windows),
    )
    assert with_steps_on(config, contents, tokens).steps == pytest.approx(rows // config.batch.rows_per_step, abs=1)
    by_tokens = with_steps_on(replace(config, epochs=None, tokens=str(whole)), contents, tokens)
    assert by_tokens.steps == pytest.approx(rows / config.batch.rows_per_step, abs=1)
    assert with_steps_on(tiny_config, contents, tokens) == tiny_config


def test_more_processes_than_slots_of_a_later_phase(
    tokens: str, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    phases = TwoPhases(share=0.5, maximum_length=32, rows_per_step=12, rows_per_slot=4)
    with pytest.raises(ConfigError, match=r"3 slots \(phases.rows_per_step 12 / phases.rows_per_slot 4\)"):
        train_on_tokens(replace(tiny_config, phases=phases, output=str(tmp_path)), tokens, print)


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        ([], [128]),
        (["phases:two-phases"], [128, 512]),  # the preset's own
        (["phases:several-phases", "--phases.maximum-lengths", "256,64"], [128, 256, 64]),
    ],
)
def test_a_preset_has_one_phase_unless_a_kind_is_chosen(
    words: list[str], lengths: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configs: list[Pretrain] = []

    def stop(config: Pretrain, location: str, report: object) -> dict[str, Any]:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_train, "train_on_tokens", stop)
    with pytest.raises(KeyboardInterrupt):
        main(["bert-base", "--token-file", "tokens.arrow", *words])
    assert [phase.sampling.maximum_length for phase in configs[0].all_phases] == lengths
    note = "" if words else "note: one phase, although preset bert-base has more: phases:two-phases trains them\n"
    assert capsys.readouterr().out == note

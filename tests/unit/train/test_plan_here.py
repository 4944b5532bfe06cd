"""The part of a plan on this machine and the text: measured steps, and literals worked out by hand."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from pipeline.config.data import GivenPairs, Sampling, Sentences, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive, DistilledVectors
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.errors import ConfigError
from pipeline.saved.run import run_folder, write_run
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train import plan_here
from pipeline.train.few_steps import FewSteps, few_steps
from pipeline.train.plan import loads
from pipeline.train.plan_here import (
    facts_here,
    here,
    passes_over,
    passes_warning,
    planned_passes,
    seconds_here,
    with_known_text,
)
from pipeline.train.run_data import known_stream, with_known_steps
from tests.conftest import tiny_preset


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config,
        lambda config: replace(
            config, objective=Contrastive(), sampling=Sampling(maximum_length=16, pairs=GivenPairs(negatives=2))
        ),
        lambda config: tiny_preset("electra"),
    ],
)
def test_steps_of_every_kind_of_rows_are_timed(
    tiny_config: Pretrain, change: Callable[[Pretrain], Pretrain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.train.few_steps.MOST_SECONDS", 0.0)  # one step is timed then
    threads = torch.get_num_threads()
    config = replace(change(tiny_config), placement=Placement(device="cpu", threads=1))
    lines: list[str] = []
    ((name, text), *_), _, gpus_here = facts_here(config, lines.append)
    assert name == "this machine" and text.startswith("CPU with 1 thread: at most ") and not gpus_here
    speed = re.search(r"([\d,]+) tokens/s \(steps of 1 row of \d+ tokens were timed, without torch.compile\)$", text)
    assert speed is not None and int(speed[1].replace(",", "")) > 0 and torch.get_num_threads() == threads
    assert lines == ["timing a few steps on this machine, for at most half a minute"]


def test_a_run_that_cannot_be_measured_here_says_why(tiny_config: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    distilled = replace(
        tiny_config, objective=DistilledVectors(), sampling=Sampling(maximum_length=32, pairs=Sentences())
    )
    assert here(distilled) == ("not measured: its teacher, which a plan does not load, computes too", None)
    monkeypatch.setattr("pipeline.train.few_steps.free_memory", lambda device: 100_000)
    with pytest.raises(ConfigError, match=r"need about 0\.\d GB, and 0\.0 GB of the machine are free$"):
        few_steps(tiny_config, 14)


def test_the_time_here_is_slots_and_updates(tiny_config: Pretrain) -> None:
    """10 steps of 4 slots of 2 rows; a slot of one row takes 1 s, and an update 0.5 s."""
    config = replace(tiny_config, steps=10, batch=Batch(rows_per_step=8, rows_per_slot=2), workers=3)
    measured = FewSteps(device="CPU", processors=2, rows=1, slot_seconds=1.0, update_seconds=0.5)
    assert seconds_here(config, measured) == pytest.approx(10 * (8 * 1.0 + 0.5))
    # two GPUs have two slots each; three would have 2, 1 and 1
    assert seconds_here(config, replace(measured, device="H100")) == pytest.approx(10 * (4 * 1.0 + 0.5))
    three = replace(measured, device="H100", processors=8)
    assert seconds_here(config, three) == pytest.approx(10 * (4 * 1.0 + 0.5))


def test_passes_are_those_over_the_text(tiny_config: Pretrain, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcd " * 800)  # 4,000 characters, about 1,000 tokens
    config = replace(tiny_config, corpus=(str(tmp_path / "a.txt"),), output=str(tmp_path / "out"))
    (load,) = loads(config)
    assert planned_passes(config) == pytest.approx(load.tokens / 1_000)
    (tmp_path / "b.jsonl").write_text("{}")
    assert planned_passes(replace(config, corpus=(str(tmp_path / "b.jsonl"),))) is None, "its text is not its bytes"
    assert planned_passes(replace(config, corpus=("https://127.0.0.1:1/a.txt",))) is None, "nothing is fetched"
    assert planned_passes(replace(config, corpus=(str(tmp_path / "none"),))) is None
    assert (
        planned_passes(
            replace(config, sampling=Sampling(maximum_length=32, pairs=GivenPairs()), objective=Contrastive())
        )
        is None
    )


def test_passes_over_a_prepared_corpus_count_its_own_tokens(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    passes = passes_over(tiny_config, tiny_corpus, tiny_vocabulary)
    assert passes is not None and passes > 0
    text = " ".join(read_window(tiny_corpus, tiny_corpus.train[0])["text"].to_pylist())
    tokens = len(tiny_vocabulary.tokenizer().encode(text, add_special_tokens=False).ids)
    (load,), whole = loads(tiny_config), sum(window.characters for window in tiny_corpus.train)
    assert passes == pytest.approx(load.tokens / (tokens / tiny_corpus.train[0].characters * whole), rel=0.1)


def test_steps_and_vocabulary_of_text_that_is_not_prepared_are_estimated(tiny_config: Pretrain, tmp_path: Path) -> None:
    """A token has four characters and a row 29.44 tokens, so 10 epochs of 40,000 characters have 3,400 rows."""
    (tmp_path / "a.txt").write_text("abcd " * 8_000)
    config = replace(
        tiny_config,
        corpus=(str(tmp_path / "a.txt"),),
        output=str(tmp_path / "out"),
        name="new",
        epochs=10.0,
        batch=Batch(rows_per_step=10, rows_per_slot=10),
        vocabulary=VocabularySettings(size="auto"),
    )
    planned, facts = with_known_text(config, pytest.fail)
    why = "estimated with rows of 29 tokens, until the corpus is prepared and has a vocabulary"
    assert planned.steps == 340 and planned.vocabulary.size == 8_192
    assert facts == [("steps from", f"epochs (10), {why}"), ("vocabulary", "auto: 8,192 entries")]
    by_tokens = replace(config, epochs=None, tokens="29_440", corpus=("https://127.0.0.1:1/a.txt",))
    planned, facts = with_known_text(by_tokens, pytest.fail)
    assert planned.steps == 100 and facts == [
        ("steps from", f"tokens (29_440), {why}"),
        ("vocabulary", "auto: at most, for text of unknown size: 50,368 entries"),
    ]
    assert with_known_text(tiny_config, pytest.fail) == (tiny_config, [])
    write_run(run_folder(config), {}, 77, "id", "corpus", config.steps_from)
    planned, facts = with_known_text(config, pytest.fail)
    assert planned.steps == 77 and facts[0] == ("steps from", "epochs (10), as counted when the run began")


def test_the_steps_of_a_plan_are_those_of_the_run_if_text_and_vocabulary_are_there(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder, about = shutil.copytree(tiny_corpus.folder, tmp_path / "corpus"), asdict(tiny_corpus)
    windows = {split: [list(window.values()) for window in about[split]] for split in ("train", "heldout")}
    (folder / "manifest.json").write_text(json.dumps(about | windows))
    save_vocabulary(tiny_vocabulary, tmp_path / "vocabulary", 512)
    config = replace(
        tiny_config,
        corpus=(str(folder),),
        output=str(tmp_path),
        epochs=2.0,
        name="new",
        vocabulary=VocabularySettings(path=str(tmp_path / "vocabulary")),
    )
    stream, lines = known_stream(config), list[str]()
    assert stream is not None and stream.vocabulary == tiny_vocabulary
    planned, facts = with_known_text(config, lines.append)
    assert facts == [("steps from", "epochs (2), counted in the rows of the corpus")]
    assert planned.steps == with_known_steps(config, stream, lines.append).steps
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(295))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    given = VocabularySettings(path=str(tmp_path / "vocab.txt"), lowercase=True, kind="byte-bpe", size="auto")
    planned, facts = with_known_text(replace(config, vocabulary=given), lines.append)
    assert planned.vocabulary.size == 300 and facts[1] == ("vocabulary", f"300 entries of {given.path}")


def test_a_plan_for_a_gpu_asks_whether_a_run_in_a_relative_output_has_begun(
    tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command gives it: the output folder is `output`, and the run has its default name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_here, "facts_here", lambda config, report: ([], None, False))  # no timed steps
    config = replace(tiny_config, output="output", name="new", workers="1..8", batch=Batch(rows_per_step=16))
    text = plan_here.whole_plan(config, "H100", pytest.fail)
    assert "slots" in text and "H100" in text and not list(tmp_path.iterdir())
    assert "placement.graphs auto: on" in text, "the price table has a machine of eight"


def test_only_a_run_of_many_passes_is_warned_of(tiny_config: Pretrain) -> None:
    config = replace(tiny_config, steps=20_000)
    assert passes_warning(config, 400.0) == (
        "warning: 20,000 steps are about 400 passes over this text, and BERT's pretraining had 40: give more text, or "
        "--steps 2000"
    )
    warned = passes_warning(replace(config, epochs=400.0), 400.0)
    assert warned is not None and warned.endswith("give more text, or --epochs 40")
    assert passes_warning(config, 40.0) is None and passes_warning(config, None) is None

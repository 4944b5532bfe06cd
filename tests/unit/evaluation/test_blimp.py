"""BLiMP during a run: the same accuracy in every world, logged at each evaluation, outside of the training time."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from jobs.pretrain import main
from pipeline.config.jobs import Pretrain
from pipeline.config.training import Checkpoints, Evaluation
from pipeline.corpus.prepared import Corpus
from pipeline.errors import DataError
from pipeline.evaluation.blimp import Blimp, evaluate_pairs, prepare_pairs, read_pairs
from pipeline.evaluation.heldout import unigram_counts
from pipeline.evaluation.minimal_pairs import scoring
from pipeline.evaluation.minimal_pairs.figures import METRICS, blimp_rows
from pipeline.evaluation.minimal_pairs.pairs import score_pairs
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.optim.build import build_optimizer
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.naming import default_name
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import loop
from pipeline.train.checkpoint import State, read_state
from pipeline.train.loop import train
from tests.conftest import of_family, text_of
from tests.ranks import Ranks

CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)
SENTENCES = [sentence for number in range(6) for sentence in text_of(number).split(". ")]
PARADIGMS = [
    Paradigm(
        name=f"paradigm {number}",
        phenomenon="order",
        good=tuple(SENTENCES[number::2]),
        bad=tuple(" ".join(reversed(sentence.split())) for sentence in SENTENCES[number::2]),
    )
    for number in range(2)
]


def counts_of(corpus: Corpus, vocabulary: Vocabulary) -> Callable[[], np.ndarray]:
    return partial(unigram_counts, corpus, CachedTokenizer(vocabulary), vocabulary.size)


@pytest.fixture(scope="module")
def blimp(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> Blimp:
    pairs = prepare_pairs(PARADIGMS, counts_of(tiny_corpus, tiny_vocabulary), tiny_vocabulary, 32)
    assert pairs is not None
    return pairs


def module_of(config: Pretrain, vocabulary: Vocabulary) -> Pretraining:
    generator = torch.Generator().manual_seed(0)
    return build_objective(config.objective, config.sampling, config.model, vocabulary.size, generator)


def measured(config: Pretrain, vocabulary: Vocabulary, blimp: Blimp, rank: int = 0, world: int = 1) -> dict:
    """Return the accuracies and the scores of all sentences."""
    module = module_of(config, vocabulary)
    where = {"rank": rank, "world": world, "device": CPU, "autocast": PLAIN}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "TOKENS", 100)  # many batches
        accuracies = evaluate_pairs(module, blimp, vocabulary, **where, again=True)
        assert module.training, "an evaluation leaves dropout on"
        nats = score_pairs(module.eval(), vocabulary, blimp.pairs, **where)
    return accuracies | {scorer: values.tolist() for scorer, values in nats.items()}


def rank_of_two(rank: int, config: Pretrain, vocabulary: Vocabulary, pairs: Blimp) -> dict:
    return measured(config, vocabulary, pairs, rank, 2)


def test_two_ranks_have_the_accuracies_of_one(
    one_thread: None,
    tiny_config: Pretrain,
    tiny_vocabulary: Vocabulary,
    blimp: Blimp,
    ranks: Callable[[int], Ranks],
) -> None:
    alone = measured(tiny_config, tiny_vocabulary, blimp)
    assert set(alone) == {*METRICS, *METRICS.values()} and 0 < alone[METRICS[scoring.PLL]] < 1
    assert ranks(2).run(rank_of_two, tiny_config, tiny_vocabulary, blimp) == [alone, alone]


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_every_evaluation_of_a_run_logs_the_accuracies_and_changes_nothing(
    training, tiny_config: Pretrain, blimp: Blimp, family: str, tmp_path: Path
) -> None:
    config = of_family(family, tiny_config, training.vocabulary)
    config = replace(config, steps=5, evaluation=Evaluation(every=2, rows=4))
    logged, plain, said = {}, {}, []
    _, expected = training.run(config, tmp_path / "plain", plain)
    module = training.module(config)
    work = replace(training.work(config, tmp_path / "blimp", logged), blimp=blimp, say=said.append)
    state = train(work, iter(training.blocks(config)), module, build_optimizer(config.optimizer, module), State())
    measured = {
        step: {name: logged[step][name] for name in METRICS.values() if name in logged[step]} for step in logged
    }
    assert [step for step in measured if len(measured[step]) == 2] == [0, 2, 4, 5]
    assert [step for step in measured if measured[step]] == [0, 2, 4, 5]
    assert state.blimp == measured[5] == read_state(folder_of(str(tmp_path / "blimp"), 5)).blimp
    assert state.blimp == evaluate_pairs(
        module, blimp, training.vocabulary, rank=0, world=1, device=CPU, autocast=PLAIN, again=True
    )
    assert {step: logged[step]["train/loss"] for step in range(1, 6)} == {
        step: plain[step]["train/loss"] for step in range(1, 6)
    }
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True))
    lines = [line for line in said if line.startswith("minimal pairs after step")]
    percent = f"{measured[2][METRICS[scoring.PLL]]:.1%} by PLL"
    assert len(lines) == 4 and lines[1].startswith(f"minimal pairs after step 2: {percent}, "), lines
    assert f"(unigram baseline {blimp.unigram_accuracy:.1%}), in " in lines[1]


def test_accuracies_belong_to_the_weights_that_were_evaluated(
    training, tiny_config: Pretrain, blimp: Blimp, tmp_path: Path
) -> None:
    config = replace(
        tiny_config, steps=4, evaluation=Evaluation(every=2, rows=4), checkpoint=Checkpoints(every=1, keep=4)
    )
    module = training.module(config)
    work = replace(training.work(config, tmp_path, {}), blimp=blimp)
    train(work, iter(training.blocks(config)), module, build_optimizer(config.optimizer, module), State())
    saved = [bool(read_state(folder_of(str(tmp_path), step)).blimp) for step in (1, 2, 3, 4)]
    assert saved == [False, True, False, True]


def test_training_time_does_not_count_the_evaluation(
    training, tiny_config: Pretrain, blimp: Blimp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, passed = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + passed[0])

    def evaluate(*args: object, **kwargs: object) -> dict[str, float]:
        passed[0] += 10_000
        return dict.fromkeys(METRICS.values(), 0.5)

    monkeypatch.setattr(loop, "evaluate_pairs", evaluate)
    config = replace(tiny_config, steps=4, evaluation=Evaluation(every=1, rows=4))
    module, logged = training.module(config), {}
    work = replace(training.work(config, tmp_path, logged), blimp=blimp)
    state = train(work, iter(training.blocks(config)), module, build_optimizer(config.optimizer, module), State())
    assert passed == [50_000] and state.seconds < 10_000


def test_unigrams_cannot_tell_a_sentence_from_its_reverse(blimp: Blimp) -> None:
    assert blimp.unigram_accuracy == 0.5


def test_unigrams_prefer_the_commoner_word_of_the_training_text(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    words = " ".join(text_of(number) for number in range(30)).lower().replace(".", "").split()
    common, *_, rare = (word for word, _ in Counter(words).most_common() if word in tiny_vocabulary.ids)
    pair = Paradigm(name="one", phenomenon="one", good=(common,) * 3, bad=(rare, common, rare))
    pairs = prepare_pairs([pair], counts_of(tiny_corpus, tiny_vocabulary), tiny_vocabulary, 32)
    assert pairs is not None and pairs.unigram_accuracy == pytest.approx(2.5 / 3)


def test_a_sentence_that_is_too_long_for_the_model_is_named(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    message = r"the model takes 1 to 3: raise model.maximum_positions \(5\), or leave out evaluation.blimp$"
    with pytest.raises(DataError, match=message):
        prepare_pairs(PARADIGMS, counts_of(tiny_corpus, tiny_vocabulary), tiny_vocabulary, 5)
    assert prepare_pairs([], counts_of(tiny_corpus, tiny_vocabulary), tiny_vocabulary, 5) is None


def test_a_folder_without_the_files_is_refused_before_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    arguments = ["--output", str(tmp_path / "output"), "--evaluation.blimp", str(tmp_path / "other")]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"evaluation.blimp {tmp_path}/other lacks 67 of BLiMP's 67 files, such as adjunct_island.jsonl" in line


def test_a_run_keeps_its_name_and_reads_nothing_without_a_folder(tiny_config: Pretrain) -> None:
    measured = replace(tiny_config, evaluation=Evaluation(blimp="/somewhere"))
    assert default_name("bert-tiny", measured) == default_name("bert-tiny", tiny_config)
    assert read_pairs(None, print) == []


def test_the_summary_has_a_row_with_both_scorings_and_the_baseline() -> None:
    summary = {
        "blimp": {"heldout/blimp_pll_accuracy": 0.5612, "heldout/blimp_pll_word_l2r_accuracy": 0.5578},
        "baselines": {"baseline/unigram_blimp_accuracy": 0.5541},
    }
    text = "56.1% by PLL, 55.8% by PLL-word-l2r (unigram baseline 55.4%)"
    assert blimp_rows(summary) == [("minimal pairs, a fifth", text)]
    assert blimp_rows(summary | {"blimp": {}}) == blimp_rows({}) == []

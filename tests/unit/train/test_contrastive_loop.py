"""A contrastive training in the loop: exact resume, metrics, figures, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import AdjacentParagraphs, NextSentence, Sampling, SentenceOrder, TitleParagraph, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive
from pipeline.config.training import Batch, Checkpoints, Evaluation
from pipeline.corpus.prepared import Corpus
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.export.publish import require_blanks
from pipeline.export.trained import load_trained
from pipeline.objectives.contrastive import ContrastiveTexts, contrastive_rows
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train import checkpoint
from pipeline.train.compiling import compiles
from pipeline.train.naming import default_name
from pipeline.train.pictures import learning_curve
from pipeline.train.run_data import stream_settings
from tests.conftest import CPU, Training


@pytest.fixture
def config(tiny_config: Pretrain) -> Pretrain:
    sampling = Sampling(maximum_length=32, pairs=TwoCrops())
    return replace(
        tiny_config, objective=Contrastive(), sampling=sampling, evaluation=Evaluation(every=6, rows=40), steps=12
    )


def test_a_stopped_run_goes_on_exactly_and_learns(training: Training, config: Pretrain, tmp_path: Path) -> None:
    config = replace(config, checkpoint=Checkpoints(every=5))
    whole: dict[int, dict[str, float]] = {}
    state, module = training.run(config, tmp_path / "whole", whole)
    begun: dict[int, dict[str, float]] = {}
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "stopped", begun, stop_at=8)
    continued: dict[int, dict[str, float]] = {}
    again, _ = training.run(config, tmp_path / "stopped", continued)
    assert again.crc32 == state.crc32 and again.cursor == state.cursor and min(continued) == 6
    for step in range(6, 13):
        assert continued[step]["train/contrastive_loss"] == whole[step]["train/contrastive_loss"]
        assert continued[step]["train/gradient_norm"] == whole[step]["train/gradient_norm"]
    assert whole[12]["heldout/contrastive_loss"] < whole[0]["heldout/contrastive_loss"]
    assert 0 < whole[12]["heldout/contrastive_accuracy"] <= 1
    assert state.heldout_loss == whole[12][module.selecting]
    points = {name: {step: metrics[name] for step, metrics in whole.items() if name in metrics} for name in whole[12]}
    panels = learning_curve("contrast", points).axes
    assert panels[0].get_ylabel() == "contrastive loss, nats per text"
    saved = checkpoint.folder_of(str(tmp_path / "whole"), 12)
    trained = load_trained(saved)
    with pytest.raises(CheckpointError, match="step-00000012 has no head for masked tokens"):
        load_trained(saved, fills_blanks=True)
    assert isinstance(trained.module, ContrastiveTexts) and trained.model == config.model


def test_objective_and_pairs_go_together(tiny_config: Pretrain, config: Pretrain) -> None:
    for pairs in (TwoCrops(), AdjacentParagraphs(), TitleParagraph()):
        assert replace(config, sampling=Sampling(maximum_length=32, pairs=pairs)).sampling.row_length == 63
        kind = type(pairs).__name__
        with pytest.raises(ConfigError, match=rf"^sampling.pairs \({kind}\) .* objective is masked: choose"):
            replace(tiny_config, sampling=Sampling(maximum_length=32, pairs=pairs))
    for pairs in (NextSentence(), SentenceOrder()):
        with pytest.raises(
            ConfigError, match=r"^objective \(contrastive\) needs pairs of texts.*NextSentence|SentenceO"
        ):
            replace(config, sampling=Sampling(maximum_length=32, pairs=pairs))
    with pytest.raises(ConfigError, match=r"^evaluation.blimp \(x\) needs a masked-token head"):
        replace(config, evaluation=Evaluation(blimp="x"))
    with pytest.raises(ConfigError, match="^a step of 1 row has no negatives"):
        replace(config, batch=Batch(rows_per_step=1, rows_per_slot=1))
    with pytest.raises(ConfigError, match=r"sampling.pairs.shortest \(0\) must be at least 1"):
        AdjacentParagraphs(shortest=0)


def test_kinds_of_export_that_fill_blanks_are_refused(config: Pretrain, tiny_config: Pretrain) -> None:
    with pytest.raises(ConfigError, match=r"^kinds \(onnx, mlflow\) need a masked-token head"):
        require_blanks(("huggingface", "onnx", "mlflow"), config)
    require_blanks(("huggingface",), config)
    require_blanks(("onnx",), tiny_config)


def test_both_passes_are_never_compiled(config: Pretrain) -> None:
    said: list[str] = []
    assert not compiles(config, 120, CPU, config.phase_at(0), said.append)
    assert said == [
        "torch.compile is off (objective contrastive needs equal dropout in a pass with gradients and in one without)"
    ]


def test_a_corpus_without_titles_is_refused_in_one_line(
    config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    save_vocabulary(tiny_vocabulary, tmp_path, maximum_length=32)
    titles = replace(config, corpus=(tiny_corpus.folder,), sampling=Sampling(maximum_length=32, pairs=TitleParagraph()))
    with pytest.raises(DataError) as refused:
        stream_settings(
            replace(titles, vocabulary=replace(titles.vocabulary, path=str(tmp_path))),
            tiny_corpus,
            None,
            print,
        )
    assert str(refused.value) == (
        "sampling.pairs (TitleParagraph) needs documents with titles, but the first 30 documents of "
        f"{tiny_corpus.folder} have none: choose sampling.pairs:adjacent-paragraphs or sampling.pairs:two-crops"
    )


def test_the_summary_says_what_a_guess_would_find() -> None:
    summary = {
        "heldout_before": {"heldout/contrastive_loss": 6.47, "heldout/contrastive_accuracy": 0.065},
        "heldout_after": {"heldout/contrastive_loss": 5.9634, "heldout/contrastive_accuracy": 0.1044},
        "baselines": {"baseline/chance_contrastive_loss": 7.482, "baseline/chance_contrastive_accuracy": 0.0006},
    }
    assert contrastive_rows(summary) == [
        ("held-out contrastive loss", "5.963 nats (before training 6.470, random guess 7.482)"),
        ("held-out right texts found", "10.4% (before training 6.5%, random guess 0.06%)"),
    ]
    assert contrastive_rows(summary | {"heldout_after": {}}) == []


def test_another_temperature_is_another_run(config: Pretrain) -> None:
    sharper = replace(config, objective=Contrastive(temperature=0.02))
    assert default_name("bert-tiny", sharper) != default_name("bert-tiny", config)

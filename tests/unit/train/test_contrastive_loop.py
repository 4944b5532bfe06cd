"""A contrastive training in the loop: exact resume, metrics, figures, and what is refused."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.data import (
    AdjacentParagraphs,
    GivenPairs,
    NextSentence,
    NgramMasking,
    Sampling,
    SentenceOrder,
    TitleParagraph,
    TwoCrops,
)
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive
from pipeline.config.phases import TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Batch, Checkpoints, Evaluation
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.corpus.stream import windows_for
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.export.publish import require_kinds
from pipeline.export.trained import load_trained
from pipeline.objectives.contrastive import ContrastiveTexts, contrastive_rows
from pipeline.presets.table import PRESETS
from pipeline.saved import checkpoints
from pipeline.saved.naming import default_name, identifying_settings
from pipeline.text.pairs import needed_documents
from pipeline.text.schema import DOCUMENT
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.tracking.curves import learning_curve
from pipeline.train.compiling import compiles
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
    saved = checkpoints.folder_of(str(tmp_path / "whole"), 12)
    trained = load_trained(saved)
    with pytest.raises(CheckpointError, match="step-00000012 has no head for masked tokens"):
        load_trained(saved, fills_blanks=True)
    assert isinstance(trained.module, ContrastiveTexts) and trained.model == config.model


def pairs_from(corpus: Corpus, folder: Path) -> Corpus:
    """Each document's first words and its last ones as a given pair; document n has n mod 4 hard negatives."""
    numbers = count()
    for split in (corpus.train, corpus.heldout):
        (folder / split[0].shard).parent.mkdir()
        with pq.ParquetWriter(folder / split[0].shard, DOCUMENT) as writer:
            for window in split:
                rows = read_window(corpus, window).to_pylist()
                texts = [(row["text"][:40], row["text"][-90:]) for row in rows]
                for row, both in zip(rows, texts, strict=True):
                    others = [text[::-1] for text, _ in texts if text != both[0]][: next(numbers) % 4]
                    row |= {"text": "\n".join([*both, *others]), "lines_are_sentences": True}
                writer.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT))
    return replace(corpus, folder=str(folder), sources={"pairs": {"format": "pairs", "weight": 1}})


def test_given_pairs_go_on_exactly_after_a_stop(training: Training, config: Pretrain, tmp_path: Path) -> None:
    training = replace(training, corpus=pairs_from(training.corpus, tmp_path))
    config = with_pairs(replace(config, checkpoint=Checkpoints(every=5)), GivenPairs(negatives=2))
    whole: dict[int, dict[str, float]] = {}
    state, module = training.run(config, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "stopped", {}, stop_at=8)
    continued: dict[int, dict[str, float]] = {}
    again, _ = training.run(config, tmp_path / "stopped", continued)
    assert isinstance(module, ContrastiveTexts) and module.negatives == 2
    assert again.crc32 == state.crc32 and again.cursor == state.cursor and min(continued) == 6
    for step in range(6, 13):
        assert continued[step]["train/contrastive_loss"] == whole[step]["train/contrastive_loss"]
    assert whole[12]["heldout/contrastive_loss"] < whole[0]["heldout/contrastive_loss"]
    none = training.run(with_pairs(config, GivenPairs(negatives=0)), tmp_path / "none", without := {})[1]
    assert isinstance(none, ContrastiveTexts) and none.negatives == 0
    assert without[1]["train/contrastive_loss"] < whole[1]["train/contrastive_loss"]  # fewer texts to choose from


def test_pairs_with_one_second_text_are_refused(given: Pretrain, tiny_corpus: Corpus, tmp_path: Path) -> None:
    same = with_columns(tiny_corpus, tmp_path, parent=["pairs:0"] * 30, text=["a\nb"] * 30)
    with pytest.raises(DataError) as refused:
        stream_settings(with_pairs(given, GivenPairs()), same, None, print)
    assert str(refused.value) == (
        f"objective contrastive compares different pairs, but the first 30 pairs of {tmp_path} have one second text: "
        "add other pairs"
    )


def test_objective_and_pairs_go_together(tiny_config: Pretrain, config: Pretrain) -> None:
    for pairs in (TwoCrops(), AdjacentParagraphs(), TitleParagraph()):
        assert replace(config, sampling=Sampling(maximum_length=32, pairs=pairs)).sampling.row_length == 63
        kind = type(pairs).__name__
        with pytest.raises(ConfigError, match=rf"^sampling.pairs \({kind}\) .* objective is masked: choose"):
            replace(tiny_config, sampling=Sampling(maximum_length=32, pairs=pairs))
    for pairs in (NextSentence(), SentenceOrder()):
        with pytest.raises(
            ConfigError, match=r"^objective \(contrastive\) needs pairs of texts.*(NextSentence|SentenceO)"
        ):
            replace(config, sampling=Sampling(maximum_length=32, pairs=pairs))
    with pytest.raises(ConfigError, match=r"^evaluation.blimp \(x\) needs a masked-token head"):
        replace(config, evaluation=Evaluation(blimp="x"))
    for setting, batch in (
        ("rows_per_step", Batch(rows_per_step=1, rows_per_slot=1)),
        ("warmup_rows", Batch(rows_per_step=4, rows_per_slot=1, warmup_steps=2, warmup_rows=1)),
    ):
        with pytest.raises(ConfigError, match=rf"^batch.{setting} \(1\) must be at least 2 with objective contrastive"):
            replace(config, batch=batch)
    two = TwoPhases(share=0.5, maximum_length=32, rows_per_step=4, rows_per_slot=4)
    with pytest.raises(ConfigError, match=r"^phases.rows_per_step \(1\) must be at least 2"):
        replace(config, phases=replace(two, rows_per_step=1, rows_per_slot=1))
    with pytest.raises(ConfigError, match=r"^phases.masking_share \(0.1\) has no effect with objective contrastive"):
        replace(config, phases=replace(two, masking_share=0.1))
    with pytest.raises(ConfigError, match=r"sampling.pairs.shortest \(0\) must be at least 1"):
        AdjacentParagraphs(shortest=0)


def test_kinds_of_export_that_fill_blanks_are_refused(config: Pretrain, tiny_config: Pretrain) -> None:
    with pytest.raises(ConfigError, match=r"^kinds \(onnx, mlflow\) need a masked-token head"):
        require_kinds(("huggingface", "onnx", "mlflow"), config)
    require_kinds(("huggingface",), config)
    require_kinds(("onnx",), tiny_config)
    enhanced = PRESETS["deberta-tiny"]
    with pytest.raises(
        ConfigError,
        match=r"^kinds \(onnx\) need a masked-token head that transformers has, and it has no enhanced mask decoder "
        r"\(objective.decoder\): choose huggingface$",
    ):
        require_kinds(("huggingface", "onnx"), enhanced)


def test_both_passes_are_never_compiled(config: Pretrain) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(config, placement=Placement(compile="on"))
    assert str(refused.value) == (
        "placement.compile (on) cannot be used, because objective contrastive needs equal dropout in a pass with "
        "gradients and in one without: set placement.compile to auto or off"
    )
    said: list[str] = []
    assert not compiles(config, 120, CPU, 0, said.append)
    assert said == [
        "torch.compile is off (objective contrastive needs equal dropout in a pass with gradients and in one without)"
    ]


@pytest.fixture
def given(config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Pretrain:
    """The settings with a given vocabulary, so that none is trained."""
    save_vocabulary(tiny_vocabulary, tmp_path / "vocabulary", maximum_length=32)
    vocabulary = replace(config.vocabulary, path=str(tmp_path / "vocabulary"))
    return replace(config, corpus=(tiny_corpus.folder,), vocabulary=vocabulary)


def with_pairs(config: Pretrain, pairs: Any) -> Pretrain:
    return replace(config, sampling=Sampling(maximum_length=32, pairs=pairs))


def with_columns(corpus: Corpus, folder: Path, **columns: list[str]) -> Corpus:
    """The training documents in one window, with other values in some columns."""
    documents = pa.concat_tables([read_window(corpus, window) for window in corpus.train])
    for name, values in columns.items():
        index = documents.schema.get_field_index(name)
        documents = documents.set_column(index, documents.schema.field(name), pa.array(values))
    pq.write_table(documents, folder / "changed.parquet")
    characters = sum(window.characters for window in corpus.train)
    window = Window(shard="changed.parquet", row_group=0, documents=documents.num_rows, characters=characters)
    return replace(corpus, folder=str(folder), train=(window,))


@pytest.mark.parametrize("title", ["", "chapter-03.txt"])
def test_a_corpus_without_titles_is_refused_in_one_line(
    given: Pretrain, tiny_corpus: Corpus, tmp_path: Path, title: str
) -> None:
    """The name of a file is no title, and neither is that of a file of several books."""
    parents = [f"books/chapter-03.txt{f':{number}' * (number > 0)}" for number in range(30)]
    untitled = with_columns(tiny_corpus, tmp_path, title=[title] * 30, parent=parents)
    with pytest.raises(DataError) as refused:
        stream_settings(with_pairs(given, TitleParagraph()), untitled, None, print)
    assert str(refused.value) == (
        "sampling.pairs (TitleParagraph) needs documents with titles, but the first 30 documents of "
        f"{tmp_path} have none: choose sampling.pairs:adjacent-paragraphs or sampling.pairs:two-crops"
    )


def test_a_corpus_of_one_parent_is_refused_and_one_of_few_reported(
    given: Pretrain, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    said: list[str] = []
    with pytest.raises(DataError) as refused:
        stream_settings(given, with_columns(tiny_corpus, tmp_path, parent=["book.txt"] * 30), None, said.append)
    assert str(refused.value) == (
        "objective contrastive compares texts of different books, articles or files, but the first 30 documents of "
        f"{tmp_path} are pieces of one (book.txt): add other text, or give one file per document"
    )
    few = with_columns(tiny_corpus, tmp_path, parent=["book.txt"] * 24 + ["other.txt"] * 6)
    stream_settings(given, few, None, said.append)  # 24 and 6 of 30: 0.8² + 0.2²
    assert said == [
        "note: 68% of the pairs of rows (estimated) have text of the same book, article or file and are not compared: "
        "the corpus has few other texts to choose from"
    ]
    stream_settings(given, tiny_corpus, None, said.append)
    assert len(said) == 1


def test_a_corpus_without_examples_says_what_the_pairs_need(given: Pretrain, tiny_corpus: Corpus) -> None:
    """Each document is one line; a small corpus is counted as a whole, and a large one at its beginning."""
    config = with_pairs(given, AdjacentParagraphs(shortest=9))
    needed = (
        "yields no examples: it needs documents of two paragraphs (lines) with sampling.pairs.shortest (9) tokens "
        "each, or sampling.pairs:two-crops"
    )
    with pytest.raises(DataError) as small:
        stream_settings(config, tiny_corpus, None, print)
    assert str(small.value) == f"the corpus ({tiny_corpus.folder}) {needed}"
    settings = replace(stream_settings(given, tiny_corpus, None, print), sampling=config.sampling)
    with pytest.raises(DataError) as large:
        windows_for(settings, 4)
    assert str(large.value) == f"the corpus {tiny_corpus.folder} {needed}"
    assert [needed_documents(Sampling(pairs=pairs)) for pairs in (TwoCrops(), TitleParagraph(), NextSentence())] == [
        "documents with words",
        "documents with a title and a paragraph (line), or sampling.pairs:two-crops",
        "documents of several sentences",
    ]


def test_the_summary_says_what_a_guess_would_find() -> None:
    summary = {
        "heldout_before": {"heldout/contrastive_loss": 6.47, "heldout/contrastive_accuracy": 0.065},
        "heldout_after": {"heldout/contrastive_loss": 5.9634, "heldout/contrastive_accuracy": 0.1044},
        "baselines": {"baseline/chance_contrastive_loss": 7.482, "baseline/chance_contrastive_accuracy": 0.0006},
    }
    assert contrastive_rows(summary, "") == [
        ("held-out contrastive loss", "5.963 nats (before training 6.470, random guess 7.482)"),
        ("held-out right texts found", "10.4% (before training 6.5%, random guess 0.06%)"),
    ]
    assert [text for _, text in contrastive_rows(summary, " at length 128")] == [
        "5.963 nats (before training 6.470 at length 128, random guess 7.482)",
        "10.4% (before training 6.5% at length 128, random guess 0.06%)",
    ]
    assert contrastive_rows(summary | {"heldout_after": {}}, "") == []


def test_another_temperature_is_another_run(config: Pretrain) -> None:
    sharper = replace(config, objective=Contrastive(temperature=0.02))
    assert default_name("bert-tiny", sharper) != default_name("bert-tiny", config)


def test_other_masks_are_the_same_run(config: Pretrain, tiny_config: Pretrain) -> None:
    """The presets of RoBERTa and ALBERT set masks, which rows of two texts do not have."""
    assert identifying_settings(with_masks(config)) == identifying_settings(config)
    assert identifying_settings(with_masks(tiny_config)) != identifying_settings(tiny_config)


def with_masks(config: Pretrain) -> Pretrain:
    return replace(config, sampling=replace(config.sampling, masking=NgramMasking()))

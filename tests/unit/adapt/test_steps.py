"""Steps that adapt an encoder: their settings, the pairs of texts and the numbers of steps that follow from a text."""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.adapt.pairs import choose_pairs, rows_per_epoch
from pipeline.adapt.plan import plan_lines
from pipeline.adapt.start import AdaptStart, read_start
from pipeline.adapt.steps import choose_trainings, embeddings, pairs_for, steps_of
from pipeline.config.adapt import Adapt
from pipeline.config.data import AdjacentParagraphs, FullSentences, Sampling, TitleParagraph, TwoCrops
from pipeline.config.objective import Contrastive, Masked
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus, Window
from pipeline.errors import ConfigError
from pipeline.predict.inputs import list_inputs
from pipeline.reporting import no_op
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.pooling import exported_length
from pipeline.text.schema import DOCUMENT
from tests.conftest import text_of

ALONE = Placement(threads=1)
Write = Callable[..., Corpus]


@pytest.fixture
def write_corpus(tmp_path: Path) -> Write:
    """A function that writes a corpus of one window, of titles, texts and perhaps parents."""

    def write(titles: Sequence[str], texts: Sequence[str], parents: Sequence[str] = ()) -> Corpus:
        rows = [
            {
                "id": f"{n}#0",
                "parent": parents[n] if parents else f"{n}",
                "title": title,
                "text": text,
                "source": "s",
                "language": "en",
            }
            | {"lines_are_sentences": False}
            for n, (title, text) in enumerate(zip(titles, texts, strict=True))
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT), tmp_path / "one.parquet")
        window = Window(shard="one.parquet", row_group=0, documents=len(rows), characters=sum(map(len, texts)))
        return Corpus(
            folder=str(tmp_path), fingerprint="f", train=(window,), heldout=(), counts={}, dropped={}, sources={}
        )

    return write


@pytest.fixture
def start(tiny_run: Path) -> AdaptStart:
    return read_start(str(tiny_run))


def test_an_epoch_decides_the_steps_within_bounds() -> None:
    assert [steps_of(None, epoch) for epoch in (0.0, 99.4, 100.6, 321.0, 501.0, 1e9)] == [100, 100, 101, 321, 500, 500]
    assert [steps_of(asked, 321.0) for asked in (0, 7, 9_000)] == [0, 7, 9_000]


def test_titles_decide_the_pairs_then_paragraphs(write_corpus: Write, start: AdaptStart) -> None:
    four, paragraphs = [text_of(n) for n in range(4)], [f"{text_of(n)}\n{text_of(n + 9)}" for n in range(4)]
    chosen = choose_pairs(write_corpus(["Kar", "Lost", "", ""], four), start.vocabulary, 32, 64)
    assert chosen.pairs == TitleParagraph()
    assert chosen.reason == "2 of 4 training documents have a title; the 2 rows of a step have 2 different titles"
    chosen = choose_pairs(write_corpus(["Kar", "", "", ""], paragraphs), start.vocabulary, 32, 64)
    assert chosen.pairs == AdjacentParagraphs()
    assert chosen.reason == "1 of 4 training documents have a title; they have 4 pairs of paragraphs"
    assert choose_pairs(write_corpus([""] * 4, four), start.vocabulary, 32, 64).pairs == TwoCrops()


def test_rows_of_an_epoch_are_counted_in_two_windows_and_extended(write_corpus: Write, start: AdaptStart) -> None:
    corpus, sampling = write_corpus(["Kar", "Lost", "Mir"], ["mir nest"] * 3), Sampling(pairs=TitleParagraph())
    assert rows_per_epoch(corpus, start.vocabulary, sampling) == 3
    more = replace(corpus, train=corpus.train * 5)  # the rows of two windows, times five halves
    assert rows_per_epoch(more, start.vocabulary, sampling) == 15


def test_a_few_titles_of_many_pieces_are_no_pairs(write_corpus: Write, start: AdaptStart) -> None:
    """Two books in six pieces: the titles of a step of 8 rows are 2, although every piece has one."""
    paragraphs = [f"{text_of(n)}\n{text_of(n + 9)}" for n in range(6)]
    books = write_corpus(["Kar", "Lost"] * 3, paragraphs, ["a", "b"] * 3)
    chosen = choose_pairs(books, start.vocabulary, 32, 8)
    assert chosen.pairs == AdjacentParagraphs()
    assert chosen.reason == (
        "2 of 2 training documents have a title, but the 8 rows of a step have 2 different titles, too few to "
        "tell texts apart; they have 6 pairs of paragraphs"
    )
    assert chosen.compared == 3  # of the six rows, those of the other book
    assert choose_pairs(books, start.vocabulary, 32, 4).pairs == TitleParagraph()  # 2 of 4


def test_one_document_leaves_contrastive_training_out(write_corpus: Write, start: AdaptStart, tiny_run: Path) -> None:
    paragraphs = [f"{text_of(n)}\n{text_of(n + 9)}" for n in range(6)]
    book = write_corpus(["Kar"] * 6, paragraphs, ["a"] * 6)
    config = Adapt(
        corpus=(book.folder,), init=str(tiny_run), output="/out", batch=Batch(rows_per_step=8, rows_per_slot=8)
    )
    pairs = pairs_for(config, start, book)
    chosen = choose_trainings(config, start, book, pairs)
    assert pairs.compared == 0 and [run.name for run in chosen.runs] == ["masked"]
    assert chosen.notes[-1] == (
        "contrastive: left out, because texts are compared with those of other documents, and all rows of a step are "
        "of one document: give more documents"
    )
    with pytest.raises(ConfigError, match=r"^contrastive_steps \(9\) cannot train, because texts are compared with "):
        choose_trainings(replace(config, contrastive_steps=9), start, book, pairs)
    with pytest.raises(ConfigError, match=r"^nothing is left to train on .*, and masked_steps is 0: give more doc"):
        choose_trainings(replace(config, masked_steps=0), start, book, pairs)


def test_the_adapted_encoder_reads_what_the_encoder_read(
    write_corpus: Write, start: AdaptStart, tiny_run: Path
) -> None:
    corpus = write_corpus([""] * 4, [text_of(n) for n in range(4)])
    config = Adapt(corpus=(corpus.folder,), init=str(tiny_run), output=corpus.folder, maximum_length=16)
    runs = choose_trainings(config, replace(start, reads=24), corpus, pairs_for(config, start, corpus)).runs
    assert [run.sampling.maximum_length for run in runs] == [16, 16]
    assert [exported_length(run) for run in runs] == [24, 24]


def test_another_pooling_than_the_encoders_is_reported(write_corpus: Write, start: AdaptStart, tiny_run: Path) -> None:
    corpus = write_corpus([""] * 4, [text_of(n) for n in range(4)])
    config = Adapt(corpus=(corpus.folder,), init=str(tiny_run), output=corpus.folder, masked_steps=0)
    line, pairs = (
        "contrastive: mean pooling, instead of the encoder's attention pooling",
        pairs_for(config, start, corpus),
    )
    assert choose_trainings(config, replace(start, own_pooling="attention"), corpus, pairs).notes[-1] == line
    assert line not in choose_trainings(config, start, corpus, pairs).notes


def test_both_runs_follow_each_other(write_corpus: Write, start: AdaptStart, tiny_run: Path) -> None:
    corpus = write_corpus(["Kar", "Lost", "Mir", "Nest"], [text_of(n) for n in range(4)])
    config = Adapt(
        corpus=("/text",), init=str(tiny_run), output="/out", batch=Batch(rows_per_step=2, rows_per_slot=2), seed=3,
        masked_steps=50,
    )  # fmt: skip
    pairs = pairs_for(config, start, corpus)
    chosen = choose_trainings(config, start, corpus, pairs)
    masked, contrastive = chosen.runs
    assert chosen.steps == {"masked_steps": 50, "contrastive_steps": 100}
    assert chosen.notes[1] == (
        "contrastive: 100 steps (50.0 epochs), with a title and a paragraph of its document (4 of 4 "
        "training documents have a title; the 2 rows of a step have 2 different titles); a text is compared "
        "with those of 1 other rows of its step, of other documents"
    )
    assert (masked.name, masked.init, masked.steps) == ("masked", folder_of(str(tiny_run), 3), 50)
    sampling = Sampling(maximum_length=32, exported_length=32, pairs=FullSentences())
    assert (masked.objective, masked.sampling) == (Masked(), sampling)
    assert masked.corpus == contrastive.corpus == (corpus.folder,) and masked.seed == contrastive.seed == 3
    assert masked.checkpoint.every == 5  # so that a kill loses a tenth of a run at most
    assert masked.checkpoint.keep == contrastive.checkpoint.keep == 1
    assert contrastive.init == "/out/runs/masked/export" and contrastive.objective == Contrastive(pooling="mean")
    assert contrastive.sampling == replace(sampling, pairs=TitleParagraph())
    assert masked.optimizer.learning_rate == contrastive.optimizer.learning_rate == 2e-4
    assert chosen.export == "/out/runs/contrastive/export"

    (only,) = choose_trainings(replace(config, contrastive_steps=0), start, corpus, pairs).runs
    assert only == masked
    prompted = replace(start, prompts=("q: ", None))
    assert [run.sampling.prompts for run in choose_trainings(config, prompted, corpus, pairs).runs] == [
        ("", ""),
        ("q: ", ""),
    ]
    assert start.prompts == (None, None)
    without_head, unset = replace(start, fills_blanks=False), replace(config, masked_steps=None)
    chosen = choose_trainings(unset, without_head, corpus, pairs)
    (only,) = chosen.runs
    assert only.init == masked.init and only.optimizer.learning_rate == 2e-5
    assert chosen.steps == {"masked_steps": 0, "contrastive_steps": 100}
    assert chosen.notes[0] == "masked: left out, because the encoder has no head for masked words"
    assert len(choose_trainings(config, without_head, corpus, pairs).runs) == 2  # the user asks for 50 steps


def test_vectors_are_those_of_all_documents(tiny_corpus: Corpus, start: AdaptStart, tiny_run: Path) -> None:
    config = Adapt(corpus=(tiny_corpus.folder,), init=str(tiny_run), output="/out")
    settings = embeddings(config, start, "/out/runs/contrastive/export")
    files = {
        encoder: [file.location for file in list_inputs(each.input, "auto", tags=False)]
        for encoder, each in settings.items()
    }
    both = [f"{tiny_corpus.folder}/heldout/00000.parquet", f"{tiny_corpus.folder}/train/00000.parquet"]
    assert files == {"untouched": both, "adapted": both}
    assert {each.output: each.checkpoint for each in settings.values()} == {
        "/out/vectors/before": start.location,
        "/out/vectors/after": "/out/runs/contrastive/export",
    }


def test_the_folder_of_the_corpus_may_have_the_characters_of_a_pattern(
    tiny_corpus: Corpus, start: AdaptStart, tiny_run: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_corpus.folder, tmp_path / "notes [2025]?*")
    config = Adapt(corpus=(str(folder),), init=str(tiny_run), output="/out")
    for each in embeddings(config, start, "/out/runs/contrastive/export").values():
        found = [file.location for file in list_inputs(each.input, "auto", tags=False)]
        assert found == [f"{folder}/heldout/00000.parquet", f"{folder}/train/00000.parquet"]


def test_the_plan_has_every_step_and_writes_nothing(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("kar lost kand. " * 1_000)
    output = tmp_path / "out"
    config = Adapt(
        corpus=(str(tmp_path / "a.txt"),), init=str(tiny_run), output=str(output), masked_steps=7, placement=ALONE
    )
    lines = plan_lines(config, no_op)
    assert lines[0] == f"plan of {output}; nothing is written" and not output.exists()
    assert lines[1:6:2] == [
        "  corpus       1 file of 0.0 MB; to do",
        "  masked       7 steps of 64 rows at length 32, 0.0 M tokens; to do",
        "  contrastive  at most 500 steps of 64 pairs of texts at length 32, 1.2 M tokens; to do",
    ]
    assert all(re.search(r" MB, about [0-9.,]+ (s|minutes|hours)$", line) for line in lines[4:12:2])
    # 15,000 characters are 3,750 tokens, in chunks of 24
    assert lines[9] == "  after        about 156 vectors of 32 numbers; to do"
    # bert's 2 layers of width 32: three numbers of 4 bytes per parameter
    assert lines[12].startswith("a checkpoint of 0.0 M parameters has about ") and "a run keeps its last" in lines[12]
    assert lines[13].startswith("in all about ") and "measured now" in lines[13]
    assert lines[-1] == (
        "the numbers of steps and the pairs of texts are known when the corpus is prepared; pairs of texts need "
        "several documents, and a file of plain text is one document"
    )


def test_a_plan_without_memory_for_a_step_has_no_times(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("kar lost kand. " * 1_000)
    config = Adapt(corpus=(str(tmp_path / "a.txt"),), init=str(tiny_run), output=str(tmp_path / "out"), placement=ALONE)
    monkeypatch.setattr("pipeline.train.few_steps.free_memory", lambda device: 0)
    lines = plan_lines(config, no_op)
    assert all(line.endswith(" MB") for line in lines[2:12:2])
    assert lines[13].startswith("times are not measured: its weights, gradients and optimizer with one row need ")


def test_the_plan_says_what_is_done(tiny_corpus: Corpus, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/masked").symlink_to(tiny_run)
    (tmp_path / "runs/contrastive/checkpoints/step-00000012").mkdir(parents=True)
    (tmp_path / "vectors/before/parts").mkdir(parents=True)
    corpus = Path(tiny_corpus.folder)
    config = Adapt(
        corpus=(str(corpus),), init=str(tiny_run), output=str(tmp_path), batch=Batch(rows_per_step=32), placement=ALONE
    )
    states = [line.rpartition("; ")[2] for line in plan_lines(config, no_op)[1:10:2]]
    assert states == ["done", "done", "12 steps done", "begun", "to do"]
    (tmp_path / "runs/contrastive/summary.json").symlink_to(tiny_run / "summary.json")
    for name in ("before", "after"):
        (tmp_path / "vectors" / name).mkdir(exist_ok=True)
        (tmp_path / "vectors" / name / "manifest.json").touch()
    assert "only the comparison is left" in plan_lines(config, no_op)

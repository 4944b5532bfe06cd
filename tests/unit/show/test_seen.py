import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.text import Text

from pipeline.config.data import Sampling, SentenceOrder, SpanMasking
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain
from pipeline.config.training import Batch, Checkpoints
from pipeline.corpus.order import Cursor
from pipeline.errors import ConfigError, DataError
from pipeline.show.rows import about, coloured, label
from pipeline.show.seen import documents_of, position_before, seen, stream_of
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import run
from pipeline.train.checkpoint import write_position


@pytest.fixture
def trained(training, tiny_config: Pretrain, tmp_path: Path) -> tuple[str, Pretrain]:
    """A run of 12 steps with a checkpoint every 5, and its corpus with a manifest."""
    config = replace(tiny_config, checkpoint=Checkpoints(every=5, keep=1))
    training.run(config, tmp_path, {})
    run.write_run(str(tmp_path), run.identity(config, training.corpus, training.vocabulary), "0a1b", training.corpus.folder)
    windows = {split: [list(asdict(window).values()) for window in getattr(training.corpus, split)] for split in ("train", "heldout")}
    about = {"fingerprint": training.corpus.fingerprint, "counts": {}, "dropped": {}, "sources": {}}
    Path(training.corpus.folder, "manifest.json").write_text(json.dumps(windows | about))
    return str(tmp_path), config


def test_rows_are_those_that_were_trained_on(training, trained: tuple[str, Pretrain]) -> None:
    folder, config = trained
    blocks = training.blocks(config)
    assert position_before(folder, 3) == (0, None) and position_before(folder, 7)[0] == 5 and position_before(folder, 10)[0] == 10
    for step, row in ((1, 0), (3, 7), (5, 15), (6, 0), (8, 3), (11, 0), (12, 15)):
        block, place = divmod((step - 1) * config.batch.rows_per_step + row, config.batch.rows_per_slot)
        assert seen(folder, step, row).row == blocks[block].slice(place, 1).to_pylist()[0]


def test_its_documents_hold_its_words(trained: tuple[str, Pretrain]) -> None:
    found = seen(trained[0], 2, 3)
    answers = dict(zip(found.row["masked_positions"], found.row["masked_labels"]))
    ids = [answers.get(place, id) for place, id in enumerate(found.row["ids"])]
    first = found.documents.slice(found.row["document_a"], 1)["text"][0].as_py().lower().replace(" ", "").replace("\n", "")
    words = "".join(found.vocabulary.tokens[id].removeprefix("##") for id in ids[1 : found.row["first_length"] - 1])
    assert words.replace("[UNK]", "") in first
    assert found.documents.equals(documents_of(stream_of(trained[0], run.read_run(trained[0])), found.row["epoch"], found.row["window"]))


def test_what_is_not_there_is_refused(trained: tuple[str, Pretrain], tmp_path: Path) -> None:
    folder, _ = trained
    with pytest.raises(ConfigError, match=r"step \(0\) must be 1 or more, and row \(16\) from 0 to 15 \(batch.rows_per_step 16\)"):
        seen(folder, 0, 16)
    with pytest.raises(ConfigError, match="is not the folder of a run: run.json is missing"):
        seen(str(tmp_path / "none"), 1, 0)
    recorded = run.read_run(folder)
    recorded["identity"]["corpus.fingerprint"] = "other"
    with pytest.raises(DataError, match="is no more the corpus of this run: fingerprint 0123456789ab, the run's is other"):
        stream_of(folder, recorded)


def test_positions_are_written_and_the_newest_before_a_step_is_found(tmp_path: Path) -> None:
    cursors = {step: Cursor(epoch=0, window=step, row=1, rows_in_window=9) for step in (20, 100)}
    for step, cursor in cursors.items():
        write_position(str(tmp_path), step, cursor)
    assert [position_before(str(tmp_path), step) for step in (19, 20, 99, 100, 500)] == [(0, None), *((at, cursors[at]) for at in (20, 20, 100, 100))]


def test_a_masked_row_shows_its_answers(tiny_vocabulary: Vocabulary) -> None:
    vocabulary = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "sat", "dog"), lowercase=True)
    row = {"ids": [2, 5, 4, 7, 3, 8, 7, 3], "masked_positions": [2, 5, 6], "masked_labels": [6, 5, 7], "not_next": True, "swapped": None}
    text = coloured(row, vocabulary)
    assert text.plain == " [CLS] cat[s: MASK] sat [SEP] [cat: dog] [sat] [SEP]"
    assert {text.plain[span.start : span.end].strip(): str(span.style) for span in text.spans} == {
        "[CLS]": "dim", "[SEP]": "dim", "[s: MASK]": "bold red", "[cat: dog]": "bold yellow", "[sat]": "bold blue",
    }
    assert isinstance(text, Text) and label(row) == "B is from another document (NotNext)"
    assert label({"not_next": None, "swapped": False}) == "A stands before B (in order)" and label({"not_next": None, "swapped": None}) == ""


def test_the_documents_of_a_row_are_named(trained: tuple[str, Pretrain]) -> None:
    found = seen(trained[0], 1, 0)
    lines = list(about(found.row, found.documents))
    ids = found.documents["id"].to_pylist()
    assert ids[found.row["document_a"]] in lines[0] and lines[0].endswith("from made up") and "tokens" in lines[-1]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(maximum_length=64, pairs=SentenceOrder(short_probability=0.3), masking=SpanMasking(longest=5))])
def test_settings_come_back_from_their_flat_names(sampling: Sampling) -> None:
    config = Pretrain(sampling=sampling, batch=Batch(rows_per_step=64, rows_per_slot=16), corpus=("a", "b"))
    assert unflatten(Pretrain, flatten(config)) == config
    assert unflatten(Sampling, flatten(config), "sampling.") == sampling

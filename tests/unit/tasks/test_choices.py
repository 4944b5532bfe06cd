"""Multiple choice: SWAG's files, own tables, rows of pairs, and scores by hand."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline import batch
from pipeline.batch import collate_labelled
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.errors import ConfigError, DataError
from pipeline.finetune.contents import contradictions_in_words, texts_of
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks import choices
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.choice_tables import ChoiceColumns, choice_cells, choice_task, read_choices
from pipeline.tasks.known import read_items, takes_pairs, wanted_tasks
from pipeline.tasks.own import read_own
from pipeline.tasks.schema import CHOICES, FIRST_LENGTHS, PASSAGE_LENGTHS
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

SWAG = TASKS["swag"]
CUTTING = Truncation(maximum_length=12, stride=4)
VOCABULARY = Vocabulary(tokens=(*SPECIALS, *"abcdefghijklmnopqrstuvwxyz"), lowercase=True)
COLUMNS = (
    "",
    "video-id",
    "fold-ind",
    "startphrase",
    "sent1",
    "sent2",
    "gold-source",
    *(f"ending{n}" for n in range(4)),
)
ROWS = """
lsmdc01-1|gold|A cook lifts a lid.|The cook|smells the soup.|drives to sea.|melts.|sings a bus.|0
lsmdc01-1|gen|A girl, out of breath, stops.|She|sells a hill.|bends down, panting.|eats a door.|rains.|1
anetv_a|gold|A man waxes a board.|He|waxes the moon.|is a fork.|turns the board over.|sleeps up.|2
anetv_a|gold|Two boys hold a rope.|One of them|hums a chair.|is the rope.|drinks a town.|pulls it tight.|3
anetv_b|gen|A dog sits by a gate.|It|barks at a cart.|counts coins.|paints.|folds a map.|0
anetv_b|gold|Rain beats on a roof.|A boy|is the roof.|looks out of the window.|swims in tea.|bakes rain.|1
anetv_c|gold|A woman ties her shoe.|She|ties the sun.|is a shoe.|walks on.|flies a stair.|2
anetv_c|gen|The choir stands up.|It|boils.|is a spoon.|sows a song.|begins to sing.|3
lsmdc02-4|gold|A guard opens a cell.|He|leads a man out.|mows a cloud.|is an egg.|rings a lake.|0
lsmdc02-4|gold|Someone reads a letter.|Her eyes|bark.|fill with tears.|drive away.|cook a horse.|1
lsmdc02-5|gen|A pilot checks a dial.|The plane|writes home.|weeps.|climbs slowly.|eats hay.|2
lsmdc02-5|gold|He strikes a match.|He|drinks it all.|is the match.|sails a match.|lights a candle.|3
anetv_d|gold|A child stacks bricks.|The tower|falls over.|reads a book.|orders lunch.|coughs.|0
anetv_d|gen|A team rows a boat.|The crowd|is an oar.|cheers.|rows a crowd.|peels a race.|1
anetv_e|gold|A baker kneads dough.|He|kneads a river.|hides in bread.|puts it in a pan.|swims.|2
anetv_e|gold|The train slows down.|A man|is a rail.|eats a mile.|melts a seat.|gets off.|3
lsmdc03-7|gold|She dials a number.|A phone|rings in a hall.|bites her.|is a number.|drowns.|0
lsmdc03-7|gen|A nurse enters a room.|She|is a room.|draws the curtains.|enters soup.|saddles a bed.|1
anetv_f|gold|A boy rides a horse.|They|ride a boy.|sew a field.|jump over a fence.|are late bread.|2
anetv_f|gold|The sun sets.|The workers|set a sun.|hatch.|plant the sky.|go home.|3
"""


def lines(*, labelled: bool = True) -> str:
    """A file with the columns of the official ones: an index without a name, and both sentences once more as one."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*COLUMNS, "label"][: None if labelled else -1])
    for number, row in enumerate(ROWS.strip().split("\n")):
        video, source, first, second, *endings, label = row.split("|")
        fields = (number, video, number + 1, f"{first} {second}", first, second, source, *endings, label)
        writer.writerow(fields[: None if labelled else -1])
    return file.getvalue()


def swag(folder: Path) -> Path:
    """SWAG's files; the test file has no labels."""
    data = folder / "swagaf" / "data"
    data.mkdir(parents=True)
    for file in ("train.csv", "val.csv"):
        (data / file).write_text(lines())
    (data / "test.csv").write_text(lines(labelled=False))
    return data


def test_swag_has_a_context_and_four_endings_after_a_shared_beginning(tmp_path: Path) -> None:
    swag(tmp_path)
    for split in ("train", "dev"):
        items, notes = read_items(SWAG, str(tmp_path), split)
        rows = items.to_pylist()
        assert items.schema == CHOICES and len(rows) == 20 and notes == ()
        assert rows[0] == {
            "id": "2",
            "first": "A cook lifts a lid.",
            "second": None,
            "label": "0",
            "choices": [
                f"The cook {ending}" for ending in ("smells the soup.", "drives to sea.", "melts.", "sings a bus.")
            ],
        }
        assert (
            rows[1]["first"] == "A girl, out of breath, stops." and rows[1]["choices"][1] == "She bends down, panting."
        )
        assert [row["label"] for row in rows] == list("0123") * 5
    unlabelled = read_items(SWAG, str(tmp_path), "test")[0]
    assert set(unlabelled["label"].to_pylist()) == {None} and unlabelled.drop_columns("label") == items.drop_columns(
        "label"
    )
    assert wanted_tasks(("swag",), str(tmp_path)) == [SWAG] and not takes_pairs(SWAG)
    assert choices.prepare(SWAG, unlabelled, VOCABULARY, CUTTING).rows["label"].null_count == 20


def rows(*of: tuple[str, list[str], str | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": str(number), "first": first, "second": None, "label": label, "choices": texts}
            for number, (first, texts, label) in enumerate(of)
        ],
        schema=CHOICES,
    )


ITEMS = rows(
    ("a b", ["c", "d e f"], "1"), ("a", ["b", "c", "d"], "0"), ("a b", ["x", "y"], "0"), ("b", ["x", "y"], "0")
)


def test_a_row_has_the_pairs_of_its_context_with_each_choice() -> None:
    prepared = choices.prepare(SWAG, ITEMS, VOCABULARY, CUTTING)
    cls, sep, a, b, c, d, e, f = (VOCABULARY.ids[token] for token in ("[CLS]", "[SEP]", *"abcdef"))
    assert prepared.rows["ids"].to_pylist()[0] == [cls, a, b, sep, c, sep, cls, a, b, sep, d, e, f, sep]
    assert prepared.rows[PASSAGE_LENGTHS].to_pylist() == [[6, 8], [5, 5, 5], [6, 6], [5, 5]]
    assert prepared.rows[FIRST_LENGTHS].to_pylist() == [[4, 4], [3, 3, 3], [4, 4], [3, 3]]
    assert prepared.rows["row"].to_pylist() == [0, 1, 2, 3] and prepared.rows["label"].to_pylist() == [1, 0, 0, 0]
    assert prepared.cut == 0 and prepared.notes == ()
    assert batch.FIRST_LENGTHS == FIRST_LENGTHS
    found = collate_labelled(prepared.rows.slice(0, 2))
    assert found.offsets.tolist() == [0, 6, 14, 19, 24, 29] and found.passages.tolist() == [2, 3]
    assert found.segments_T.tolist() == [*[0] * 4, 1, 1, *[0] * 4, *[1] * 4, *[0, 0, 0, 1, 1] * 3]
    assert found.labels.tolist() == [1, 0]


def test_each_pair_is_cut_on_its_own_and_keeps_its_segments() -> None:
    items = rows(("a " * 9, ["b " * 9, "c"], "0"))
    prepared = choices.prepare(SWAG, items, VOCABULARY, CUTTING)
    # 12 tokens with three special ones: of two long texts, the second keeps the odd token of 9.
    assert prepared.rows[PASSAGE_LENGTHS].to_pylist() == [[12, 12]]
    assert prepared.rows[FIRST_LENGTHS].to_pylist() == [[6, 10]]
    assert collate_labelled(prepared.rows).segments_T.tolist() == [0] * 6 + [1] * 6 + [0] * 10 + [1] * 2
    assert prepared.notes == ("2 of 2 choices cut with their context at 12 tokens",) and prepared.cut == 2
    with pytest.raises(
        ConfigError, match=r"^cutting.passages \(True\) would give a choice several scores: leave cutting"
    ):
        choices.prepare(SWAG, items, VOCABULARY, Truncation(maximum_length=12, stride=4, passages=True))


def test_accuracy_by_hand(tmp_path: Path) -> None:
    items = read_choices(
        str(swag(tmp_path) / "val.csv"),
        ChoiceColumns(first="sent1", start="sent2", choices=tuple(f"ending{n}" for n in range(4))),
        BadRows(),
    )
    prepared = choices.prepare(SWAG, items.slice(0, 5), VOCABULARY, CUTTING)
    # The right numbers are 0, 1, 2, 3, 0. The third row is wrong; in the last, the first of two equal scores counts.
    logits = [[1, 0, 0, 0], [-3, -1, -2, -9], [1, 0, 0.5, 0], [0, 0, 0, 4], [2, 2, 1, 1]]
    scores = choices.answers(SWAG, prepared, [np.array(row, np.float32) for row in logits], CUTTING)
    assert choices.score(SWAG, prepared, scores, {}) == {"accuracy": 0.8}
    assert choices.baseline(SWAG, prepared, prepared) == {"accuracy": 0.4} and not choices.collapsed(
        SWAG, prepared, scores
    )
    same = [np.array([0, 1, 0, 0])] * 5
    assert choices.collapsed(SWAG, prepared, same) and choices.score(SWAG, prepared, same, {}) == {"accuracy": 0.2}
    assert choices.collapsed(SWAG, prepared, [np.array([0, np.nan, 0, 0]), *scores[1:]])
    assert choices.tune(SWAG, prepared, scores) == choices.details(SWAG, prepared, scores, {}) == {}


def test_scores_end_with_the_choices_of_a_row() -> None:
    prepared = choices.prepare(SWAG, ITEMS, VOCABULARY, CUTTING)
    logits = [np.array([0, 1, -np.inf]), np.array([3, 1, 2]), np.array([0, 1]), np.array([5, 1, -np.inf])]
    scores = choices.answers(SWAG, prepared, logits, CUTTING)
    assert [row.tolist() for row in scores] == [[0, 1], [3, 1, 2], [0, 1], [5, 1]]
    assert choices.score(SWAG, prepared, scores, {}) == {"accuracy": 0.75} and not choices.collapsed(
        SWAG, prepared, scores
    )
    assert choices.probabilities(np.array([0.0, np.log(3)])) == pytest.approx([0.25, 0.75])


def test_other_choices_make_another_text() -> None:
    assert texts_of(ITEMS)[0] == ("a b", "", "c", "d e f") and len(set(texts_of(ITEMS))) == 4
    assert contradictions_in_words(SWAG, ITEMS) == ""
    both = rows(("a", ["b", "c"], "0"), ("a", ["b", "c"], "1"))
    assert contradictions_in_words(SWAG, both) == "2 of 2 have a text that also occurs with another label"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x,y,a,b,2", "label 2 must be less than 2, the number of choices; the first one has number 0"),
        ("x,y,a,b,b", "label 'b' is not the number of a choice; the first choice has number 0"),
        ("x,y,a,b,-1", "label '-1' is not the number of a choice; the first choice has number 0"),
        ("x,y,a, ,0", "column two is ' '; it must be a text"),
        (",y,a,b,0", "column text is ''; it must be a text"),
        ("x,,a,b,0", "column start is ''; it must be a text"),
        ("x,y,a,b,", "column label has no label (''); give the row a label"),
    ],
)
def test_bad_rows_are_named_or_skipped(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(f"text,start,one,two,label\n{line}\nx,y,a,b,1\n")
    columns = ChoiceColumns(first="text", start="start", choices=("one", "two"))
    with pytest.raises(DataError) as refused:
        read_choices(str(file), columns, BadRows())
    assert str(refused.value) == f"{file}:2: {words}"
    bad = BadRows(skip=True)
    assert read_choices(str(file), columns, bad)["choices"].to_pylist() == [["y a", "y b"]] and len(bad.words()) == 1


def test_own_tables_name_a_column_for_each_choice_or_one_of_lists(tmp_path: Path) -> None:
    listed = [{"text": "x", "choices": ["a", "b"], "label": 1}, {"text": "y", "choices": ["a", "b", "c"], "label": 2}]
    (tmp_path / "listed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in listed))
    (tmp_path / "columns.csv").write_text("context,one,two,right\nx,a,b,1\n")
    file = str(tmp_path / "listed.jsonl")
    task, items, lost = read_own(Finetune(checkpoint="c", train=file, kind="choices"), file, file)
    assert task == choice_task("listed") and items["train"] == items["dev"] and lost == {"train": (), "dev": ()}
    assert items["train"]["choices"].to_pylist() == [["a", "b"], ["a", "b", "c"]]
    assert items["train"]["label"].to_pylist() == ["1", "2"]
    file = str(tmp_path / "columns.csv")
    named = Finetune(checkpoint="c", train=file, text="context", choices=("one", "two"), label=("right",))
    task, items, _ = read_own(named, file, None)
    assert task.kind == "choices" and items["train"]["choices"].to_pylist() == [["a", "b"]]
    with pytest.raises(DataError, match=r"columns.csv has no column text: its columns are context, one, two, right"):
        read_own(Finetune(checkpoint="c", train=file, choices=("one", "two")), file, None)
    (tmp_path / "one.jsonl").write_text('{"text": "x", "choices": ["a"], "label": 0}\n')
    file = str(tmp_path / "one.jsonl")
    with pytest.raises(
        DataError, match=r"one.jsonl:1: column choices is \"\['a'\]\"; it must be a list of at least two ch"
    ):
        read_own(Finetune(checkpoint="c", train=file, kind="choices"), file, None)
    with pytest.raises(
        ConfigError, match=r"^choices \(a\) are for kind choices, but kind is tags: leave kind or choices out$"
    ):
        Finetune(checkpoint="c", train=file, choices=("a",), kind="tags")


def test_cells_for_prediction_may_be_empty() -> None:
    table = pa.table({"one": ["a", None, " "], "two": ["b", "c", "d"], "lists": [["a", "b"], None, ["", "c"]]})
    assert choice_cells(table, ("one", "two")) == choice_cells(table, ("lists",)) == [["a", "b"], [], []]
    with pytest.raises(
        DataError, match=r"^input has no column three: its columns are one, two, lists; name the columns of"
    ):
        choice_cells(table, ("one", "three"))
    with pytest.raises(DataError, match=r"^column n holds '5' among its choices, which is not a text$"):
        choice_cells(pa.table({"n": [5], "two": ["b"]}), ("n", "two"))

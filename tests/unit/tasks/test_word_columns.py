"""Files with words and tags in columns, as people have them: comments, counted words, CoNLL-U, spellings of tags."""

from pathlib import Path

import pytest

from pipeline.config.finetune import Finetune
from pipeline.config.measurements import KnownSplit, LabelledFile
from pipeline.errors import ConfigError, DataError
from pipeline.predict.inputs import RowFile, digest_of, form_of, inputs_of, parts_of
from pipeline.predict.score import of_file, task_of
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.recognise import kind_of
from pipeline.tables.word_columns import read_words
from pipeline.tasks.own import read_own
from pipeline.tasks.tagging import Sentence, read_sentences
from pipeline.tasks.task import Task

MULTICONER = "# id 0-46ea domain=train\nto _ _ O\noslo _ _ B-LOC\n\n\n# id 1-99 domain=dev\n# _ _ O\ntom _ _ B-PER\n"
GERMEVAL = (
    "#\thttp://de/0 [2009]\n1\tIn\tO\tO\n2\tUlm\tB-LOC\tO\n\n#\thttp://de/1 [2009]\n1\tAnna\tB-PER\tO\n2\tda\tO\tO\n"
)
UNIVERSAL = (
    "# sent_id = s0\n# text = It isn't.\n1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n"
    "2-3\tisn't\t_\t_\t_\t_\t_\t_\t_\t_\n2\tis\tbe\tAUX\tVBZ\t_\t0\troot\t_\t_\n3\tn't\tnot\tPART\tRB\t_\t2\tadv\t_\t_\n"
    "3.1\tso\tso\tADV\tRB\t_\t_\t_\t_\t_\n\n#text = in spite\n1\tin spite\tin\tADP\tIN\t_\t0\troot\t_\t_\n"
)


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def predicted(location: str, words: int | None = None) -> list[tuple[str, ...]]:
    """Words of each sentence as the job predict reads them."""
    file = RowFile(location=location, form=form_of(location, "auto", True), bytes=1, stamp="", words=words)
    assert file.form == "words"
    return [tuple(row["words"]) for part in parts_of(file, 9) for row in part.to_pylist()]


@pytest.mark.parametrize(
    ("name", "text", "label", "words", "tags", "metric", "notes"),
    [
        ("a.conll", MULTICONER, (), ["to oslo", "# tom"], ["O B-LOC", "O B-PER"], "f1", ("without 2 comments",)),
        (
            "a.tsv", GERMEVAL, ("2",), ["In Ulm", "Anna da"], ["O B-LOC", "B-PER O"], "f1",
            ("column 0 counts the words: words from column 1, tags from column 2", "without 2 comments"),
        ),
        (
            "a.conllu", UNIVERSAL, (), ["It is n't", "in spite"], ["PRON AUX PART", "ADP"], "accuracy",
            ("CoNLL-U: words from column 1, tags from column 3",
             "without 3 comments and 2 lines of word ranges or empty nodes"),
        ),
    ],
)  # fmt: skip
def test_training_scores_and_answers_read_the_same_words(
    name: str, text: str, label: tuple[str, ...], words: list[str], tags: list[str], metric: str,
    notes: tuple[str, ...], tmp_path: Path,
) -> None:  # fmt: skip
    location = written(tmp_path / name, text)
    task, items, lost = read_own(Finetune(checkpoint="c", train=location, label=label), location, location)
    scored = of_file(LabelledFile(input=location, label=label), task)
    assert [" ".join(item.words) for item in items["train"]] == words
    assert [" ".join(item.tags) for item in items["train"]] == tags
    assert items["train"] == items["dev"] == scored.items and lost == {"train": notes, "dev": notes}
    assert predicted(location) == [item.words for item in items["train"]] and task.metrics[0] == metric
    assert kind_of(written(tmp_path / "unnamed", text)) == kind_of(location) == "conll"


def test_a_word_of_a_hash_is_no_comment_where_it_has_tags(tmp_path: Path) -> None:
    location = written(
        tmp_path / "a.conll", "# O\n1 O\n\n# begin now\n#tag B-X\n# O\n\n#begin document (x); part 0\n\n"
    )
    assert [item.words for item in read_sentences(location)] == [("#", "1"), ("#tag", "#")]
    assert read_words(written(tmp_path / "b.conll", "#\nbreaks\n\n# id\n#\n")) == [("#", "breaks"), ("#",)]
    assert read_words(written(tmp_path / "c.conll", "#\n")) == [("#",)]


@pytest.mark.parametrize("text", ["3 O\n4 B-X\n\n1 O\n7 O\n", "1 O\n\n1 B-X\n", "1-2 B-X\n3.1 O\n\n1 O\n"])
def test_numbers_that_do_not_count_are_words(text: str, tmp_path: Path) -> None:
    location = written(tmp_path / "a.conll", text)
    first = tuple(line.split()[0] for line in text.split("\n\n")[0].split("\n") if line)
    assert read_sentences(location)[0].words == predicted(location)[0] == first


def test_words_are_counted_from_0_or_through_the_file_or_with_gaps(tmp_path: Path) -> None:
    for numbers in ((0, 1, 2, 0, 1), (1, 2, 3, 4, 5)):
        rows = [f"{number}\tw{index}\tO" for index, number in enumerate(numbers)]
        location = written(tmp_path / "a.conll", "\n".join([*rows[:3], "", *rows[3:]]))
        assert [item.words for item in read_sentences(location)] == [("w0", "w1", "w2"), ("w3", "w4")]
    rows = [f"{number}\tw{number}\tO" for number in range(1, 31) if number != 9]
    assert read_words(written(tmp_path / "a.conll", "\n".join(rows)))[0][8] == "w10"


def test_a_table_that_counts_its_rows_stays_a_table(tmp_path: Path) -> None:
    rows = "".join(f"{number}\tx\ty\n" for number in range(1, 30))
    assert kind_of(written(tmp_path / "a.tsv", f"id\ttext\tlabel\n\n{rows}")) == "table"


def test_the_column_of_words_can_be_named(tmp_path: Path) -> None:
    location = written(tmp_path / "a.conll", "x1 Ulm B-LOC\nx1 ist O\n\nx2 da O\n")
    wanted = [("Ulm", "ist"), ("da",)]
    config = Finetune(checkpoint="c", train=location, words=1)
    task, items, _ = read_own(config, location, location)
    scored = of_file(LabelledFile(input=location, words=1), task)
    assert [item.words for item in items["train"]] == [item.words for item in scored.items] == wanted
    assert items["dev"] == items["train"] and predicted(location, 1) == wanted
    (file,) = inputs_of(location, "out.csv", "auto", tags=True, words=1)
    assert file.words == 1 and digest_of([file]) == digest_of(inputs_of(location, "out.csv", "auto", tags=True))
    counted = written(tmp_path / "b.conll", "1 a O\n2 b B-X\n")
    assert read_sentences(counted, words=0)[0].words == ("1", "2")


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    location = written(tmp_path / "a.conll", "1 a O\n2 b B-X\n")
    with pytest.raises(DataError, match=r"line 1 has 3 columns, and the words should be in column 3: choose one of 0 "
                       r"to 2 with --words$"):  # fmt: skip
        read_sentences(location, words=3)
    with pytest.raises(DataError, match=r"a.conll, line 1 has 3 columns, and the words should be in column 3"):
        read_words(location, words=3)
    with pytest.raises(DataError, match=r"tags should be in column 1: choose one of 0, 2, column 1 has the words$"):
        read_sentences(location, tags=1)
    with pytest.raises(DataError, match=r"should be in column -1: choose one of 0, column 1 has the words$"):
        read_sentences(written(tmp_path / "b.conll", "1 O\n2 B-X\n"))
    table = written(tmp_path / "a.csv", "text,label\nx,1\ny,0\n")
    message = r"words \(1\) is the number of a column in CoNLL's files, but .*a.csv has the for"
    with pytest.raises(ConfigError, match=f"{message}mat table: name the column of the words with --text$"):
        read_own(Finetune(checkpoint="c", train=table, words=1), table, None)
    with pytest.raises(ConfigError, match=f"{message}m table: name the column of the words with --text, or give --for"):
        inputs_of(table, "out.csv", "auto", tags=True, words=1)


@pytest.mark.parametrize(
    ("tags", "read", "note"),
    [
        ("O B_PER I_PER", "O B-PER I-PER", "tags such as 'B_PER' are read as B-PER"),
        ("o b-per i-per", "O B-per I-per", "tags such as 'b-per' are read as B-per"),
        ("O i_a-b i_a-b", "O B-a-b I-a-b", "tags such as 'i_a-b' are read as I-a-b"),
        ("O B-School_name-x I-School_name-x", "O B-School_name-x I-School_name-x", None),
        ("O B_PER PER", None, "words are scored, not entities, because tags such as 'PER' are not O, B-TYPE or I-TYPE"),
        ("O B I", None, "words are scored, not entities, because tags such as 'B' are not O, B-TYPE or I-TYPE"),
        ("O BUG INK", None, "words are scored, not entities, because tags such as 'BUG' are not O, B-TYPE or I-TYPE"),
        ("NN S_1 VB", None, "words are scored, not entities, because tags such as 'NN' are not O, B-TYPE or I-TYPE"),
        ("NN IN VB", None, None),
    ],
)
def test_tags_in_another_spelling_are_read_or_told(
    tags: str, read: str | None, note: str | None, tmp_path: Path
) -> None:
    location = written(tmp_path / "a.conll", "".join(f"w {tag}\n" for tag in tags.split()))
    task, items, lost = read_own(Finetune(checkpoint="c", train=location), location, None)
    assert items["train"][0].tags == tuple((read or tags).split()) and lost["train"] == ((note,) if note else ())
    assert task.metrics[0] == ("f1" if read else "accuracy")


def test_files_with_and_without_tags_of_no_entity_fit_together(tmp_path: Path) -> None:
    mixed = written(tmp_path / "a.conll", "a O\nb B_PER\n\nc PER\n")
    entities = written(tmp_path / "b.conll", "a O\nb B_PER\n")
    task, items, _ = read_own(Finetune(checkpoint="c", train=mixed), mixed, entities)
    assert task.labels == ("B_PER", "O", "PER") and items["dev"][0].tags == ("O", "B_PER")
    task, items, lost = read_own(Finetune(checkpoint="c", train=entities, on_bad_rows="skip"), entities, mixed)
    assert task.labels == ("O", "B-PER", "I-PER") and [item.tags for item in items["dev"]] == [("O", "B-PER")]
    assert lost["dev"][-1].startswith("1 rows left out (unknown-tag")


def test_a_published_model_with_other_spelling_is_scored_by_entities(tmp_path: Path) -> None:
    location = written(tmp_path / "a.conll", "Ulm B_LOC\nist O\n")
    task = Task(name="m", kind="tags", labels=("B_LOC", "I_LOC", "O"), metrics=("accuracy",))
    scored = of_file(LabelledFile(input=location), task)
    assert scored.task.labels == ("B-LOC", "I-LOC", "O")
    assert scored.items == [Sentence(words=("Ulm", "ist"), tags=("B-LOC", "O"))]
    task = Task(name="m", kind="tags", labels=("B_LOC", "E_LOC", "O", "S_LOC", "S_PER"), metrics=("accuracy",))
    scored = of_file(LabelledFile(input=written(tmp_path / "c.conll", "Ulm B-LOC\nTom B-PER\n")), task)
    assert scored.task.labels == ("B-LOC", "E-LOC", "O", "S-LOC", "S-PER")
    assert scored.items[0].tags == ("B-LOC", "S-PER"), "a type that was learnt in entities of one word only"
    split = KnownSplit(task="conll2003", data=str(tmp_path), split="dev", on_bad_rows="stop")
    assert task_of(split, task).labels == scored.task.labels
    plain = Task(name="m", kind="tags", labels=("NN", "O"), metrics=("accuracy",))
    assert of_file(LabelledFile(input=written(tmp_path / "b.conll", "a NN\n")), plain).task == plain


def test_a_column_of_one_tag_names_the_option(tmp_path: Path) -> None:
    location = written(tmp_path / "a.conll", "1 Ulm B-LOC O\n2 ist O O\n")
    with pytest.raises(DataError, match=r"all words have the tag O; .* is another column that of the tags\? Name it "
                       r"with --label$"):  # fmt: skip
        read_own(Finetune(checkpoint="c", train=location), location, None)


def test_a_broken_first_sentence_is_left_out(tmp_path: Path) -> None:
    bad = BadRows(skip=True)
    found = read_sentences(written(tmp_path / "a.conll", "a O\nb\n\nc O\n"), bad=bad)
    assert [item.words for item in found] == [("c",)] and bad.words()[0].startswith("1 rows left out")

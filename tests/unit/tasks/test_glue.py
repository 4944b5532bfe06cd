"""The official files of GLUE with their quirks."""

import gzip
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.tables.separated import tab_separated
from pipeline.tasks.glue import TASKS, glue_mean
from pipeline.tasks.metrics.label_metrics import METRICS
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.tables import left_out, read_split

MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)

FIELD = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=5)


def read(folder: Path, task: str, split: str, content: str | bytes) -> pa.Table:
    where = folder / TASKS[task].split(split).file
    where.parent.mkdir(exist_ok=True)
    where.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_split(TASKS[task], str(folder), split)


def rows(texts: pa.Table) -> list[tuple]:
    assert texts.schema.equals(TEXTS)
    return [tuple(row.values()) for row in texts.to_pylist()]


def test_tasks_are_the_ten_of_glue_with_metrics_that_there_are():
    assert list(TASKS) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
    for task in TASKS.values():
        assert set(task.metrics) <= set(METRICS) and task.metrics
        assert len(task.labels) == (0 if task.kind == "regression" else 3 if task.name in ("mnli", "ax") else 2)


def test_cola_has_no_header_but_in_its_test_split(tmp_path: Path):
    assert rows(read(tmp_path, "cola", "train", 'gj04\t1\t\tHe said "no.\nbc01\t0\t*\tHim left.\n')) == [
        ("0", 'He said "no.', None, "1"),
        ("1", "Him left.", None, "0"),
    ]
    assert rows(read(tmp_path, "cola", "test", "index\tsentence\n7\tBill whistled.\n")) == [
        ("7", "Bill whistled.", None, None)
    ]


def test_quotes_are_characters_and_a_byte_order_mark_is_none(tmp_path: Path):
    content = (
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t11\t12\t" He left .\tHe " left " .\r\n0\t13\t14\tA '
        "\u2028 b\tC\r\n"
    )
    assert rows(read(tmp_path, "mrpc", "train", content)) == [
        ("0", '" He left .', 'He " left " .', "1"),
        ("1", "A \u2028 b", "C", "0"),
    ]


def test_sst2_test_rows_have_ids_and_training_rows_numbers(tmp_path: Path):
    assert rows(read(tmp_path, "sst2", "train", "sentence\tlabel\ngood \t1\nbad \t0\n")) == [
        ("0", "good ", None, "1"),
        ("1", "bad ", None, "0"),
    ]
    assert rows(read(tmp_path, "sst2", "test", "index\tsentence\n0\tfine\n5\tawful\n")) == [
        ("0", "fine", None, None),
        ("5", "awful", None, None),
    ]


def test_stsb_has_ten_columns_and_nine_in_its_test_split(tmp_path: Path):
    names = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    assert rows(read(tmp_path, "stsb", "dev", f"{names}\tscore\n3\tg\tf\ty\t0\tn\tn\tA.\tB.\t3.800")) == [
        ("3", "A.", "B.", "3.800")
    ]
    assert rows(read(tmp_path, "stsb", "test", f"{names}\n3\tg\tf\ty\t0\tn\tn\tA.\tB.\n")) == [("3", "A.", "B.", None)]


def test_mnli_has_two_of_dev_and_test_and_its_labels_in_the_hub_s_order(tmp_path: Path):
    more = "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"
    line = "0\t1\t2\tg\t(\t)\t(\t)\tP\tH"
    assert rows(read(tmp_path, "mnli", "dev", f"{MNLI}{more}\n{line}\tneutral\tb\tc\td\te\tcontradiction\n")) == [
        ("0", "P", "H", "contradiction")
    ]
    assert rows(read(tmp_path, "mnli", "dev-mismatched", f"{MNLI}{more}\n{line}\ta\tb\tc\td\te\tneutral\n")) == [
        ("0", "P", "H", "neutral")
    ]
    assert rows(read(tmp_path, "mnli", "test-mismatched", f"{MNLI}\n{line}\n")) == [("0", "P", "H", None)]
    assert {path.name for path in (tmp_path / "MNLI").iterdir()} == {
        "dev_matched.tsv",
        "dev_mismatched.tsv",
        "test_mismatched.tsv",
    }
    assert [TASKS["mnli"].number(label) for label in ("entailment", "neutral", "contradiction")] == [0.0, 1.0, 2.0]
    assert [TASKS["rte"].number(label) for label in ("entailment", "not_entailment")] == [0.0, 1.0]


def test_qqp_s_broken_lines_are_left_out_and_named(tmp_path: Path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    texts = read(
        tmp_path,
        "qqp",
        "train",
        f"{header}9\t1\t2\tWhy?\tHow?\t0\n10\t3\t4\tIs it\nso?\tYes?\t1\n\n11\t5\t6\t "
        "\tWho?\t1\n12\t7\t8\tWho?\tHim?\t1\n",
    )
    assert rows(texts) == [("9", "Why?", "How?", "0"), ("12", "Who?", "Him?", "1")]
    assert left_out(texts) == [
        "QQP/train.tsv:3: 4 columns instead of 6",
        "QQP/train.tsv:4: 3 columns instead of 6",
        "QQP/train.tsv:6: column question1 is empty",
    ]
    assert left_out(read(tmp_path, "sst2", "dev", "sentence\tlabel\ngood\t1\n")) == []


def test_every_row_of_qqp_s_test_split_stays(tmp_path: Path):
    assert rows(read(tmp_path, "qqp", "test", "id\tquestion1\tquestion2\n0\tWhy?\t\n")) == [("0", "Why?", "", None)]
    with pytest.raises(DataError, match=r"QQP/test.tsv:2: 2 columns instead of 3$"):
        read(tmp_path, "qqp", "test", "id\tquestion1\tquestion2\n0\tWhy?\n")


@pytest.mark.parametrize(
    ("task", "split", "content", "words"),
    [
        (
            "sst2",
            "dev",
            "sentence\tlabel\ngood\t1\ngood\t2\n",
            r"SST-2/dev.tsv:3: label '2' is not among the labels of sst2 \(0, 1\)",
        ),
        ("sst2", "dev", "text\tlabel\ngood\t1\n", r"SST-2/dev.tsv has no column sentence: its columns are text, label"),
        ("sst2", "dev", "sentence\tlabel\n \t1\n", r"SST-2/dev.tsv:2: column sentence is empty"),
        ("sst2", "dev", "sentence\tlabel\ngood\n", r"SST-2/dev.tsv:2: 1 columns instead of 2"),
        ("sst2", "dev", "sentence\tlabel\n", r"SST-2/dev.tsv has no rows"),
        ("sst2", "dev", "", r"SST-2/dev.tsv has no column sentence: its columns are none"),
        (
            "sst2",
            "dev",
            b"sentence\tlabel\ngood\t1\nbad \xe9\t0\n",
            r"SST-2/dev.tsv:3: byte 0xe9 is not UTF-8; save the file as UTF-8",
        ),
        (
            "sst2",
            "train",
            "sentence\tlabel\ngood\t1\nfine\t1\n",
            r"SST-2/train.tsv: all 2 rows have the label '1'; training needs at least two different labels",
        ),
        (
            "rte",
            "dev",
            "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tmaybe\n",
            r"RTE/dev.tsv:2: label 'maybe' is not among the labels of rte \(entailment, not_entailment\)",
        ),
        ("stsb", "dev", "sentence1\tsentence2\tscore\nA\tB\tnan\n", r"STS-B/dev.tsv:2: label 'nan' is not a number"),
        ("stsb", "dev", "sentence1\tsentence2\tscore\nA\tB\tfive\n", r"STS-B/dev.tsv:2: label 'five' is not a number"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(
    tmp_path: Path, task: str, split: str, content: str | bytes, words: str
):
    with pytest.raises(DataError, match=f"{words}$") as error:
        read(tmp_path, task, split, content)
    assert "\n" not in str(error.value)


def test_a_split_may_be_gzip(tmp_path: Path):
    plain = read(tmp_path, "wnli", "dev", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t0\n")
    file = next(tmp_path.rglob("dev.tsv"))
    (file.parent / "dev.tsv.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    file.unlink()
    assert read_split(TASKS["wnli"], str(tmp_path), "dev").equals(plain)


def test_a_split_that_is_not_there_names_those_that_are(tmp_path: Path):
    read(tmp_path, "wnli", "dev", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t0\n")
    with pytest.raises(DataError, match=r"WNLI/train.tsv \(split train of wnli\) does not exist; .*/WNLI has dev.tsv$"):
        read_split(TASKS["wnli"], str(tmp_path), "train")
    with pytest.raises(DataError, match=rf"RTE/train.tsv \(split train of rte\) does not exist; {tmp_path} has WNLI$"):
        read_split(TASKS["rte"], str(tmp_path), "train")
    with pytest.raises(DataError, match=r"task ax has no split train; it has test$"):
        read_split(TASKS["ax"], str(tmp_path), "train")


@given(st.lists(st.lists(FIELD, min_size=2, max_size=3), max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_fields_come_back_as_they_were(lines: list[list[str]], end: str):
    content = "".join("\t".join(fields) + end for fields in lines)
    assert list(tab_separated(re.split("(?<=\n)", content))) == list(enumerate(lines, 1))


def test_the_benchmark_s_mean_is_of_tasks_and_without_ax():
    scores = {
        "cola": {"matthews": 0.5},
        "mrpc": {"accuracy": 0.8, "f1": 0.9},
        "mnli": {"accuracy": 0.7, "accuracy-mismatched": 0.74},
        "ax": {"matthews": 0.1},
    }
    assert glue_mean(scores) == pytest.approx((0.5 + 0.85 + 0.72) / 3)

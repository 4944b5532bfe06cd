"""Files of pairs of texts with a class, for the loss softmax."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.similarity import Similarity
from pipeline.errors import ConfigError, DataError
from pipeline.tasks import relations
from pipeline.tasks.metrics.lengths import with_lengths
from pipeline.tasks.own import read_own, with_pair_columns
from pipeline.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "man", "dog"), lowercase=True)
CUTTING = Truncation(maximum_length=8)
HEADERS = {
    "index\tsentence1\tsentence2\tgold_label": "0\tA man.\tA dog.\t",
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment": "0\tA man.\tA dog.\t4.5\t",
    "premise\thypothesis\tlabel": "A man.\tA dog.\t",
    "text\tpair\tlabel": "A man.\tA dog.\t",
}


def read(path: Path, header: str, *labels: str, **settings):
    path.write_text("\n".join([header, *(HEADERS[header] + label for label in labels)]) + "\n")
    softmax = Similarity(loss="softmax")
    config = Finetune(checkpoint="m", train=str(path), kind="similarity", similarity=softmax, **settings)
    return read_own(with_pair_columns(config), str(path), str(path))


@pytest.mark.parametrize("header", HEADERS)
def test_columns_are_found(tmp_path: Path, header: str) -> None:
    task, items, _ = read(tmp_path / "a.tsv", header, "neutral", "entailment", "neutral")
    assert (task.kind, task.labels, task.metrics) == ("relations", ("entailment", "neutral"), ("accuracy",))
    assert items["dev"].select(["first", "second", "label"]).to_pylist()[1] == {
        "first": "A man.",
        "second": "A dog.",
        "label": "entailment",
    }


def test_classes_of_whole_and_truncated_vectors_are_scored(tmp_path: Path) -> None:
    task, items, _ = read(tmp_path / "a.tsv", "text\tpair\tlabel", "no", "yes", "yes")
    task = with_lengths(task, [2])
    prepared = relations.prepare(task, items["train"], VOCABULARY, CUTTING)
    logits = [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 1.0]] * 2), np.array([[0.0, 1.0], [2.0, 1.0]])]
    found = relations.answers(task, prepared, logits, CUTTING)
    assert found.tolist() == [[1, 0], [1, 1], [1, 0]] and relations.collapsed(task, prepared, found)
    scores = {"accuracy": pytest.approx(2 / 3), "accuracy@2": pytest.approx(2 / 3)}
    assert relations.score(task, prepared, found, {}) == scores
    assert relations.baseline(task, prepared, prepared) == {"accuracy": pytest.approx(2 / 3)}
    assert not relations.collapsed(task, prepared, found[:, ::-1])


@pytest.mark.parametrize(
    ("header", "missing"), [("index\tsentence1\tsentence2\tgold_label", "-"), ("premise\thypothesis\tlabel", "-1")]
)
def test_pairs_without_agreement_have_no_label(tmp_path: Path, header: str, missing: str) -> None:
    labels, name = ("0", missing, "1", "0"), header.split("\t")[-1]
    task, items, lost = read(tmp_path / "a.tsv", header, *labels, on_bad_rows="skip")
    assert (task.labels, items["train"]["id"].to_pylist()) == (("0", "1"), ["2", "4", "5"])
    words = f"{tmp_path}/a.tsv:3: column {name} has no label ('{missing}'); give the row a label"
    assert lost["dev"] == lost["train"] == (f"1 rows left out (no-label, the first: {words})",)
    with pytest.raises(DataError) as refused:
        read(tmp_path / "a.tsv", header, *labels)
    assert str(refused.value) == f"{words}; --on-bad-rows skip leaves such rows out"
    with pytest.raises(DataError, match=r"a\.tsv has no row that can be used: 2 rows left out"):
        read(tmp_path / "a.tsv", header, missing, missing, on_bad_rows="skip")


def test_other_files_may_have_any_class(tmp_path: Path) -> None:
    for header in ("text\tpair\tlabel", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"):
        assert read(tmp_path / "a.tsv", header, "-", "-1", "1")[0].labels == tuple(sorted(["-", "-1", "1"]))


def test_scores_and_missing_labels_are_refused(tmp_path: Path) -> None:
    header = "text\tpair\tlabel"
    with pytest.raises(ConfigError) as refused:
        read(tmp_path / "a.tsv", header, "1", "4.5")
    assert str(refused.value) == (
        f"similarity.loss (softmax) is for pairs of texts with a class, but the labels of {tmp_path}/a.tsv are numbers "
        "such as 4.5: set similarity.loss cosent, or name the column of the class with --label"
    )
    with pytest.raises(DataError, match=r"has no column gold: its columns are text, pair, label; name yours with"):
        read(tmp_path / "a.tsv", header, "1", "2", label=("gold",))
    with pytest.raises(DataError, match=r"a\.tsv:3: column label has no label"):
        read(tmp_path / "a.tsv", header, "1", "")
    with pytest.raises(DataError, match="training needs at least two different labels"):
        read(tmp_path / "a.tsv", header, "1", "1")

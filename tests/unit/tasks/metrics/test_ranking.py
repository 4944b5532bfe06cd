"""Rankings of candidate answers, worked out by hand, and the data sets that are scored by them."""

from collections import Counter
from dataclasses import replace
from math import log2
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from pipeline.config.finetune import Truncation
from pipeline.config.measurements import KnownSplit
from pipeline.predict.score import of_task
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import read_items
from pipeline.tasks.metrics.ranking import mean_over_queries
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import QUERY
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

WIKIQA = """QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel
Q1\thow deep is lake murra\tD1\tLake Murra\tD1-0\tLake Murra lies in the "high" hills.\t0
Q1\thow deep is lake murra\tD1\tLake Murra\tD1-1\tIt is 90 metres deep.\t1
Q1\thow deep is lake murra\tD1\tLake Murra\tD1-2\tBoats are not allowed.\t0
Q2\twho wrote the salt road\tD2\tThe Salt Road\tD2-0\tThe Salt Road is a novel of 1931.\t0
Q2\twho wrote the salt road\tD2\tThe Salt Road\tD2-1\tIts author, Ada Venn, was a nurse.\t1
Q2\twho wrote the salt road\tD2\tThe Salt Road\tD2-2\tVenn wrote it in one winter.\t1
Q2\twho wrote the salt road\tD2\tThe Salt Road\tD2-3\tA film was made in 1950.\t0
Q5\twhat is a tarn\tD5\tTarn\tD5-0\tTarns are found in many countries.\t0
Q5\twhat is a tarn\tD5\tTarn\tD5-1\tMany have no name.\t0
Q6\twhere is port sand\tD6\tPort Sand\tD6-0\tPort Sand is a town on the south coast.\t1
Q7\twhen did the ember line open\tD7\tEmber Line\tD7-0\tThe Ember Line is a railway.\t0
Q7\twhen did the ember line open\tD7\tEmber Line\tD7-1\tIt opened in 1884.\t1
Q7\twhen did the ember line open\tD7\tEmber Line\tD7-2\tIt has 14 stations.\t0
Q7\twhen did the ember line open\tD7\tEmber Line\tD7-3\tTwo of them are closed.\t0
Q8\thow many keys has a carillon\tD8\tCarillon\tD8-0\tA carillon is played with a keyboard.\t0
Q8\thow many keys has a carillon\tD8\tCarillon\tD8-1\tMost have 23 bells or more.\t0
Q9\twho painted the blue mill\tD9\tThe Blue Mill\tD9-0\tThe Blue Mill was painted by Jon Hale.\t1
Q9\twho painted the blue mill\tD9\tThe Blue Mill\tD9-1\tIt hangs in a school.\t0
Q9\twho painted the blue mill\tD9\tThe Blue Mill\tD9-2\tThe mill burnt down in 1902.\t0
"""
TREC = """<QApairs id='1.1'>
<question>
Who\tfounded\tthe\tbakery\t?
WP\tVBD\tDT\tNN\t.
SUB\tROOT\tNMOD\tOBJ\tP
2\t0\t4\t2\t2
-\t-\t-\tORG_DESC-B\t-
</question>
<positive>
Ines\tRoth\tfounded\tit\t.
NNP\tNNP\tVBD\tPRP\t.
NMOD\tSUB\tROOT\tOBJ\tP
2\t3\t0\t3\t3
PERSON-B\tPERSON-I\t-\t-\t-
Ines\tRoth\t
1\t2\t
</positive>
<negative>
Bread\t&\tsalt\tare\tsold\t<\t9\t.
NN\tCC\tNN\tVBP\tVBN\tJJR\tCD\t.
NMOD\tP\tSUB\tROOT\tVC\tVMOD\tPMOD\tP
3\t3\t4\t0\t4\t5\t6\t4
-\t-\t-\t-\t-\t-\tCARDINAL-B\t-
</negative>
</QApairs>
<QApairs id='1.2'>
<question>
Where\tis\tit\t?
WRB\tVBZ\tPRP\t.
</question>
<negative>
It\tis\told\t.
PRP\tVBZ\tJJ\t.
</negative>
</QApairs>
<QApairs id='2.1'>
<question>
When\tdid\tthe\tmill\tburn\t?
WRB\tVBD\tDT\tNN\tVB\t.
</question>
<positive>
The\tmill\tburnt\tin\t1902\t.
DT\tNN\tVBD\tIN\tCD\t.
</positive>
<negative>
Its\towner\twas\tnever\tfound\t.
PRP$\tNN\tVBD\tRB\tVBN\t.
</negative>
<positive>
In\t1902\ta\tfire\ttook\tthe\tmill\t.
IN\tCD\tDT\tNN\tVBD\tDT\tNN\t.
</positive>
<negative>
A\tnew\tmill\tstands\tthere\tnow\t.
DT\tJJ\tNN\tVBZ\tRB\tRB\t.
</negative>
</QApairs>
<QApairs id='2.2'>
<question>
Who\tsold\tthe\tmill\t?
WP\tVBD\tDT\tNN\t.
</question>
<negative>
Mills\tneed\twind\tor\twater\t.
NNS\tVBP\tNN\tCC\tNN\t.
</negative>
<positive>
Jon\tHale\tsold\tit\tto\tthe\ttown\t.
NNP\tNNP\tVBD\tPRP\tTO\tDT\tNN\t.
</positive>
<negative>
The\ttown\tpaid\tin\tgrain\t.
DT\tNN\tVBD\tIN\tNN\t.
</negative>
</QApairs>
<QApairs id='3.1'>
<question>
What\tdo\tcarillons\tring\t?
WP\tVBP\tNNS\tVB\t.
</question>
<positive>
Carillons\tring\tbells\tof\tbronze\t.
NNS\tVBP\tNNS\tIN\tNN\t.
</positive>
<positive>
They\tring\tlarge\tbells\t.
PRP\tVBP\tJJ\tNNS\t.
</positive>
</QApairs>
<QApairs id='3.2'>
<question>
How\tdeep\tis\tLake\tMurra\t?
WRB\tJJ\tVBZ\tNNP\tNNP\t.
</question>
<negative>
Boats\tare\tnot\tallowed\t.
NNS\tVBP\tRB\tVBN\t.
</negative>
<negative>
Lake\tMurra\tlies\tin\tthe\thills\t.
NNP\tNNP\tVBZ\tIN\tDT\tNNS\t.
</negative>
<positive>
The\tlake\tis\t90\tmetres\tdeep\t.
DT\tNN\tVBZ\tCD\tNNS\tRB\t.
</positive>
<negative>
Its\twater\tis\tcold\t.
PRP$\tNN\tVBZ\tJJ\t.
</negative>
</QApairs>
<QApairs id='4.1'>
<question>
Who\topened\tthe\tEmber\tLine\t?
WP\tVBD\tDT\tNNP\tNNP\t.
</question>
<positive>
Mayor\tVenn\topened\tthe\tline\t.
NNP\tNNP\tVBD\tDT\tNN\t.
</positive>
<negative>
The\tline\thas\t14\tstations\t.
DT\tNN\tVBZ\tCD\tNNS\t.
</negative>
<positive>
It\twas\topened\tby\tthe\tmayor\t.
PRP\tVBD\tVBN\tIN\tDT\tNN\t.
</positive>
<negative>
Two\tstations\tare\tclosed\t.
CD\tNNS\tVBP\tVBN\t.
</negative>
</QApairs>
"""


SECOND, THIRD, FOURTH = 1 / log2(3), 1 / log2(4), 1 / log2(5)
"""Gains of a relevant candidate at these ranks; at the first it is 1."""
BEST_OF_TWO = 1 + SECOND
"""Gain of the best ranking of two relevant candidates."""


def candidates(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and numbers of queries, of lines "query label score"."""
    rows = [line.split() for line in text.strip().splitlines()]
    queries = np.unique([row[0] for row in rows], return_inverse=True)[1]
    return np.array([float(row[2]) for row in rows]), np.array([float(row[1]) for row in rows]), queries


MIXED = candidates("""
b 0 0.9
a 1 0.2
b 1 0.8
a 0 0.7
b 0 0.1
a 1 0.5
b 1 0.6
none 0 0.9
none 0 0.3
all 1 0.1
""")


def test_all_three_by_hand() -> None:
    # a: 0 1 1, so (1/2 + 2/3) / 2 and 1/2. b: 0 1 1 0, the same. The queries none and all do not count.
    assert mean_over_queries("map", *MIXED) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert mean_over_queries("mrr", *MIXED) == pytest.approx(1 / 2)
    gain, best = 1 / log2(3) + 1 / log2(4), 1 / log2(2) + 1 / log2(3)
    assert mean_over_queries("ndcg@10", *MIXED) == pytest.approx(gain / best)
    # c: 1 0, both 1. d: 0 0 1, both 1/3.
    two = candidates("c 1 0.9\nc 0 0.8\nd 0 0.9\nd 0 0.8\nd 1 0.7")
    assert mean_over_queries("map", *two) == mean_over_queries("mrr", *two) == pytest.approx(2 / 3)


def test_gain_follows_the_grade_and_stops_at_ten() -> None:
    graded = candidates("q 2 0.1\nq 1 0.9\nq 0 0.5")  # ranked 1 0 2
    assert mean_over_queries("ndcg@10", *graded) == pytest.approx((1 + 2 / log2(4)) / (2 + 1 / log2(3)))
    late = "\n".join(f"q 0 {0.9 - place / 100}" for place in range(10)) + "\nq 1 0.1"
    assert mean_over_queries("ndcg@10", *candidates(late)) == 0.0


def test_equal_scores_gain_nothing_from_the_order_of_the_file() -> None:
    for order in ("q 1 0.5\nq 0 0.5\nq 0 0.5", "q 0 0.5\nq 0 0.5\nq 1 0.5"):
        assert mean_over_queries("map", *candidates(order)) == pytest.approx(1 / 3)


def test_undefined_is_zero() -> None:
    assert mean_over_queries("map", *candidates("q 0 0.5\nq 0 0.4\nr 1 0.3")) == 0.0
    assert mean_over_queries("mrr", *candidates("q 0 nan\nq 1 0.4")) == 0.0


def test_map_is_the_mean_of_scikit_learn_s_average_precision() -> None:
    generator = np.random.default_rng(5)
    scores, labels = generator.permutation(400) / 400, generator.integers(0, 2, 400).astype(float)
    queries = generator.integers(0, 40, 400)
    expected = [
        average_precision_score(labels[queries == query], scores[queries == query])
        for query in np.unique(queries)
        if 0 < labels[queries == query].mean() < 1
    ]
    assert mean_over_queries("map", scores, labels, queries) == pytest.approx(np.mean(expected), abs=1e-12)


def prepared_of(name: str, folder: Path, split: str) -> Prepared:
    items, _ = read_items(TASKS[name], str(folder), split)
    vocabulary = Vocabulary(tokens=(*SPECIALS, "a"), lowercase=True)
    return KINDS["ranking"].prepare(TASKS[name], items, vocabulary, Truncation(maximum_length=16, stride=4))


def scored(name: str, folder: Path, split: str, scores: list[float]) -> tuple[dict[str, float], dict[str, float]]:
    """All metrics of these scores, and of the baseline."""
    task, prepared = TASKS[name], prepared_of(name, folder, split)
    outputs = np.array(scores)[:, None]
    return KINDS["ranking"].score(task, prepared, outputs, {}), KINDS["ranking"].baseline(task, prepared, prepared)


def test_wikiqa_is_read_and_scored_by_question(tmp_path: Path) -> None:
    folder = tmp_path / "WikiQACorpus"
    folder.mkdir()
    for split in ("train", "dev", "test"):
        (folder / f"WikiQA-{split}.tsv").write_text(WIKIQA)
        items, notes = read_items(TASKS["wikiqa"], str(tmp_path), split)
        rows = items.to_pylist()
        assert len(rows) == 19 and notes == ()
        assert rows[0] == {
            "id": "Q1",
            "first": "how deep is lake murra",
            "second": 'Lake Murra lies in the "high" hills.',
            "label": "0",
        }
    right = [3, 2, 1, 0, 4, 3, -1, 9, 8, 9, 1, 2, 3, 4, 0, 0, 1, 0, -1]
    found, shared = scored("wikiqa", tmp_path, "test", right)
    # Q1: 0 1 0. Q2: 1 1 0 0. Q7: 0 0 1 0. Q9: 1 0 0. Q5 and Q8 have no right sentence, Q6 no wrong one.
    mean, gain = (1 / 2 + 1 + 1 / 3 + 1) / 4, (SECOND + 1 + THIRD + 1) / 4
    assert found == pytest.approx({"map": mean, "mrr": mean, "ndcg@10": gain})
    # Words shared with the question. Q1: 2 2 0, so 0 1 0. Q2: 3 0 1 0, so 0 1 0 1. Q7: 3 0 0 0, so 0 0 0 1. Q9: 1 0 0.
    mean, gain = (1 / 2 + 1 / 2 + 1 / 4 + 1) / 4, (SECOND + (SECOND + FOURTH) / BEST_OF_TWO + FOURTH + 1) / 4
    assert shared == pytest.approx({"map": mean, "mrr": mean, "ndcg@10": gain})


def test_a_saved_model_is_scored_by_question_too(tmp_path: Path) -> None:
    (tmp_path / "WikiQACorpus").mkdir()
    text = WIKIQA.replace("who wrote the salt road", "how deep is lake murra")
    (tmp_path / "WikiQACorpus/WikiQA-dev.tsv").write_text(text)
    split = KnownSplit(task="wikiqa", data=str(tmp_path), split="dev", on_bad_rows="stop")
    labelled = of_task(split, replace(TASKS["wikiqa"], splits=()))  # as task.json has it
    vocabulary = Vocabulary(tokens=(*SPECIALS, "a"), lowercase=True)
    prepared = KINDS["ranking"].prepare(labelled.task, labelled.items, vocabulary, Truncation(maximum_length=16))
    assert prepared.rows[QUERY].to_pylist()[:7] == [0, 0, 0, 1, 1, 1, 1]


def test_trec_qa_is_read_and_scored_by_question(tmp_path: Path) -> None:
    folder = tmp_path / "jacana-qa-naacl2013-data-results"
    folder.mkdir()
    for file in ("train-all.xml", "dev.xml", "test.xml"):
        (folder / file).write_text(TREC)
    for split in ("train", "dev", "test"):
        items, _ = read_items(TASKS["trec-qa"], str(tmp_path), split)
        rows = [tuple(row.values()) for row in items.to_pylist()]
        assert rows[:3] == [
            ("1.1", "Who founded the bakery ?", "Ines Roth founded it .", "1"),
            ("1.1", "Who founded the bakery ?", "Bread & salt are sold < 9 .", "0"),
            ("1.2", "Where is it ?", "It is old .", "0"),
        ]
        assert rows[-1] == ("4.1", "Who opened the Ember Line ?", "Two stations are closed .", "0")
        assert Counter(row[0] for row in rows) == {"1.1": 2, "1.2": 1, "2.1": 4, "2.2": 3, "3.1": 2, "3.2": 4, "4.1": 4}
    # 1.1: 0 1. 2.1: 1 0 1 0. 2.2: 1 0 0. 3.2: 0 0 1 0. 4.1: 0 1 1 0. 1.2 has no right sentence, 3.1 no wrong one.
    right = [1, 2, 3, 9, 8, 7, 6, 0, 5, -1, 2, 1, 4, 3, 1, 0, 5, 6, 4, 3]
    gains = SECOND + (1 + THIRD) / BEST_OF_TWO + 1 + THIRD + (SECOND + THIRD) / BEST_OF_TWO
    expected = {
        "map": (1 / 2 + 5 / 6 + 1 + 1 / 3 + 7 / 12) / 5,
        "mrr": (1 / 2 + 1 + 1 + 1 / 3 + 1 / 2) / 5,
        "ndcg@10": gains / 5,
    }
    assert scored("trec-qa", tmp_path, "test", right)[0] == pytest.approx(expected)
    assert scored("trec-qa", tmp_path, "dev", [2, 1, *right[2:]])[0]["mrr"] == pytest.approx(expected["mrr"] + 0.1)


def test_the_same_scores_are_a_collapse(tmp_path: Path) -> None:
    (tmp_path / "WikiQACorpus").mkdir()
    (tmp_path / "WikiQACorpus" / "WikiQA-dev.tsv").write_text(WIKIQA)
    prepared = prepared_of("wikiqa", tmp_path, "dev")
    for step, collapsed in ((0.1, False), (1e-6, True), (float("nan"), True)):
        outputs = step * np.arange(prepared.rows.num_rows)[:, None]
        assert KINDS["ranking"].collapsed(TASKS["wikiqa"], prepared, outputs) is collapsed

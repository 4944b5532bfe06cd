"""Published data sets in the layout of their official files, with scores worked out by hand."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.config.finetune import Truncation
from pipeline.errors import DataError
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.intents import METRICS as OF_FRAMES
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import ENTITY_METRICS, read_items, wanted_tasks
from pipeline.tasks.layouts import LAYOUTS
from pipeline.tasks.metrics.label_metrics import METRICS, RANKED
from pipeline.tasks.metrics.ranking import RANKINGS
from pipeline.tasks.tables import is_held_out, left_out
from pipeline.tasks.task import Layout
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(tokens=(*SPECIALS, *"abcdefghijklmnopqrstuvwxyz"), lowercase=True)

AG_NEWS = r""""3","Harbour Bank Cuts Its Rate (Wire)","Wire - The bank of the old\harbour lowered its rate."
"4","A Camera the Size of a Pea","Makers of lenses showed a camera that fits  #36;5 phones."
"2","Rowers Win by a Bow","They said, ""we never looked back,"" and rowed on."
"1","Two Towns Sign a Truce","Envoys of both towns met in a school &lt;b&gt;near&lt;/b&gt; the border."
"3","Grain Prices Slip","A wet spring filled the silos, and prices slipped."
"4","New Moon Probe Phones Home","The probe sent its first picture on Monday."
"2","Goalkeeper Scores Twice","The keeper, aged 41, scored both goals."
"1","Floods Close a Pass","The only road over the mountains is closed."
"3","Shipyard Hires Again","The yard took on 300 welders this week."
"4","Worm Slows Mail Servers","A worm kept the mail of \three firms waiting."
"2","Sprinter Rests a Sore Knee","She will not run before May."
"1","Island Votes on a Flag","Half of the voters wanted no change."
"3","Tea Firm Buys a Railway","The line carries tea and, on Sundays, tourists."
"4","Bees Find the Short Way","Biologists tracked 80 bees with tiny tags."
"2","Chess Club Moves Out","The club has lost its rooms above the bakery."
"1","Ferry Returns After a Storm","All 90 passengers are well."
"3","Copper at a Ten-Year High","Buyers paid more than ever since the strike."
"4","Old Game, New Chip","The chip plays a game of 1982, quot;and nothing else. quot;"
"2","Coach Says Goodbye","After 20 seasons the coach goes home."
"1","A Bridge Between Two Villages","The bridge replaces a rope."
"""


def write(folder: Path, file: str, content: str) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def scored(name: str, items: object, logits: list) -> dict[str, float]:
    """Metrics of logits, one row per text."""
    task, handlers, cutting = TASKS[name], KINDS[TASKS[name].kind], Truncation(maximum_length=16, stride=4)
    prepared = handlers.prepare(task, items, VOCABULARY, cutting)
    answers = handlers.answers(task, prepared, [np.array(row, np.float32) for row in logits], cutting)
    return handlers.score(task, prepared, answers, {})


def test_every_layout_has_a_reader_and_every_metric_exists() -> None:
    assert set(LAYOUTS) == set(get_args(Layout))
    for name, task in TASKS.items():
        of_spans = {"f1", "exact", "precision", "recall"} if task.kind == "spans" else set()
        of_slots = {*OF_FRAMES, *ENTITY_METRICS} if task.splits[0].intents else set()
        known = {*METRICS, *RANKED, *RANKINGS, *of_spans, *of_slots}
        assert task.name == name and task.metrics and set(task.metrics) <= known
        assert [split.name for split in task.splits] == ["train", "dev", "test"][: 2 if of_spans else 3]
        assert wanted_tasks((name,), "/anywhere") == [task]


def test_ag_news_is_title_and_description_and_a_tenth_of_train_is_dev(tmp_path: Path) -> None:
    write(tmp_path, "ag_news_csv/train.csv", AG_NEWS)
    write(tmp_path, "ag_news_csv/test.csv", AG_NEWS)
    everything = read_items(TASKS["ag-news"], str(tmp_path), "test")[0].to_pylist()
    assert len(everything) == 20
    assert everything[0] == {
        "id": "0",
        "first": r"Harbour Bank Cuts Its Rate (Wire) Wire - The bank of the old\harbour lowered its rate.",
        "second": None,
        "label": "Business",
    }
    assert everything[1]["first"].endswith("fits  #36;5 phones.") and everything[1]["label"] == "Sci/Tech"
    assert everything[2]["first"] == 'Rowers Win by a Bow They said, "we never looked back," and rowed on.'
    assert everything[3]["first"].endswith("&lt;b&gt;near&lt;/b&gt; the border.")
    assert [row["label"] for row in everything[2:4]] == ["Sports", "World"]
    train, dev = (read_items(TASKS["ag-news"], str(tmp_path), split)[0].to_pylist() for split in ("train", "dev"))
    assert dev == [row for row in everything if is_held_out(row["first"])] and dev
    assert train == [row for row in everything if not is_held_out(row["first"])]


def test_ag_news_accuracy_by_hand(tmp_path: Path) -> None:
    write(tmp_path, "ag_news_csv/test.csv", "".join(AG_NEWS.splitlines(keepends=True)[:4]))
    items = read_items(TASKS["ag-news"], str(tmp_path), "test")[0]
    # true: Business, Sci/Tech, Sports, World; the last answer is wrong
    answers = [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 0]]
    assert scored("ag-news", items, answers) == {"accuracy": 0.75}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('"5","A","B"\n', r"test.csv:1: label '5' is not among the labels of ag-news \(World, Sports, Business, Sci/T"),
        ('"1","A","B"\n"1","C"\n', r"test.csv:2: 2 columns instead of 3"),
        ('"1",""," "\n', r"test.csv:1: column text is empty"),
        ('"1","A "b" c","B"\n', r"test.csv:1: quotes are broken in the row that begins here"),
    ],
)
def test_bad_rows_of_ag_news_are_named(tmp_path: Path, content: str, words: str) -> None:
    write(tmp_path, "ag_news_csv/test.csv", content)
    with pytest.raises(DataError, match=words):
        read_items(TASKS["ag-news"], str(tmp_path), "test")


SNLI = (
    ("A boy rows a boat.", "A child is on the water.", "entailment"),
    ("A boy rows a boat.", "A boy is asleep in bed.", "contradiction"),
    ("A boy rows a boat.", "A boy rows to school.", "neutral"),
    ("A boy rows a boat.", "A boy rows alone.", "-"),
    ("Two cooks argue.", "People disagree.", "entailment"),
    ("Two cooks argue.", "The kitchen is empty.", "contradiction"),
    ("Two cooks argue.", "The soup is too salty.", "neutral"),
    ("A cat sits on a wall.", "An animal is sitting.", "entailment"),
    ("A cat sits on a wall.", "A cat swims.", "contradiction"),
    ("A cat sits on a wall.", "The cat is old.", "neutral"),
    ("A cat sits on a wall.", "The wall is low.", "-"),
    ("Women in red run.", "Women are moving.", "entailment"),
    ("Women in red run.", "The women sit.", "contradiction"),
    ("Women in red run.", "The women train for a race.", "neutral"),
    ("A man reads on a train.", "A man has a book.", "entailment"),
    ("A man reads on a train.", "A man drives a car.", "contradiction"),
    ("A man reads on a train.", "A man goes home.", "neutral"),
    ("Snow covers a street.", "It is cold outside.", "entailment"),
    ("Snow covers a street.", "The street is dry.", "contradiction"),
    ("Snow covers a street.", "It snowed at night.", "neutral"),
)


def snli_lines() -> str:
    """Lines with the keys of the official files."""
    return "".join(
        json.dumps(
            {
                "annotator_labels": [label],
                "captionID": f"{number}.jpg#0",
                "gold_label": label,
                "pairID": f"{number}.jpg#0r1e",
                "sentence1": first,
                "sentence1_binary_parse": "( A boy )",
                "sentence1_parse": "(ROOT (NP (DT A) (NN boy)))",
                "sentence2": second,
                "sentence2_binary_parse": "( A child )",
                "sentence2_parse": "(ROOT (NP (DT A) (NN child)))",
            }
        )
        + "\n"
        for number, (first, second, label) in enumerate(SNLI)
    )


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_snli_leaves_out_pairs_without_a_gold_label_and_counts_them(tmp_path: Path, split: str) -> None:
    write(tmp_path, f"snli_1.0/snli_1.0_{split}.jsonl", snli_lines())
    items, _ = read_items(TASKS["snli"], str(tmp_path), split)
    expected = [
        {"id": f"{number}.jpg#0r1e", "first": first, "second": second, "label": label}
        for number, (first, second, label) in enumerate(SNLI)
        if label != "-"
    ]
    assert items.to_pylist() == expected and len(expected) == 18
    assert left_out(items) == [
        f"snli_1.0/snli_1.0_{split}.jsonl:{line}: the annotators did not agree on a label" for line in (4, 11)
    ]


def test_snli_accuracy_by_hand(tmp_path: Path) -> None:
    write(tmp_path, "snli_1.0/snli_1.0_test.jsonl", "".join(snli_lines().splitlines(keepends=True)[:5]))
    items, _ = read_items(TASKS["snli"], str(tmp_path), "test")
    # true: entailment, contradiction, neutral, entailment; numbers 0, 2, 1, 0; the third answer is wrong
    answers = [[1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert scored("snli", items, answers) == {"accuracy": 0.75}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", r"snli_1.0_dev.jsonl:1: not JSON"),
        ("[1]", r"snli_1.0_dev.jsonl:1: .*is not an object"),
        (
            '{"gold_label": "neutral", "pairID": "1", "sentence1": "A"}',
            r":1: column sentence2 is missing or not a text$",
        ),
        (
            '{"gold_label": "maybe", "pairID": "1", "sentence1": "A", "sentence2": "B"}',
            r":1: label 'maybe' is not among the labels of snli \(entailment, neutral, contradiction\)$",
        ),
    ],
)
def test_bad_lines_of_snli_are_named_or_skipped(tmp_path: Path, line: str, words: str) -> None:
    file = write(tmp_path, "snli_1.0/snli_1.0_dev.jsonl", f"{line}\n{snli_lines()}")
    with pytest.raises(DataError, match=words) as error:
        read_items(TASKS["snli"], str(tmp_path), "dev")
    assert str(error.value).count(str(file)) == 1
    items, _ = read_items(TASKS["snli"], str(tmp_path), "dev", skip=True)
    assert items.num_rows == 18 and len(left_out(items)) == 3


TOXICITY_HEADER = '"id","comment_text","toxic","severe_toxic","obscene","threat","insult","identity_hate"\n'
TOXICITY = """"00a1","Thanks for the map of the ""old"" town,
I added it.",0,0,0,0,0,0
"00a2","You are a fool, and so is your dog",1,0,0,0,1,0
"00a3","Please cite a source.",0,0,0,0,0,0
"00a4","I will find you",1,0,0,1,0,0
"00a5","Why was my edit undone?",0,0,0,0,0,0
"00a6","Get lost, you rotten liar",1,1,1,0,1,0
"00a7","The river is 90 km long, not 80.",0,0,0,0,0,0
"00a8","Nobody likes your kind",1,0,0,0,0,1
"00a9","See the talk page.",0,0,0,0,0,0
"00b1","I merged both articles.",0,0,0,0,0,0
"00b2","Damn, that took long",0,0,1,0,0,0
"00b3","Which map is that from?",0,0,0,0,0,0
"00b4","A stub needs one reference.",0,0,0,0,0,0
"00b5","Shut up",1,0,0,0,1,0
"00b6","Welcome to the project!",0,0,0,0,0,0
"00b7","The date is wrong; see the archive.",0,0,0,0,0,0
"00b8","I agree with the move.",0,0,0,0,0,0
"00b9","Moved, with the history kept.",0,0,0,0,0,0
"""
TOXICITY_TEST = """"id","comment_text"
"0c01","A kind word"
"0c02","A rude word, fool"
"0c03","Nobody judged this one"
"0c04","Worse: I will find you, fool"
"""
TOXICITY_TEST_LABELS = """"id","toxic","severe_toxic","obscene","threat","insult","identity_hate"
"0c01",0,0,0,0,0,0
"0c02",1,0,0,0,1,0
"0c03",-1,-1,-1,-1,-1,-1
"0c04",1,0,0,1,1,0
"""
JIGSAW = "jigsaw-toxic-comment-classification-challenge"


def test_toxicity_labels_are_a_list_and_quoted_texts_may_have_lines(tmp_path: Path) -> None:
    write(tmp_path, f"{JIGSAW}/train.csv", TOXICITY_HEADER + TOXICITY)
    train, dev = (read_items(TASKS["toxicity"], str(tmp_path), split)[0].to_pylist() for split in ("train", "dev"))
    rows = {row["id"]: row for row in train + dev}
    assert len(rows) == len(train) + len(dev) == 18
    assert all(is_held_out(row["first"]) for row in dev) and not any(is_held_out(row["first"]) for row in train)
    assert rows["00a1"]["first"] == 'Thanks for the map of the "old" town,\nI added it.'
    assert {id: json.loads(rows[id]["label"]) for id in ("00a1", "00a4", "00a6", "00a8")} == {
        "00a1": [],
        "00a4": ["toxic", "threat"],
        "00a6": ["toxic", "severe_toxic", "obscene", "insult"],
        "00a8": ["toxic", "identity_hate"],
    }


def test_toxicity_test_has_its_labels_in_a_second_file_and_leaves_out_what_was_not_scored(tmp_path: Path) -> None:
    write(tmp_path, f"{JIGSAW}/test.csv", TOXICITY_TEST)
    with pytest.raises(DataError, match=r"test_labels.csv does not exist: it has the labels of the test comments$"):
        read_items(TASKS["toxicity"], str(tmp_path), "test")
    write(tmp_path, f"{JIGSAW}/test_labels.csv", TOXICITY_TEST_LABELS)
    items, _ = read_items(TASKS["toxicity"], str(tmp_path), "test")
    assert [tuple(row.values()) for row in items.to_pylist()] == [
        ("0c01", "A kind word", None, "[]"),
        ("0c02", "A rude word, fool", None, '["toxic", "insult"]'),
        ("0c04", "Worse: I will find you, fool", None, '["toxic", "threat", "insult"]'),
    ]
    assert left_out(items) == [f"{JIGSAW}/test.csv:4: not scored (all labels are -1)"]


def test_toxicity_is_scored_by_the_mean_auc_of_its_labels_by_hand(tmp_path: Path) -> None:
    write(tmp_path, f"{JIGSAW}/test.csv", TOXICITY_TEST)
    write(tmp_path, f"{JIGSAW}/test_labels.csv", TOXICITY_TEST_LABELS)
    items, _ = read_items(TASKS["toxicity"], str(tmp_path), "test")
    # toxic: one of the two toxic comments is above the kind one, 1/2. threat: above both others, 1. insult: both above
    # the kind one, 1. The other labels are those of no comment, so they have no AUC.
    answers = [[-0.5, -9, -9, -2, -2, -9], [1, -9, -9, -1, -1, -9], [-1, -9, -9, 3, 3, -9]]
    found = scored("toxicity", items, answers)
    assert found["auc"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    # Above 1/2 are toxic of 0c02, threat and insult of 0c04, all right; toxic of 0c04 and insult of 0c02 are missed.
    assert found["micro_f1"] == pytest.approx(2 * 3 / (3 + 5))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('"1","A","0"\n', r"train.csv:2: 3 columns instead of 8$"),
        ('"1","A",0,0,2,0,0,0\n', r"train.csv:2: label obscene of id 1 is '2', not 0 or 1$"),
        ('"1"," ",0,0,0,0,0,0\n', r"train.csv:2: column comment_text is empty$"),
    ],
)
def test_bad_rows_of_toxicity_are_named(tmp_path: Path, row: str, words: str) -> None:
    write(tmp_path, f"{JIGSAW}/train.csv", TOXICITY_HEADER + row + TOXICITY)
    with pytest.raises(DataError, match=words):
        read_items(TASKS["toxicity"], str(tmp_path), "train")
    write(tmp_path, f"{JIGSAW}/train.csv", TOXICITY_HEADER.replace(',"threat"', "") + TOXICITY)
    with pytest.raises(DataError, match=r"train.csv has no column threat: its columns are id, comment_text, toxic"):
        read_items(TASKS["toxicity"], str(tmp_path), "train")

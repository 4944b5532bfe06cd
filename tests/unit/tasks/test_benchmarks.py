"""Published data sets in the layout of their official files, with scores worked out by hand."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pipeline.config.finetune import Cutting
from pipeline.errors import DataError
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.held_out import is_held_out
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import read_items, wanted_tasks
from pipeline.tasks.layouts import LAYOUTS
from pipeline.tasks.metrics import METRICS, RANKED
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
    task, handlers, cutting = TASKS[name], KINDS[TASKS[name].kind], Cutting(maximum_length=16, stride=4)
    prepared = handlers.prepare(task, items, VOCABULARY, cutting)
    answers = handlers.answers(task, prepared, [np.array(row, np.float32) for row in logits], cutting)
    return handlers.score(task, prepared, answers, {})


def test_every_layout_has_a_reader_and_every_metric_exists() -> None:
    assert set(LAYOUTS) == set(get_args(Layout))
    for name, task in TASKS.items():
        assert task.name == name and task.metrics and set(task.metrics) <= {*METRICS, *RANKED}
        assert [split.name for split in task.splits] == ["train", "dev", "test"]
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

"""jobs/speedrun.py: a text is prepared, two seeds are trained and scored, and nothing is computed twice."""

import json
from pathlib import Path

import pytest

from pipeline.ablation import speedrun as of_speedrun
from pipeline.ablation.command import read_speedrun
from pipeline.config.predict import Score
from pipeline.evaluation.minimal_pairs import paradigms
from pipeline.reporting import no_op
from pipeline.workflows.score import score
from pipeline.workflows.speedrun import speedrun

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]
TINY = """--vocabulary.size 150 --sampling.maximum-length 32 --model.layers 1 --model.width 32 --model.heads 2
    --model.feed-forward 64 --model.maximum-positions 32 --batch.rows-per-step 16 --batch.rows-per-slot 4
    --evaluation.rows 64 --prepare.window-characters 6000 --prepare.piece-characters 1000
    --prepare.near-duplicates None --prepare.heldout-share 0.1 --placement.threads 1 --placement.compile off
    --placement.device cpu --placement.precision float32 --seeds 2 --steps 6"""


def test_two_seeds_are_trained_and_scored_once(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A BLiMP of one paradigm of 20 pairs."""
    for module in (paradigms, of_speedrun):
        monkeypatch.setattr(module, "PARADIGMS", ("order",))
    monkeypatch.setattr(paradigms, "PAIRS", 20)
    blimp = tmp_path / "pairs"
    blimp.mkdir()
    pairs = [{"sentence_good": f"a b {number}", "sentence_bad": f"b a {number}"} for number in range(20)]
    (blimp / "order.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    words = ["bert-tiny", *TINY.split(), "--text", str(small_corpus), "--blimp", str(blimp), "--output", str(tmp_path)]
    config, lines = read_speedrun(words, ""), list[str]()
    table = speedrun(config, lines.append)
    assert [row.split()[:2] for row in table[1:3]] == [["0", "6"], ["1", "6"]] and table[3].startswith("mean")
    assert sum("starting, 6 steps" in line for line in lines) == 2
    assert sum(line.startswith("BLiMP of bert-tiny-") for line in lines) == 4  # even and odd pairs of two runs
    runs = (tmp_path / "runs").glob("*/summary.json")
    accuracies = [score(Score(checkpoint=str(run.parent / "export"), blimp=str(blimp)), no_op)["pll"] for run in runs]
    # The whole, from the even and the odd pairs.
    assert sorted(row.split()[-1] for row in table[1:3]) == sorted(
        f"{100 * one:.1f}" for one in accuracies
    )  # the whole
    lines.clear()
    assert speedrun(config, lines.append) == table
    assert not [line for line in lines if "starting" in line or line.startswith("BLiMP of")]

"""A speedrun's settings, rules and table."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ablation.command import read_speedrun
from pipeline.ablation.speedrun import Lap, lap_lines, require_few_words, require_text, require_whole
from pipeline.errors import ConfigError
from pipeline.evaluation.minimal_pairs.paradigms import PARADIGMS, Paradigm


def lap(seed: int, **changed: float | None) -> Lap:
    values = {"epoch": 6, "seconds": 3_600.0, "bits_per_byte": 2.0, "even": 0.58, "whole": 0.57} | changed
    return Lap(seed=seed, steps=500, tokens=16_000_000, **values)  # ty: ignore[invalid-argument-type]


def test_the_runs_of_a_speedrun_are_those_of_the_preset_with_one_seed_each() -> None:
    config = read_speedrun(["modernbert-mini", "--text", "books", "--seed", "4", "--seeds", "2"], "about")
    assert [run.seed for run in config.runs] == [4, 5]
    assert [run.corpus for run in config.runs] == [("books",)] * 2
    assert {run.model.width for run in config.runs} == {256} and config.preset == "modernbert-mini"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "text is missing: name a file or folder"),
        (["--text", "t", "--seeds", "0"], r"seeds \(0\)"),
        (["--text", "t", "--corpus", "c"], r"corpus \(c\) cannot be set in a speedrun"),
        (["--text", "t", "--init", "m"], r"init \(m\) cannot be set in a speedrun"),
        (["--text", "t", "--preset", "bert-tiny"], "preset is the first word of the command"),
        (["--text", "t", "--vocabulary.path", "v"], r"vocabulary.path \(v\) cannot be set in a speedrun"),
        (["--text", "t", "objective:distilled", "--objective.teacher", "m"], r"objective.teacher \(m\) cannot be set"),
        (["--text", "t", "objective:contrastive", "sampling.pairs:two-crops"], r"objective \(Contrastive\) trains no"),
        (["--text", "t", "--epochs", "11"], r"epochs \(11.0\) must be at most 10 in a speedrun"),
        (["continue", "--text", "t"], r"preset \(continue\) continues from a published model"),
    ],
)
def test_settings_that_a_speedrun_refuses(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_speedrun(words, "about")


def test_a_speedrun_reads_its_text_ten_times_unless_another_length_is_given() -> None:
    assert read_speedrun(["encoder-s", "--text", "t"], "").epochs == 10
    assert [run.epochs for run in read_speedrun(["encoder-s", "--text", "t", "--steps", "300"], "").runs] == [None] * 3
    assert read_speedrun(["encoder-s", "--text", "t", "--tokens", "81M"], "").tokens == "81M"


def test_the_pairs_are_the_whole_of_blimp() -> None:
    paradigms = [Paradigm(name=name, phenomenon="", good=("a",) * 1_000, bad=("b",) * 1_000) for name in PARADIGMS]
    require_whole("blimp", paradigms)
    filtered = [*paradigms[1:], replace(paradigms[0], good=("a",) * 900, bad=("b",) * 900)]
    for wrong in (paradigms[1:], filtered):
        with pytest.raises(ConfigError, match=r"blimp \(blimp\) is not the whole of BLiMP"):
            require_whole("blimp", wrong)


def test_a_text_that_does_not_exist_is_refused_by_its_name(tmp_path: Path) -> None:
    require_text(str(tmp_path))
    with pytest.raises(ConfigError, match=r"^text \(.*/books\) does not exist: name a file or folder"):
        require_text(f"{tmp_path}/books")


def test_a_text_may_have_ten_million_words_and_the_rest_of_its_last_file() -> None:
    require_few_words("books", 10_061_234)
    with pytest.raises(ConfigError, match=r"text \(books\) has 10,300,000 words, and a speedrun's has at most 10,000,"):
        require_few_words("books", 10_300_000)


def test_the_table_has_the_mean_of_three_seeds_and_its_interval() -> None:
    lines = lap_lines([lap(0, even=0.57), lap(1, even=0.58), lap(2, even=0.59)], 10_061_234)
    assert " ".join(lines[1].split()) == "0 500 16,000,000 6 60.0 2.000 57.0 57.0"
    # Student's t with two degrees of freedom: 4.303 x 1 / sqrt(3) = 2.484.
    assert " ".join(lines[4].split()) == "mean 60.0 ± 0.0 2.000 ± 0.000 58.0 ± 2.5 57.0 ± 0.0"
    assert lines[-1] == "10,061,234 words. ±: 95% interval over seeds."


def test_two_seeds_have_no_interval_and_a_run_of_eleven_epochs_breaks_a_rule() -> None:
    lines = lap_lines([lap(0), lap(1, epoch=11)], 9_000)
    assert " ".join(lines[3].split()) == "mean 60.0 2.000 58.0 57.0"
    assert lines[-2:] == [
        "9,000 words. An interval needs 3 seeds.",
        "Not by the rules: seed 1 read the text more than 10 times.",
    ]


def test_a_text_without_a_held_out_part_has_no_bits_per_byte() -> None:
    lines = lap_lines([lap(0, bits_per_byte=None)], 9_000)
    assert lines[1].split()[5] == "–" and len(lines) == 4

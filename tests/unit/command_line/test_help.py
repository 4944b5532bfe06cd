"""Help texts of the jobs."""

import re
from collections.abc import Callable

import pytest

from jobs import ablate, adapt, bench, compare, embed, export, finetune, predict, prepare, pretrain, score, search, show
from pipeline.command_line.options import choices, field_texts, options_of
from pipeline.config.adapt import Adapt
from pipeline.config.embed import Embed, Search
from pipeline.config.export import Export
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.predict import Predict, Score
from pipeline.corpus.formats import FORMATS
from pipeline.corpus.sources import KEYS
from pipeline.presets.table import PRESETS


def said(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the help that a job prints."""
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def flags(text: str) -> list[str]:
    """The options that a help text explains."""
    return re.findall(r"^  (--[a-z0-9.-]+)", text, re.MULTILINE)


def test_every_format_and_option_of_a_corpus_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for job in (prepare, pretrain):
        text = " ".join(said(job.main, capsys, "--help").split())
        assert [name for name in FORMATS if name != "builtin" and name not in text] == []
        assert [key for key in KEYS if f"::{key}=" not in text] == []


def test_the_help_of_pretraining_has_fourteen_common_options_and_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(pretrain.main, capsys, "--help")
    assert flags(text) == [
        *(
            "--corpus",
            "--init",
            "--steps",
            "--tokens",
            "--epochs",
            "--workers",
            "--name",
            "--output",
            "--seed",
            "--vocabulary.path",
            "--sampling.maximum-length",
        ),
        *("--batch.rows-per-step", "--optimizer.learning-rate", "--placement.device"),
        *("--config", "--show", "--plan", "--gpu"),
    ]
    assert ", ".join(PRESETS) in text and len(text.splitlines()) < 100
    for path, kinds in choices(Pretrain).items():
        assert f" {path}: {', '.join(kinds)}" in " ".join(text.split())  # lines are as wide as the terminal
    assert "--optimizer.learning-rate FLOAT\n      Peak learning rate. (default: 0.001)" in said(
        pretrain.main, capsys, "bert-mini", "--help"
    )


def test_help_all_has_every_option_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for main, settings in ((pretrain.main, Pretrain), (finetune.main, Finetune)):
        text = said(main, capsys, "--help", "all")
        assert sorted(set(flags(text)) - {"--config", "--show", "--plan", "--gpu"}) == sorted(
            {option.flag for option in options_of(settings)}
        )
        assert all(f"\n{path}:{kind}\n" in text for path, kinds in choices(settings).items() for kind in kinds)
    assert "  --freeze.embeddings, --freeze.no-embeddings\n" in text


SETTINGS = (Pretrain, Finetune, Predict, Score, Export, Embed, Search, Adapt)
OPTIONS = [(settings, option) for settings in SETTINGS for option in options_of(settings)]


def test_no_default_is_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    for job in (adapt, embed, export, finetune, predict, prepare, pretrain, score, search):
        texts = re.split(r"^  (?=[-A-Z])", said(job.main, capsys, "--help", "all"), flags=re.MULTILINE)[1:]
        twice = [text for text in texts if text.lower().count("default: ") > 1]
        assert [text for text in twice if text.rstrip().endswith("default: none)")] == [], job
        assert [text for text in texts if text.count("repeated") > 1] == [], job
        assert [text for text in texts if re.search(r"[.;] [Nn]one: ", text) and "or None)" not in text] == [], job


def test_descriptions_name_things_and_ask_nothing() -> None:
    assert len(OPTIONS) > 150
    begun = re.compile(r"(Whether|What|How|Which|Where|Of) ")
    assert [f"{settings.__name__}.{option.path}" for settings, option in OPTIONS if begun.match(option.text)] == []


def test_a_kind_with_help_has_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(pretrain.main, capsys, "bert-mini", "schedule:warmup-stable-decay", "--help")
    assert flags(text) == ["--schedule.warmup-steps", "--schedule.decay-share"] and "Hu et al. 2024" in text


def test_every_job_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for job in (ablate, adapt, compare, embed, search, export, finetune, predict, prepare, score):
        short, whole = said(job.main, capsys, "--help"), said(job.main, capsys, "--help", "all")
        assert set(flags(short)) <= set(flags(whole)) and "usage: jobs/" in short, job


def test_jobs_of_several_commands_say_what_each_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for job, word in ((show, "examples"), (show, "seen"), (bench, "text"), (bench, "stream")):
        assert f"\n  {word} " in said(job.main, capsys, "--help"), word
        assert flags(said(job.main, capsys, word, "--help")), word


def test_a_command_that_does_not_exist_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["example"]) == 2
    views = "documents, dropped, statistics, examples, seen"
    pictures = "heads, attention, word, map, resumed, curve, corpus, loss, ranks"
    assert (
        capsys.readouterr().err == f"error: word example must be one of {views}, {pictures}; did you mean examples?\n"
    )


def test_texts_stand_below_their_fields_and_come_from_base_classes_too() -> None:
    texts = field_texts(Finetune)
    assert (
        texts["dev"]
        == "Development file in the form of train; default: a tenth of the training rows, set aside by a hash."
    )
    lamb = field_texts(choices(Pretrain)["optimizer"]["lamb"])
    assert lamb["weight_decay"] == "Not applied to biases and LayerNorm parameters." and lamb[
        "learning_rate"
    ].startswith("Peak learning rate. The default is the untuned rate of You et al.")

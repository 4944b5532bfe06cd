"""Settings of adapting an encoder: bad ones are refused in one line, before anything is written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapt import main
from pipeline.adapt.record import agree
from pipeline.adapt.start import read_start
from pipeline.adapt.steps import length_of, most_trainings
from pipeline.config.adapt import Adapt
from pipeline.errors import ConfigError
from pipeline.saved.checkpoints import folder_of


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--init E", "--corpus is missing: Your text: a file, folder, glob or URL"),
        ("--corpus a", "--init is missing: Encoder to start from"),
        ("--corpus a --init E --judgements J", "judgements (J) are about queries, but queries is not set: give the fi"),
        (
            "--corpus a --init E --masked-steps 0 --contrastive-steps 0",
            "masked_steps (0) and contrastive_steps (0) leave nothing to train: leave one of them out",
        ),
        ("--corpus a --init E --masked-steps -1", "masked_steps (-1) must be at least 0"),
        ("--corpus a --init E --learning-rate 2", "learning_rate (2.0) must lie between 0 and 1"),
        ("--corpus a --init E --maximum-length 7", "maximum_length (7) must be at least 8"),
        (
            "--corpus a --init E --workers 3 --batch.rows-per-slot 32",
            "workers (3) must be at most the slots of a step (2 = batch.rows_per_step",
        ),
        (
            "--corpus a --init E --placement.compile on",
            "placement.compile (on) cannot be used, because objective contr",
        ),
        ("--corpus README.md --init /no/encoder", "/no/encoder does not exist: give the folder of a model or a run"),
    ],
)
def test_bad_settings_are_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1


def test_an_encoder_whose_vocabulary_does_not_fit_is_refused(tiny_run: Path, tmp_path: Path, capsys) -> None:
    encoder = shutil.copytree(folder_of(str(tiny_run), 3), tmp_path / "encoder")
    (encoder / "manifest.json").unlink()
    (encoder / "tokenizer.json").unlink()
    entries = (encoder / "vocab.txt").read_text().splitlines()
    (encoder / "vocab.txt").write_text("\n".join([*entries, "kaxx"]) + "\n")
    assert main(["--corpus", str(tmp_path), "--init", str(encoder), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: init {encoder}: the weights have {len(entries)} word embeddings, but the vocabul")
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_queries_and_judgements_that_cannot_be_read_are_refused_first(tiny_run: Path, tmp_path: Path, capsys) -> None:
    asked = ["--corpus", str(tmp_path), "--init", str(tiny_run), "--output", str(tmp_path / "out")]
    assert main([*asked, "--queries", "missing.jsonl"]) == 2
    (tmp_path / "qrels.tsv").write_text("1\t0\ta\t1\n")
    judged = [*asked, "--queries", "bridges", "--judgements"]
    assert main([*judged, str(tmp_path / "none.tsv")]) == 2 and main([*judged, str(tmp_path / "qrels.tsv")]) == 2
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert main([*judged, str(tmp_path / "qrels.tsv")]) == 2
    missing, none, header, empty = capsys.readouterr().err.splitlines()
    assert missing == "error: queries (missing.jsonl) does not exist: give a file of queries, or the text of one query"
    assert none == f"error: {tmp_path}/none.tsv does not exist"
    assert "the first line is 1, 0, a, 1, but must be query-id, corpus-id, score, with tabs" in header
    assert empty.endswith("qrels.tsv) has no rows: give lines of query id, document id and grade")
    assert not (tmp_path / "out").exists()


def test_sequences_are_at_most_as_long_as_the_encoder_reads(tiny_run: Path) -> None:
    config, start = Adapt(corpus=("a",), init=str(tiny_run)), read_start(str(tiny_run))
    assert start.reads == 32  # of 32 positions
    assert length_of(replace(config), replace(start, reads=24)) == 24
    assert length_of(config, start) == 32 and length_of(replace(config, maximum_length=16), start) == 16
    with pytest.raises(
        ConfigError, match=r"^maximum_length \(33\) must be at most 32, the tokens of a text that init "
    ):
        length_of(replace(config, maximum_length=33), start)


def test_nothing_to_train_is_refused(tiny_run: Path) -> None:
    config, start = Adapt(corpus=("/a",), init="E", output="/out", contrastive_steps=0), read_start(str(tiny_run))
    assert [run.name for run in most_trainings(config, start).runs] == ["masked"]
    without = replace(start, fills_blanks=False)
    with pytest.raises(ConfigError) as refused:
        most_trainings(config, without)
    assert str(refused.value) == (
        "nothing is left to train on /out/corpus: contrastive_steps is 0, and init (E) has no head for masked words: "
        "leave contrastive_steps out, or set masked_steps"
    )


def test_an_output_of_other_settings_is_refused(tmp_path: Path) -> None:
    output = str(tmp_path / "out")
    agree(output, {"seed": 0, "corpus": ["a"]})
    agree(output, {"seed": 0, "corpus": ["a"]})
    agree(output, {"masked_steps": 100})
    assert json.loads(Path(output, "adapt.json").read_text()) == {"seed": 0, "corpus": ["a"], "masked_steps": 100}
    with pytest.raises(ConfigError) as refused:
        agree(output, {"seed": 1})
    assert str(refused.value) == (
        f"output ({output}) has an encoder adapted with seed 0, not with seed 1: choose another --output"
    )
    with pytest.raises(ConfigError, match="adapted with masked_steps 100, not with masked_steps 50"):
        agree(output, {"masked_steps": 50})
    (tmp_path / "note.txt").touch()
    with pytest.raises(ConfigError, match=r"^output \(.*\) has other files, such as note.txt: choose a new folder"):
        agree(str(tmp_path), {"seed": 0})

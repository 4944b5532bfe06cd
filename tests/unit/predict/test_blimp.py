"""A run scored on minimal pairs by the command."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from jobs.score import main
from pipeline.config.predict import Score
from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError
from pipeline.evaluation.minimal_pairs.paradigms import PAIRS, PARADIGMS
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import text_of
from tests.unit.predict.test_score import constant


@pytest.fixture(scope="module")
def blimp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BLiMP's files with sentences of the tiny corpus: the bad one is the good one in reverse."""
    folder = tmp_path_factory.mktemp("blimp")
    words = text_of(3).split()
    sentences = [words[start : start + 5] for start in range(8)]
    for name in PARADIGMS:
        rows = [
            {
                "sentence_good": " ".join(sentences[number % 8]),
                "sentence_bad": " ".join(reversed(sentences[number % 8])),
                "linguistics_term": "order" if name < "m" else "other",
                "pairID": str(number),
            }
            for number in range(PAIRS)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_run_is_scored_with_baselines_of_its_corpus(
    tiny_run: Path, blimp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--checkpoint", str(tiny_run), "--blimp", str(blimp), "--pairs", "fifth"]) == 0
    said = capsys.readouterr().out
    rows = {line.strip().split("  ")[0]: line.split() for line in said.splitlines() if "±" in line}
    assert rows["all paradigms"][2] == "13,400" and rows["passive_1"][1] == "200"
    assert rows["all paradigms"][7:10:2] == rows["order"][6:9:2], "all paradigms have the same pairs"
    assert rows["order"][6] == "50.0", "unigrams cannot tell a sentence from its reverse"
    assert float(rows["order"][8]) > 50, "the text has its words in their order"
    assert "tokens of" in said and "ties count one half" in said
    assert "67 paradigms, 13,400 pairs" in said and "this model (fifth of the whole) " in said


def test_a_run_whose_corpus_is_gone_or_another_is_scored_without_baselines(
    tiny_run: Path, tiny_corpus: Corpus, blimp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, corpus = tmp_path / "runs" / "run", tmp_path / "corpus"
    shutil.copytree(tiny_run, run)
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"corpus": str(corpus)}))
    arguments = ["--checkpoint", str(run), "--blimp", str(blimp), "--pairs", "fifth"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"no unigram and 5-gram baselines: {corpus} does not hold a prepared corpus" in said and "±" in said
    shutil.copytree(tiny_corpus.folder, corpus)
    about = json.loads((corpus / "manifest.json").read_text())
    (corpus / "manifest.json").write_text(json.dumps(about | {"fingerprint": "of other text"}))
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"no unigram and 5-gram baselines: {corpus} is no longer the corpus of this run" in said
    assert "baselines from" not in said and "±" in said
    assert main([*arguments, "--corpus", str(corpus)]) == 0 and "baselines from" in capsys.readouterr().out
    shutil.rmtree(corpus / "train")
    assert main([*arguments, "--corpus", str(corpus)]) == 0
    said = capsys.readouterr().out
    assert f"no unigram and 5-gram baselines: {corpus}/train/" in said and "±" in said
    assert main([*arguments, "--corpus", str(tmp_path / "none")]) == 2
    told = capsys.readouterr()
    assert "none does not hold a prepared corpus" in told.err and "scored in" not in told.out


def test_a_published_folder_is_scored_as_its_run_and_says_what_baselines_need(
    tiny_run: Path, blimp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--blimp", str(blimp), "--pairs", "even", "--placement.precision", "float32"]
    assert main(["--checkpoint", str(tiny_run), *arguments]) == 0
    of_run = [line.split()[:6] for line in capsys.readouterr().out.splitlines() if "±" in line]
    assert main(["--checkpoint", str(max((tiny_run / "checkpoints").iterdir())), *arguments]) == 0
    said = capsys.readouterr().out
    assert [line.split()[:6] for line in said.splitlines() if "±" in line] == of_run
    assert "name the prepared corpus of the training text with --corpus" in said


def test_a_folder_of_others_is_scored_too_also_at_a_url(
    tiny_run: Path, hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = text_of(3).split()
    (tmp_path / "pairs").mkdir()
    pair = {"sentence_good": " ".join(words[:5]), "sentence_bad": " ".join(words[3::-1])}
    (tmp_path / "pairs" / "mine.jsonl").write_text(f"{json.dumps(pair)}\n" * 2)
    checkpoint = max((tiny_run / "checkpoints").iterdir())
    shutil.copytree(checkpoint, hub / "owner" / "name", ignore=shutil.ignore_patterns("manifest.json"))
    rows = []
    for model in (str(checkpoint), "hf://owner/name"):
        assert main(["--checkpoint", model, "--blimp", str(tmp_path / "pairs")]) == 0
        rows.append([line.split() for line in capsys.readouterr().out.splitlines() if "±" in line])
    assert rows[0] == rows[1] and ["mine", "2"] in [row[:2] for row in rows[1]]
    weights = hub / "owner" / "name" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(weights).items() if not name.startswith("cls.")}, weights)
    assert main(["--checkpoint", "hf://owner/name", "--blimp", str(tmp_path / "pairs")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "hf://owner/name has no head for masked tokens: give a model that has one" in line


def test_a_model_without_a_masked_token_head_is_refused_in_one_line(
    tmp_path: Path, blimp: Path, tiny_vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = constant(tmp_path / "tuned", "classification", tiny_vocabulary, 1)
    assert main(["--checkpoint", tuned, "--blimp", str(blimp)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no head for masked tokens: give a pretraining run, or its export" in line


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checkpoint": "x"}, r"task \(None\), blimp \(None\), heldout \(None\), .*: give exactly one"),
        ({"checkpoint": "x", "blimp": "b", "input": "i"}, r"blimp \(b\), heldout \(None\), .*: give exactly one$"),
        ({"predictions": "p", "blimp": "b"}, r"blimp \(b\) scores a model, not predictions: give checkpoint"),
        ({"checkpoint": "x", "input": "i", "pairs": "odd"}, r"pairs \(odd\) is for blimp: leave it out"),
    ],
)
def test_settings_that_contradict_each_other(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Score(**wrong)  # ty: ignore[invalid-argument-type]

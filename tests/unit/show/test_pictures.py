"""Pictures of a tiny run, as jobs/show.py writes them, and what it refuses in one line."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow.tracking import MlflowClient

from jobs.show import main
from pipeline import api
from pipeline.config.embed import Embed
from pipeline.config.flat import flatten
from pipeline.config.phases import FallingMasks
from pipeline.embed.vectors import open_vectors
from pipeline.files import storage
from pipeline.reporting import no_op
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.run import RUN, SUMMARY
from pipeline.show import text_map
from pipeline.show.model_texts import cut_text, cut_texts, random_weights
from pipeline.show.pictures import readable
from pipeline.show.rank_changes import ranking
from pipeline.text.vocabulary import Vocabulary
from pipeline.workflows.embed import embed


@pytest.fixture(scope="module")
def logged_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, with losses in an MLflow run of its own."""
    folder = tmp_path_factory.mktemp("logged") / "runs" / "tiny"
    shutil.copytree(tiny_run, folder)
    client = MlflowClient(tracking_uri=storage.read_json(str(folder / SUMMARY))["mlflow_uri"])
    run_id = client.create_run("0", run_name="logged").info.run_id
    storage.write_json(str(folder / RUN), storage.read_json(str(folder / RUN)) | {"mlflow_run_id": run_id})
    for step in (1, 2, 3):
        client.log_metric(run_id, "train/mlm_loss", 5.0 - step, step=step)
    client.log_metric(run_id, "heldout/mlm_loss", 4.5, step=0)
    client.log_metric(run_id, "heldout/mlm_loss", 2.5, step=3)
    return folder


@pytest.fixture
def show(logged_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Draw a picture, look at its file, and return what was printed; RUN stands for the run, HERE for a folder."""
    (tmp_path / "s.txt").write_text("Kar lost mist.\nLost kar kap.\nmist\n")
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"kar {'lost ' * n},{n % 2}\n" for n in range(8)))

    def draw(*words: str, ending: str = "png") -> str:
        picture = tmp_path / f"a.{ending}"
        arguments = [word.replace("RUN", str(logged_run)).replace("HERE", str(tmp_path)) for word in words]
        assert main([*arguments, "--picture", str(picture)]) == 0, capsys.readouterr().err
        assert picture.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending])
        printed = capsys.readouterr().out
        assert printed.endswith(f"\npicture: {picture}\n")
        return printed

    return draw


def test_heads_of_a_run_on_its_corpus(show: Callable[..., str], tiny_run: Path) -> None:
    corpus = storage.read_json(str(tiny_run / "run.json"))["corpus"]
    printed = show("heads", "RUN", "--text", corpus, "--texts", "3", "--length", "32")
    assert printed.startswith("2 layers of 2 heads, on 3 texts with 96 tokens")


def test_a_sentence(show: Callable[..., str]) -> None:
    printed = show("attention", "RUN", "kar lost", "--layer", "2", "--head", "1", ending="svg")
    assert len(printed.splitlines()) == 6 and all(part in printed for part in ("[CLS] →", "kar →", "lost →"))


def test_a_word_before_and_after(show: Callable[..., str]) -> None:
    printed = show("word", "RUN", "--word", "kar", "--sentences", "HERE/s.txt", "--before", ending="pdf")
    assert printed.startswith("'kar' in 2 sentences\nmean cosine by layer (all pairs)\n  layer 0  ")
    assert printed.count("layer 2") == 2 and "\nrandom weights: mean cosine" in printed


def test_a_map(show: Callable[..., str]) -> None:
    printed = show("map", "RUN", "HERE/t.csv", "--method", "tsne", "--before")
    assert printed.startswith("8 texts, 2 labels: 0 4, 1 4\n") and "\nrandom weights: the 5 nearest" in printed


def test_a_map_shows_vectors_of_length_one(
    show: Callable[..., str], tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its near texts are those with a high cosine, also of a model whose vectors have other lengths."""
    shutil.copytree(folder_of(str(tiny_run), 3), tmp_path / "m")
    parts = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in parts.items()]
    storage.write_json(str(tmp_path / "m/modules.json"), modules)
    storage.write_json(str(tmp_path / "m/1_Pooling/config.json"), {"pooling_mode_mean_tokens": True})
    lengths, text_map_of = [], text_map.text_map

    def noted(vectors: np.ndarray, *others: Any) -> text_map.TextMap:
        lengths.extend(np.linalg.norm(vectors, axis=1))
        return text_map_of(vectors, *others)

    monkeypatch.setattr(text_map, "text_map", noted)
    show("map", "HERE/m", "HERE/t.csv")
    assert lengths == pytest.approx([1.0] * 8)


def test_the_loss_is_that_of_the_phase_of_the_weights(show: Callable[..., str], logged_run: Path) -> None:
    """A run whose last phase masks few tokens is measured on as few."""
    recorded = storage.read_json(str(logged_run / RUN))
    settings = flatten(FallingMasks(masking_shares=(0.05,), parts=(0.3, 0.7)))
    phases = {"phases": "FallingMasks", "sampling.masking.share": 0.6}
    phases |= {f"phases.{name}": value for name, value in settings.items()}
    before = show("loss", "RUN", "--rows", "8")
    storage.write_json(str(logged_run / RUN), recorded | {"identity": recorded["identity"] | phases})
    try:
        after = show("loss", "RUN", "--rows", "8")
    finally:
        storage.write_json(str(logged_run / RUN), recorded)
    one_phase, last_phase = (re.search(r"over (\d+) tokens", printed)[1] for printed in (before, after))
    assert int(last_phase) < int(one_phase)


def test_runs(show: Callable[..., str]) -> None:
    assert show("curve", "RUN").startswith(
        "MLM loss at step 3: training 2.000, held-out 2.500 nats after step 3, before training 4.500\n\n"
    )
    assert "MLM loss: equal; largest difference 0.0e+00 nats" in show("resumed", "RUN", "RUN")
    assert "held-out masked loss" in show("loss", "RUN", "--rows", "8")


@pytest.fixture(scope="module")
def vectors(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of three texts, and in another folder of two of these."""
    folder = tmp_path_factory.mktemp("vectors")
    texts = ("kar lost mist\n", "lost kap\n", "mist mist\n")
    (folder / "texts.txt").write_text("".join(texts))
    (folder / "others.txt").write_text("".join(texts))
    (folder / "fewer.txt").write_text("".join(texts[:2]))
    for name, file, prompt in (
        *(("three", "texts", None), ("again", "texts", "mist mist mist ")),
        *(("others", "others", None), ("two", "fewer", None)),
    ):
        config = Embed(
            checkpoint=str(tiny_run), input=str(folder / f"{file}.txt"), output=str(folder / name), prompt=prompt
        )
        embed(config, no_op)
    return folder


def test_a_search_before_and_after(show: Callable[..., str], vectors: Path) -> None:
    three, again = str(vectors / "three"), str(vectors / "again")
    found = [[one.text for one in ranking(open_vectors(folder), "lost kap", "").found] for folder in (three, again)]
    told = show("ranks", three, again, "lost kap", "--top", "2").splitlines()
    assert told[0] == "lost kap" and told[2].endswith("/three (rank in vectors0/again)")
    for first, one, other in ((3, *found), (7, *reversed(found))):
        assert [line.split(maxsplit=2) for line in told[first : first + 2]] == [
            [str(rank), f"({other.index(text) + 1})", text] for rank, text in enumerate(one[:2], 1)
        ]
    same = show("ranks", three, f"{vectors}/./three", "lost kap", "--top", "1").splitlines()
    assert same[2] == f"{three} (rank in {three})"


def test_two_sets_of_texts_are_refused(vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [str(vectors / name) for name in ("three", "others")]
    assert main(["ranks", *others, "kar", "--picture", str(tmp_path / "a.png")]) == 2
    assert "/others have other texts: embed the same texts with both models" in capsys.readouterr().err
    folders = [str(vectors / name) for name in ("three", "two")]
    assert main(["ranks", *folders, "kar", "--picture", str(tmp_path / "a.png")]) == 2
    assert capsys.readouterr().err == (
        f"error: {folders[0]} has vectors of 3 texts and {folders[1]} of 2: embed the same texts with both models\n"
    )


REFUSED = {
    "no-model": (["heads", "HERE/none"], "none does not exist: give the folder of a model or a run"),
    "layer": (["attention", "RUN", "kar", "--layer", "3"], "layer (3) must be from 1 to 2: the model has 2 layers"),
    "head": (["attention", "RUN", "kar", "--head", "0"], "head (0) must be from 1 to 2: the model has 2 heads"),
    "word": (
        ["word", "RUN", "--word", "tree"],
        "word (tree) has no built-in sentences: give --sentences FILE",
    ),
    "column": (["map", "RUN", "HERE/t.csv", "--label", "kind"], "has no column kind: its columns are text, label"),
    "no-run": (["curve", "HERE"], "is not the folder of a run: run.json is missing; runs are in OUTPUT/runs"),
    "no-store": (
        ["curve", "RUN", "--tracking.uri", "sqlite:////none.db"],
        "tracking.uri (sqlite:////none.db) does not exist: name the MLflow store that the run logged to",
    ),
    "length": (["heads", "RUN", "--length", "33"], "length (33) must be at most 32: the model has no more positions"),
    "short": (["heads", "RUN", "--text", "HERE/s.txt", "--length", "32"], "s.txt has no text of at least 16 tokens"),
    "no-corpus": (["corpus", "HERE"], "does not hold a prepared corpus (manifest.json is missing)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_one_line(
    case: str, logged_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.txt").write_text("Kar.\n")
    (tmp_path / "t.csv").write_text("text,label\nkar,1\n")
    words, message = REFUSED[case]
    arguments = [word.replace("RUN", str(logged_run)).replace("HERE", str(tmp_path)) for word in words]
    assert main([*arguments, "--picture", str(tmp_path / "a.png")]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1 and not (tmp_path / "a.png").exists()


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> api.LoadedModel:
    return api.load(str(tiny_run), device="cpu")


def test_a_text_is_cut_at_the_models_tokens(model: api.LoadedModel) -> None:
    text = cut_text(model, "kar lost " * 20, 16, 16)
    assert text is not None and len(model.tokenize(text).ids) == 16 and text.startswith("kar lost")
    assert cut_text(model, "kar lost", 16, 16) is None and cut_text(model, "kar lost", 16, 4) == "kar lost"
    assert len(cut_texts(model, None, 2, 20, 16)) == 2  # the built-in text


def test_random_weights_have_the_same_size_and_no_training(model: api.LoadedModel) -> None:
    random = random_weights(model)
    assert random.embed(["kar"]).shape == model.embed(["kar"]).shape
    assert not np.allclose(random.embed(["kar"]), model.embed(["kar"]), atol=1e-2)
    assert np.array_equal(random.embed(["kar"]), random_weights(model).embed(["kar"]))
    assert replace(model).embed(["kar"]).tolist() == model.embed(["kar"]).tolist()


def test_tokens_are_shown_as_text(model: api.LoadedModel, tiny_vocabulary: Vocabulary) -> None:
    shown = readable(model, "kar, karlost")
    assert shown[0] == tiny_vocabulary.tokens[tiny_vocabulary.cls_id] and shown[1:3] == ["kar", ","]
    assert "".join(shown[3:-1]).replace("##", "") == "karlost"

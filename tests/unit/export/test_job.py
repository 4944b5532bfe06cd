"""jobs/export.py from its command line: what it publishes, and what it refuses before anything is made."""

import importlib.util
import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config.export import EXPORT_KINDS, Export
from pipeline.errors import ConfigError
from pipeline.export.kinds import FOLDERS
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.saved.checkpoints import folder_of

JOB = Path(__file__).parents[3] / "jobs" / "export.py"
main: Callable[[list[str]], int] = runpy.run_path(str(JOB))["main"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the job's error message, for an exit code of 2."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    return said.removeprefix("error: ").strip()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a library look as if it were not installed."""
    found = importlib.util.find_spec

    def hide(hidden: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name == hidden else found(name, *rest)
        )

    return hide


def test_every_kind_is_made_by_something() -> None:
    assert (*FOLDERS, "mlflow") == EXPORT_KINDS


def test_the_published_format_beside_the_run(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tiny_run), "--step", "2"]) == 0
    target = tiny_run / "exports" / "step-00000002" / "huggingface"
    checked = "checked: logits equal transformers' within 1e-05 of the largest"
    assert capsys.readouterr().out == f"huggingface: {target}; {checked}\n"
    assert storage.damage(str(target)) is None and "# tiny, step 2" in (target / "README.md").read_text()
    manifest = json.loads((target / "manifest.json").read_text())
    assert (manifest["checkpoint"], manifest["kind"], manifest["checked"]) == (
        folder_of(str(tiny_run), 2),
        "huggingface",
        checked,
    )
    assert load_trained(str(target)).model == load_trained(folder_of(str(tiny_run), 2)).model


def test_without_transformers_it_says_how_to_compare_with_it(
    tiny_run: Path, tmp_path: Path, without: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    without("transformers")
    assert main([str(tiny_run), "--folder", str(tmp_path)]) == 0
    words = (
        "checked: read again, its logits are equal within 1e-05 of the largest; to compare them with transformers': "
        "pip install 'bertstream[export]'"
    )
    assert capsys.readouterr().out == f"huggingface: {tmp_path}/huggingface; {words}\n"
    assert f"`sentence-transformers` read; {words}." in (tmp_path / "huggingface" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["onnx", "int8"])
def test_graphs_need_the_extra(
    tiny_run: Path, tmp_path: Path, without: Callable[[str], None], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    without("onnxruntime")
    said = refused(capsys, str(tiny_run), "--folder", str(tmp_path), "--kinds", "huggingface", kind)
    assert said == f"kind {kind} needs onnxruntime: pip install 'bertstream[export]'"
    assert list(tmp_path.iterdir()) == []  # nothing is made where something is refused


def test_what_is_there_is_not_overwritten_unless_told(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tiny_run), "--folder", str(tmp_path), "--step"]
    assert main([*arguments, "1"]) == 0
    before = storage.sha256(str(tmp_path / "huggingface" / "model.safetensors"))
    said = refused(capsys, *arguments, "3")
    assert (
        said == f"{tmp_path}/huggingface holds an export of {folder_of(str(tiny_run), 1)}: give --replace, or choose "
        "another --folder"
    )
    assert storage.sha256(str(tmp_path / "huggingface" / "model.safetensors")) == before
    assert main([*arguments, "3", "--replace"]) == 0
    assert storage.sha256(str(tmp_path / "huggingface" / "model.safetensors")) != before


def test_files_that_are_no_export_are_never_deleted(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "huggingface" / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("words")
    said = refused(capsys, str(tiny_run), "--folder", str(tmp_path), "--replace")
    assert (
        said
        == f"{mine.parent} holds files that are not an export (thesis.tex): delete them, or choose another --folder"
    )
    assert mine.read_text() == "words"


def test_the_card_has_the_publishers_own_notes(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("## Scores\n\n| Größe | CoLA |\n|---|--:|\n| 12 × 192 | 9.1 |\n", "utf-8")
    assert main([str(tiny_run), "--folder", str(tmp_path), "--notes", str(notes)]) == 0
    card = (tmp_path / "huggingface" / "README.md").read_text("utf-8")
    assert f"\n\n{notes.read_text('utf-8')}\n## Use\n\n" in card and card.count("## Use") == 1
    notes.write_bytes(b"\xff\xfe")
    said = refused(capsys, str(tiny_run), "--folder", str(tmp_path / "other"), "--notes", str(notes))
    assert said.startswith(f"notes ({notes}) is not a readable text file: ") and not (tmp_path / "other").exists()


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        refused(capsys, str(tmp_path))
        == f"{tmp_path} is not the folder of a run: run.json is missing; runs are in OUTPUT/runs"
    )


def test_unknown_kinds_and_lone_names_are_refused(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        refused(capsys, str(tiny_run), "--kinds", "onnx", "onxx")
        == "kinds (onxx) must be among huggingface, onnx, int8, mlflow"
    )
    assert (
        refused(capsys, str(tiny_run), "--register", "mine")
        == "register (mine) needs the kind mlflow: add it to kinds (huggingface)"
    )
    with pytest.raises(ConfigError, match=r"^kinds \(none\) must be among "):
        Export(run="r", kinds=())


def test_an_mlflow_without_the_run_is_refused(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = f"sqlite:///{tmp_path}/none.db"
    said = refused(capsys, str(tiny_run), "--kinds", "mlflow", "--mlflow_uri", nowhere)
    assert said == f"mlflow_uri ({nowhere}) names a file that does not exist; name the run's MLflow with mlflow_uri"
    assert list(tmp_path.iterdir()) == []
    said = refused(capsys, str(tiny_run), "--kinds", "mlflow", "--mlflow_uri", "http://127.0.0.1:9")
    assert said.startswith("mlflow_uri (http://127.0.0.1:9) does not work: ") and said.endswith(
        "; name the run's MLflow with mlflow_uri"
    )


def test_a_push_is_refused_before_anything_is_made(
    tiny_run: Path,
    tmp_path: Path,
    without: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [str(tiny_run), "--folder", str(tmp_path), "--push-to-hub"]
    assert refused(capsys, *arguments, "me/tiny").startswith("push_to_hub (me/tiny) needs license: ")
    assert refused(capsys, *arguments, "tiny", "--license", "mit").startswith("push_to_hub (tiny) names no owner: ")
    said = refused(capsys, *arguments, "me/tiny", "--license", "apache")
    assert said.startswith("license (apache) is not an SPDX identifier") and "did you mean apache-2.0 or " in said
    said = refused(capsys, str(tiny_run), "--folder", str(tmp_path), "--language", "english")
    assert said == "language (english) is not a language code: give an ISO 639 code, such as en"
    without("huggingface_hub")
    said = refused(capsys, *arguments, "me/tiny", "--license", "mit")
    assert said == "push_to_hub (me/tiny) needs huggingface_hub: pip install 'bertstream[hub]'"
    assert list(tmp_path.iterdir()) == []

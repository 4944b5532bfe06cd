"""Locations become absolute, and are refused with a login, once: where a job gets its settings."""

import ast
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from pipeline.command_line.options import kinds_of
from pipeline.config.bench import Bench
from pipeline.config.data import VocabularySettings
from pipeline.config.embed import Embed, Search
from pipeline.config.export import Export
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import mark_of, with_absolute_locations
from pipeline.config.pictures import Heads
from pipeline.config.predict import Compare, Predict, Score
from pipeline.config.prepare import Prepare
from pipeline.config.show import View
from pipeline.config.speedrun import Speedrun
from pipeline.errors import JOBS, ConfigError, PipelineError
from pipeline.files.locations import absolute, is_absolute, is_url, without_login
from tests.refusals import refusal

ROOT = Path(__file__).parents[3]
SETTINGS = (Pretrain, Speedrun, Finetune, Compare, Predict, Score, Export, Prepare, *get_args(View), *get_args(Bench))
NO_LOCATIONS = {
    *(
        "name",
        "text",
        "pair",
        "negative",
        "choices",
        "label",
        "intent",
        "task",
        "split",
        "start_from",
        "register",
        "source",
        "preset",
        "workers",
        "tokens",
    ),
    *("kinds", "license", "language", "push_to_hub", "recipe.metric", "search.over", "tracking.experiment"),
    *("placement.address", "placement.worker_resource", "sentence", "word", "query", "rerank_label"),
    *("sampling.query_prompt", "sampling.document_prompt", "objective.teacher_prompt"),
    *("tracking.uri", "mlflow_uri"),  # made absolute by tracking_uri, together with MLFLOW_TRACKING_URI
}
"""Settings that are texts and no files or folders."""
LOCATIONS_ELSEWHERE_TEXTS = {(Heads, "text"), (Speedrun, "text")}
"""Settings that are locations under a name that is a text's in other jobs."""
CALLERS = {
    "absolute": {
        *("pipeline/config/locations.py", "pipeline/api.py", "pipeline/embed/loaded.py", "pipeline/tracking/runs.py"),
        *("pipeline/bench/gpu.py", "pipeline/bench/train.py"),
        *(
            "pipeline/embed/query_files.py",
            "pipeline/adapt/queries.py",
        ),  # `queries` is a location only if a file has this name, else it is a text
        *("pipeline/corpus/stream.py", "pipeline/tracking/trainer.py"),  # doors for trainers of others
        "pipeline/saved/run.py",  # a run is named, by what is in its output folder, before it reaches the door
    },
    "with_absolute_locations": {
        *(f"pipeline/workflows/{job}.py" for job in JOBS),
        *(
            "pipeline/bench/finetune.py",
            "pipeline/bench/train.py",
            "pipeline/bench/vectors.py",
            "pipeline/adapt/plan.py",
            "pipeline/workflows/inputs.py",
            "pipeline/train/plan_here.py",
        ),
        "pipeline/serve/application.py",  # the door of Ray Serve's configuration files
        "pipeline/ablation/budget.py",  # reads the streams of variants, whose locations pretraining makes absolute
    },
}
"""Function -> the modules that call it: everything below them has absolute locations."""


def marked(settings: type, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Dotted name of each setting that holds texts, and whether its type makes it a location."""
    hints, plain = get_type_hints(settings, include_extras=True), get_type_hints(settings)
    for field in dataclasses.fields(settings):
        for kind in kinds_of(plain[field.name]):
            yield from marked(kind, f"{prefix}{field.name}.")
        if str in (plain[field.name], *get_args(plain[field.name])):
            yield f"{prefix}{field.name}", mark_of(hints[field.name]) is not None


def test_every_text_setting_is_a_location_or_known_to_be_none() -> None:
    wrong = []
    for settings in SETTINGS:
        for name, is_location in marked(settings):
            is_text = name in NO_LOCATIONS and (settings, name) not in LOCATIONS_ELSEWHERE_TEXTS
            if is_location == is_text:
                wrong.append(f"{settings.__name__}.{name}: give it the type Location, or list it in this file")
    assert wrong == []


def test_locations_are_made_absolute_at_the_door_alone() -> None:
    files = [path for folder in ("pipeline", "jobs") for path in (ROOT / folder).rglob("*.py")]
    callers: dict[str, set[str]] = {name: set() for name in CALLERS}
    for path in files:
        text = path.read_text()
        assert ".absolute()" not in text.replace("expanduser().absolute()", ""), path
        imported = {
            alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        for name in imported & set(CALLERS):
            callers[name].add(str(path.relative_to(ROOT)))
    assert callers == CALLERS


def test_every_location_of_a_configuration_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = with_absolute_locations(
        Pretrain(
            corpus=(
                "a/*.gz::format=text::weight=2",
                "builtin",
                "builtin::weight=2",
                "./builtin",
                "s3://b/c/::column=d",
            ),
            init="bert",
            output="out/",
            vocabulary=VocabularySettings(path="~/v.txt", lowercase=True),
        )
    )
    assert found.corpus == (
        *(f"{tmp_path}/a/*.gz::format=text::weight=2", "builtin", "builtin::weight=2", f"{tmp_path}/builtin"),
        "s3://b/c::column=d",
    )
    assert (found.init, found.output) == (f"{tmp_path}/bert", f"{tmp_path}/out")
    assert (found.vocabulary.path, found.vocabulary.lowercase) == (str(Path.home() / "v.txt"), True)
    assert with_absolute_locations(found) == found
    both = with_absolute_locations(Compare(checkpoint=("a", "hf://b/c"), task=("sst2",)))
    assert (both.checkpoint, both.data, both.output) == ((f"{tmp_path}/a", "hf://b/c"), None, f"{tmp_path}/output")


@pytest.mark.parametrize("job", ["pretrain", "finetune", "compare", "predict", "score", "export", "embed", "search"])
def test_jobs_take_relative_locations_from_python(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.workflows.compare import compare
    from pipeline.workflows.embed import embed
    from pipeline.workflows.export import export
    from pipeline.workflows.finetune import finetune
    from pipeline.workflows.predict import predict
    from pipeline.workflows.pretrain import pretrain
    from pipeline.workflows.score import score
    from pipeline.workflows.search import search

    calls: dict[str, Callable[[], Any]] = {
        "pretrain": lambda: pretrain(Pretrain(corpus=("none",), name="a"), print),
        "finetune": lambda: finetune(Finetune(checkpoint="none", task=("sst2",)), print),
        "compare": lambda: compare(Compare(checkpoint=("none", "other"), task=("sst2",)), print),
        "predict": lambda: predict(Predict(checkpoint="none", input="a.csv", output="b.csv"), print),
        "score": lambda: score(Score(checkpoint="none", input="a.csv"), print),
        "embed": lambda: embed(Embed(checkpoint="none", input="a.csv", output="b"), print),
        "search": lambda: search(Search(vectors="none", queries="a"), print),
        "export": lambda: export(Export(run="none"), print),
    }
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipelineError, match=f"{tmp_path}/none"):
        calls[job]()


def test_urls() -> None:
    places = ("s3://bucket/key", "file:///a", "/a/b", "a:b", "c")
    assert [is_url(place) for place in places] == [True, True, False, False, False]
    assert [is_absolute(place) for place in places] == [True, False, True, False, False]


def test_absolute_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert absolute("out/x") == f"{tmp_path}/out/x" and absolute("/a/b/") == "/a/b"
    assert absolute("~/x") == "/home/somebody/x"
    assert absolute("s3://bucket/key/") == "s3://bucket/key" and absolute("file:///a/b") == "/a/b"
    assert absolute("file:///a%20b#1?") == "/a b#1?" and absolute("file://localhost/a") == "/a"
    for relative in ("file://books", "file://books/a.txt"):
        with pytest.raises(ConfigError, match=f"^{relative} has no absolute path: write file:///FOLDER/FILE, or the "):
            absolute(relative)


def test_no_location_of_a_run_may_have_a_login_in_it() -> None:
    with pytest.raises(ConfigError, match=r"^s3://\*\*\*@bucket/output was given with a login in it"):
        absolute("s3://key:secret@bucket/output")
    for given, shown in (
        ("HTTPS://SECRET@host/a", "HTTPS://***@host/a"),
        ("hf://SECRET@datasets/a", "hf://***@datasets/a"),
        ("https://host/a.txt?api_key=SECRET&lines=2", "https://host/a.txt?api_key=***&lines=2"),
        ("https://host/a.txt?lines=2;token=SECRET", "https://host/a.txt?lines=2;token=***"),
        ("https://host/a.txt#access_token=SECRET", "https://host/a.txt#access_token=***"),
        (
            "https://host/a?subscription-key=SECRET&pwd=SECRET&auth=SECRET",
            "https://host/a?subscription-key=***&pwd=***&auth=***",
        ),
        ("https://host/a?apikey=SECRET&key=SECRET", "https://host/a?apikey=***&key=***"),
    ):
        assert without_login(given) == shown
        with pytest.raises(ConfigError, match="with a login in it"):
            absolute(given)
    for plain in (
        "hf://datasets/owner/name@main/a.txt",
        "gs://anonymous@bucket/a",
        "https://host:8080/a?monkey=1&keyboard=2&authors=3",
        "s3://bucket/a?region=eu",
    ):
        assert without_login(plain) == plain


NO_PATHS = {
    "out/" + "n" * 256: f"out/{'n' * 76}… is not a valid path: a name in it has 256 bytes, and at most 255 are allowed",
    "é" * 128: f"{'é' * 80}… is not a valid path: a name in it has 256 bytes, and at most 255 are allowed",
    "/".join(["n" * 255] * 16)
    + "/": f"{'n' * 80}… is not a valid path: it has 4096 bytes, and at most 4095 are allowed",
    "a\udcffb": "a\\udcffb is not a valid path: it is not UTF-8",
    "a\0b": "a\0b is not a valid path: it holds a zero byte",
}


def test_what_can_be_no_path_is_said() -> None:
    assert {path: refusal(absolute, path) for path in NO_PATHS} == NO_PATHS


def test_the_longest_path_is_one():
    longest = "/" + "/".join(["n" * 255] * 16)[1:]
    assert len(longest) == 4095 and absolute(longest) == longest

"""Answers of the models in the kept folders, by this checkout's code; the paths are relative to a copy of them."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from jobs import search
from pipeline import api
from tests.kept import commands

EXPECTED, ANSWERS = "expected.json", "answers"
BLANK = "kar lond [MASK] nest"
TEXTS = ["kar lond mist", "neT sur, tap?", "lop"]
CODE = ("mlflow-run/served.py", "mlflow-task/served_task.py")
PRETRAINED = {"run": "output/runs/stopped", "export": "export", "modernbert": "modernbert"}


def all_answers() -> dict[str, Any]:
    """Return kept folder -> answers, as JSON values."""
    answers = {name: pretrained(folder) for name, folder in PRETRAINED.items()}
    answers |= {f"{name} (tuned)": tuned(f"models/{name}") for name in (*commands.TUNINGS, "moods")}
    return answers | {"search": found(), "mlflow": mlflow_answers()}


def pretrained(folder: str) -> Any:
    model = api.load(folder, "cpu")
    return {"fill": model.fill(BLANK), "vectors": model.embed(TEXTS).tolist(), "states": model.cls(TEXTS).tolist()}


def tuned(folder: str) -> Any:
    """Return answers to texts, or to pairs of texts where the task has them."""
    model = api.load(folder, "cpu")
    assert model.tuned is not None
    pairs = model.tuned.about.task.kind == "similarity"
    return {
        "answers": model.predict([(text, TEXTS[0]) for text in TEXTS] if pairs else TEXTS),
        "vectors": model.embed(TEXTS).tolist(),
        "scores": model.scores,
    }


def found() -> Any:
    """Return the texts that a search with the index finds."""
    assert search.main([*commands.SEARCH, TEXTS[0], "--replace"]) == 0
    results = json.loads(Path("found.jsonl").read_text())["results"]
    return [{name: result[name] for name in ("id", "score", "text")} for result in results]


def mlflow_answers() -> Any:
    """Return answers of the models that MLflow loads by the code in their folders."""
    served, task = (mlflow.pyfunc.load_model(str(Path(name).absolute())) for name in ("mlflow-run", "mlflow-task"))
    texts = pd.DataFrame({"text": [BLANK, *TEXTS]})
    return {
        "fill-mask": served.predict(texts, params={"top": 2}),
        "embeddings": served.predict(texts, params={"task": "embeddings"}),
        "task": task.predict(texts),
    }

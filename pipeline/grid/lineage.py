"""Trace a checkpoint back to the fine-tuned models, the pretraining run and the corpus behind it."""

from typing import Any

from pipeline.errors import PipelineError
from pipeline.files import storage
from pipeline.files.locations import is_absolute
from pipeline.saved.checkpoints import TASK
from pipeline.saved.run import read_run
from pipeline.train.initial import Initial

OF_A_RUN = ("checkpoints", "export", "exports")
"""Subfolders of a run that contain models."""
DEEPEST = 3
"""Maximum depth of a model below its run's folder: 3, as in exports/step-1000/huggingface."""


def lineage(checkpoint: str, initial: Initial) -> dict[str, str]:
    """Return MLflow tags: checkpoint, encoder (its fingerprint), and the checkpoint's ancestors, if they are known."""
    return {"checkpoint": checkpoint, "encoder": initial.fingerprint} | _ancestors(checkpoint, frozenset())


def _ancestors(location: str, seen: frozenset[str]) -> dict[str, str]:
    """Return the tags of a model's ancestors: the fine-tuning trials, the pretraining run and the corpus.

    Tag finetuned_from has the names of the trials, the last trial first. `seen` are the locations of models that were
    already traced: tracing stops there, so that a cycle of models ends.
    """
    try:
        tuned = _tuned_from(location)
    except (OSError, ValueError, PipelineError):  # lineage is optional; a damaged model was refused when it was read
        return {}
    if tuned is None:
        return _pretraining(location)
    source, seen = tuned["checkpoint"], seen | {location}
    tags = _ancestors(source, seen) if is_absolute(source) and source not in seen else {}
    earlier = tags.pop("finetuned_from", None)
    return {"finetuned_from": tuned["trial"] if earlier is None else f"{tuned['trial']} {earlier}"} | tags


def _tuned_from(location: str) -> dict[str, Any] | None:
    """Return the lineage that a fine-tuned model's folder records; None if it lacks the checkpoint or the trial."""
    file = storage.join(location, TASK)
    if not storage.exists(file):
        return None
    try:
        recorded = storage.read_json(file)["lineage"]
        return recorded if {"checkpoint", "trial"} <= recorded.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _pretraining(location: str) -> dict[str, str]:
    """Return the tags of a model's run and of the run's corpus; empty if the model is not in the folder of a run."""
    parts = location.rstrip("/").split("/")
    for depth in range(1, DEEPEST + 1):
        if len(parts) > depth + 1 and parts[-depth] in OF_A_RUN:
            return _run_lineage("/".join(parts[:-depth]))
    return {}


def _run_lineage(folder: str) -> dict[str, str]:
    """Return the tags of a run and its corpus, from run.json; empty if the file is missing or unreadable."""
    try:
        recorded = read_run(folder)
    except (OSError, PipelineError):
        return {}
    if recorded is None:
        return {}
    facts = {
        "pretraining_run": recorded["mlflow_run_id"],
        "pretraining_folder": folder,
        "corpus": recorded["identity"].get("corpus.fingerprint"),
        "corpus_folder": recorded["corpus"],
    }
    return {name: str(value) for name, value in facts.items() if value is not None}

"""Trace a checkpoint back to the fine-tuned models, the pretraining run and the corpus behind it."""

from typing import Any

from pipeline import storage
from pipeline.errors import PipelineError
from pipeline.locations import is_absolute
from pipeline.train.initial import Initial
from pipeline.train.run import read_run
from pipeline.train.tuned import TASK

OF_A_RUN = ("checkpoints", "export", "exports")
"""Subfolders of a run that contain models."""
DEEPEST = 3
"""Maximum number of folders between a run and a model, as in exports/step-1000/huggingface."""


def lineage(checkpoint: str, initial: Initial) -> dict[str, str]:
    """Return MLflow tags: checkpoint, encoder (its fingerprint) and, as far as known, their ancestors."""
    return {"checkpoint": checkpoint, "encoder": initial.fingerprint} | _ancestors(checkpoint, frozenset())


def _ancestors(location: str, seen: frozenset[str]) -> dict[str, str]:
    """Return finetuned_from, the chain of trials from last to first, and the pretraining behind them."""
    try:
        said = _tuned_from(location)
    except (OSError, ValueError, PipelineError):  # lineage is optional; a damaged model was refused when it was read
        return {}
    if said is None:
        return _pretraining(location)
    before, seen = said["checkpoint"], seen | {location}
    behind = _ancestors(before, seen) if is_absolute(before) and before not in seen else {}
    earlier = behind.pop("finetuned_from", None)
    return {"finetuned_from": said["trial"] if earlier is None else f"{said['trial']} {earlier}"} | behind


def _tuned_from(location: str) -> dict[str, Any] | None:
    """Return the lineage stored in a fine-tuned model's folder; None for other models."""
    file = storage.join(location, TASK)
    if not storage.exists(file):
        return None
    try:
        said = storage.read_json(file)["lineage"]
        return said if {"checkpoint", "trial"} <= said.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _pretraining(location: str) -> dict[str, str]:
    """Return the tags of the run that contains a model, and of its corpus; empty for other models."""
    parts = location.rstrip("/").split("/")
    for depth in range(1, DEEPEST + 1):
        if len(parts) > depth + 1 and parts[-depth] in OF_A_RUN:
            return _run_lineage("/".join(parts[:-depth]))
    return {}


def _run_lineage(folder: str) -> dict[str, str]:
    """Return the tags from a run's run.json."""
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

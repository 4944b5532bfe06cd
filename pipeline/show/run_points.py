"""Read the metrics that a run logged to MLflow."""

import os
from typing import Any

from pipeline.objectives.table import CURVES
from pipeline.saved import run
from pipeline.saved.run import recorded_run
from pipeline.tracking.curves import Points, frequency_guess
from pipeline.tracking.runs import MlflowRun, logged_points, tracking_uri


def read_points(folder: str, uri: str | None) -> Points:
    """Return metric -> step -> value of a run, finished or running.

    The MLflow store is `uri`, or else the URI in the run's summary, or else the default store of runs in this output
    folder. Raises ConfigError if the folder is not a run, or if the store does not have the run.
    """
    recorded = recorded_run(folder)
    return logged_points(MlflowRun(uri=_store(folder, uri), run_id=recorded["mlflow_run_id"]))


def _store(folder: str, uri: str | None) -> str:
    summary: dict[str, Any] = run.read_summary(folder) or {}
    output = os.path.dirname(os.path.dirname(folder.rstrip("/")))
    return tracking_uri(uri or summary.get("mlflow_uri"), output)


def name_of(folder: str) -> str:
    """Return the name of the run in a folder."""
    return folder.rstrip("/").rsplit("/", 1)[-1]


def newest_losses(points: Points) -> list[str]:
    """Return a line of text per loss term, with its newest training loss, newest held-out loss and baseline."""
    result = []
    for curve in CURVES:
        training = points.get(f"train/{curve.term}_loss", {})
        if not training:
            continue
        step = max(training)
        parts = [f"{curve.term.upper()} loss at step {step:,}: training {training[step]:.3f}"]
        if heldout := points.get(f"heldout/{curve.term}_loss", {}):
            last = max(heldout)
            unit = " nats" if "nats" in curve.label else ""
            parts.append(f"held-out {heldout[last]:.3f}{unit} after step {last:,}")
            if 0 in heldout:
                parts.append(f"before training {heldout[0]:.3f}")
        guess = frequency_guess(curve, points)
        if guess is not None:
            parts.append(f"{curve.guess_label} {guess:.3f}")
        result.append(", ".join(parts))
    return result

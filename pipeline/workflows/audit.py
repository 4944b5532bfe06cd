"""Audit a run: which of the given texts it has seen, at which steps and with which masks."""

from typing import Any

from pipeline.audit.receipt import lines, log, receipt, write
from pipeline.audit.search import search
from pipeline.audit.steps import TrainedRun
from pipeline.audit.texts import read_texts, require_findable
from pipeline.config.audit import Audit
from pipeline.config.locations import with_absolute_locations
from pipeline.on_ray import cluster
from pipeline.reporting import Report


def audit(config: Audit, report: Report) -> dict[str, Any]:
    """Search the run's corpus and rows, report what was found, and write it to the run's folder and to MLflow.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    config = with_absolute_locations(config)
    trained = TrainedRun.of(config.run)
    texts = read_texts(config, report)
    require_findable(texts)
    cluster.connect(None)
    with cluster.ray_errors_as_cluster_lost():
        splits = receipt(trained, texts, *search(trained, texts, report))
    for line in lines(trained, splits):  # first, because the folder of another's run may be read-only
        report(line)
    report(f"all of it is in {write(trained, splits)}; an export's card will have the table")
    log(trained, report)
    return splits

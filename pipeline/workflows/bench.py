"""Measure the pipeline on this machine and compare it with alternatives."""

from pipeline.bench.benches import BENCHES
from pipeline.config.bench import Bench
from pipeline.config.locations import with_absolute_locations
from pipeline.reporting import Report


def bench(config: Bench, report: Report) -> int:
    """Measure and print; return 1 if a ratio is below its floor, else 0.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    return BENCHES[type(config)](with_absolute_locations(config), report)

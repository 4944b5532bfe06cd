"""A run on a simulated cluster loses a node without warning and gains another: no row is lost or repeated.

`make chaos` has the other faults.
"""

from pathlib import Path

import pytest

from tests.chaos.faults import Scene, node_removed
from tests.chaos.simulated import Run, Site, compare, history, small_corpus

STEPS = 400


@pytest.mark.long
@pytest.mark.timeout(420)
def test_losing_and_adding_a_node_changes_no_losses(tmp_path: Path):
    site = Site(2)
    try:
        tracking = f"sqlite:///{tmp_path}/output/mlflow.db"
        common = {
            "corpus": small_corpus(tmp_path / "corpus"),
            "output": tmp_path / "output",
            "steps": STEPS,
            "tracking": tracking,
        }
        undisturbed = Run(name="undisturbed", workers="1", **common)
        undisturbed.drive(site.address).wait_for_end()
        disturbed = Run(name="disturbed", workers="1..2", **common)
        driver = disturbed.drive(site.address)
        driver.wait_for_step(40)
        assert len(site.trainer_processes()) == 2
        seconds = node_removed(Scene(site=site, run=disturbed, driver=driver))
        driver.wait_for(lambda: len(site.trainer_processes()) == 2, 120, "a worker on the node that came")
        assert driver.step < STEPS
        driver.wait_for_end()
    finally:
        site.stop()
    difference = compare(history(undisturbed), history(disturbed), STEPS)
    print(f"a node went: a new step on the one that was left after {seconds:.0f} s; {difference}")
    assert (difference.rows_wrong, difference.missing) == (0, []) and difference.loss < 1e-4

"""Random faults on a simulated cluster: `make chaos MINUTES=20 SEED=0`.

Every kind comes once before any comes again.

    python -m tests.chaos.run --minutes 20 --seed 0 [--only "node added"]

Each run is compared, step by step, with one that nothing happened to; the tally comes at the end. Exit code 1 when a
row or a loss differs.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.faults import FAULTS, Scene
from tests.chaos.simulated import Difference, Run, Server, Site, compare, history, small_corpus, spread

LOSS_TOLERANCE = 1e-3
"""Nats: sums in another order, over the steps of a run."""
CALM_STEPS = 15
"""Between the recovery from one fault and the next."""


def kinds(seed: int, only: list[str]) -> Iterator[str]:
    """Yield every kind of fault once in random order, then random kinds without end."""
    draw, names = random.Random(seed), only or list(FAULTS)
    yield from draw.sample(names, len(names))
    while True:
        yield draw.choice(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_500, help="of each run")
    parser.add_argument("--only", action="append", default=[], choices=list(FAULTS))
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bertstream-chaos-"))
    site, server = Site(2), Server(folder)
    try:
        return chaos(folder, site, server, chosen)
    finally:
        server.stop()
        site.stop()
        shutil.rmtree(folder, ignore_errors=True)


def chaos(folder: Path, site: Site, server: Server, chosen: argparse.Namespace) -> int:
    common = {
        "corpus": small_corpus(folder / "corpus"),
        "output": folder / "output",
        "steps": chosen.steps,
        "tracking": server.uri,
    }
    reference = Run(name="undisturbed", workers="2", **common)
    reference.drive(site.address).wait_for_end()
    undisturbed = history(reference)
    print(
        f"an undisturbed run of {chosen.steps:,} steps is there; faults for {chosen.minutes:g} minutes from seed "
        f"{chosen.seed}",
        flush=True,
    )
    started, waiting, number = time.monotonic(), kinds(chosen.seed, chosen.only), 0
    seconds: dict[str, list[float]] = {}
    differences: list[Difference] = []
    while time.monotonic() - started < 60 * chosen.minutes:
        number += 1
        run = Run(name=f"disturbed-{number}", workers="1..3", **common)
        scene = Scene(site=site, run=run, driver=run.drive(site.address), server=server)
        scene.driver.wait_for_step(30)
        while scene.driver.step < chosen.steps - 150 and time.monotonic() - started < 60 * chosen.minutes:
            kind = next(waiting)
            try:
                took = FAULTS[kind](scene)
            except AssertionError as error:
                print(f"{kind} was not survived: {error}", flush=True)
                return 1 + tally(seconds, differences)
            seconds.setdefault(kind, []).append(took)
            print(
                f"{time.monotonic() - started:6.0f} s  {run.name} step {scene.driver.step:5}  {kind}: "
                f"a new step after {took:.0f} s",
                flush=True,
            )
            if scene.driver.step < chosen.steps - CALM_STEPS:
                scene.driver.wait_for_step(scene.driver.step + CALM_STEPS)
        scene.driver.wait_for_end(600)
        differences.append(compare(undisturbed, history(run), chosen.steps))
        print(f"{time.monotonic() - started:6.0f} s  {run.name} is finished: {differences[-1]}", flush=True)
    return tally(seconds, differences)


def tally(seconds: dict[str, list[float]], differences: list[Difference]) -> int:
    """Print the faults survived and their cost; return 1 if anything differs."""
    width = max(map(len, seconds), default=0)
    print("\nfault" + " " * (width - 3) + "times  seconds to the next new step")
    for kind, took in sorted(seconds.items()):
        print(f"{kind:<{width}}  {len(took):>5}  {spread(took)}")
    rows, wrong = sum(d.rows for d in differences), sum(d.rows_wrong for d in differences)
    missing, loss = sum(len(d.missing) for d in differences), max((d.loss for d in differences), default=0.0)
    faults = sum(map(len, seconds.values()))
    print(
        f"\n{faults} faults survived in {len(differences)} runs; {rows:,} rows compared, {wrong} lost or doubled; "
        f"{missing} points missing; largest difference of a loss {loss:.1e} nats"
    )
    return int(wrong > 0 or missing > 0 or loss > LOSS_TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())

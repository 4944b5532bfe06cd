"""Speedrun: prepare a text, pretrain on it with several seeds, and score each model on BLiMP."""

import time
from typing import Any

from pipeline.ablation.outcomes import BITS, BLIMP, blimp_scores, heldout_scores, require_budget
from pipeline.ablation.speedrun import Lap, lap_lines, require_few_words, require_text, require_whole, words_of
from pipeline.config.jobs import Pretrain, with_words_rate
from pipeline.config.locations import with_absolute_locations
from pipeline.config.measurements import Selection
from pipeline.config.speedrun import Speedrun
from pipeline.evaluation.minimal_pairs.paradigms import read_blimp
from pipeline.on_ray import cluster
from pipeline.reporting import Report, duration
from pipeline.saved.naming import with_name
from pipeline.train.run_data import find_corpus, prepared_corpus
from pipeline.workflows.pretrain import pretrain
from pipeline.workflows.score import score


@cluster.ray_errors_as_cluster_lost()
def speedrun(config: Speedrun, report: Report) -> list[str]:
    """Train and score the seeds that have no result yet, one after the other; return the lines of the table.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    # Names first, because they depend on the locations as given, not on absolute ones.
    runs = [with_absolute_locations(with_name(with_words_rate(run), config.preset)) for run in config.runs]
    config, started = with_absolute_locations(config), time.perf_counter()
    require_budget(runs)
    require_text(config.text)
    require_whole(config.blimp, read_blimp(config.blimp, report))
    listed = find_corpus(runs[0], report)
    cluster.connect(config.placement.address)
    words = words_of(prepared_corpus(runs[0], listed, report))
    require_few_words(config.text, words)
    report(f"{words:,} words; preparing took {duration(time.perf_counter() - started)}")
    return lap_lines([_lap(config, run, report) for run in runs], words)


def _lap(config: Speedrun, run: Pretrain, report: Report) -> Lap:
    """Train and score one seed, unless it is done, and report the time of each."""
    begun = time.perf_counter()
    summary = pretrain(run, report)
    trained = time.perf_counter()
    even = _pll(config, run, summary, "even", report)
    # Each of BLiMP's paradigms has as many even pairs as odd ones, so the whole is the mean of both.
    whole = (even + _pll(config, run, summary, "odd", report)) / 2
    scored = duration(time.perf_counter() - trained)
    report(
        f"seed {run.seed}: trained in {duration(summary['training_seconds'])}; the run took this command "
        f"{duration(trained - begun)}, the scores {scored}"
    )
    return Lap(
        seed=run.seed,
        steps=summary["steps"],
        tokens=summary["tokens"],
        epoch=summary["epochs"],
        seconds=summary["training_seconds"],
        bits_per_byte=heldout_scores(summary["heldout_after"]).get(BITS),
        even=even,
        whole=whole,
    )


def _pll(config: Speedrun, run: Pretrain, summary: dict[str, Any], pairs: Selection, report: Report) -> float:
    """Return the accuracy on pairs of BLiMP by pseudo-log-likelihood, from 0 to 1."""
    return blimp_scores(run, config.blimp, pairs, summary, score, report)[BLIMP["pll"]]

"""Train the variants of an ablation on a file of tokens, without Ray, and compare them as `jobs/ablate.py` does.

    python -m tests.benchmarks ablation parts --file tokens.arrow --tokens 15M --seeds 3 --blimp BLIMP --at-once 8
    python -m tests.benchmarks ablation parts --file tokens.arrow --tokens 15M --turns 20

Options are those of `jobs/ablate.py`. Runs are trained in processes of their own, --at-once of them at a time (default:
1). A finished run is not trained again. There is no MLflow run and no fine-tuning. With --turns, nothing is trained:
steps of the variants are timed in turns.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from typing import Any

import torch

from pipeline.ablation.command import read_ablate_with_extra
from pipeline.ablation.outcomes import Outcome, outcome_of
from pipeline.ablation.results import result_of
from pipeline.ablation.table import table_lines
from pipeline.ablation.variants import Variant, ablation_name, variants_of
from pipeline.bench.token_steps import row_lengths
from pipeline.bench.train import RESULT, train_on_tokens
from pipeline.bench.train import slots as cut_into_slots
from pipeline.bench.turns import median_seconds
from pipeline.command_line.arguments import Extra
from pipeline.command_line.columns import aligned
from pipeline.command_line.options import flag_of
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.ablate import Ablate
from pipeline.config.checks import require
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus import token_file
from pipeline.corpus.token_file import TokenFile, rows_of_window
from pipeline.errors import ConfigError
from pipeline.evaluation.minimal_pairs.figures import METRICS
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm, read_blimp, select
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.reporting import duration, no_op, print_line
from pipeline.saved.run import run_folder
from pipeline.train.building import build_module
from pipeline.train.counted_steps import steps_for_tokens
from pipeline.train.hardware import autocast_of, chosen_precision, cores, required_device
from pipeline.train.slots import make_slot
from pipeline.train.step import StepContext, train_step

SOURCE = "source.json"
"""File in a run's folder: the text that it was trained on, and the minimal pairs that it was scored on."""
EXTRA = (
    Extra(name="file", metavar="FILE", text="File of tokens, which `python jobs/bench.py tokens` writes. Required."),
    Extra(name="turns", metavar="N", text="Number of steps of each variant that are timed, instead of training."),
)


def _with_steps(variant: Variant, config: Ablate, tokens: TokenFile, location: str) -> Variant:
    """Return the variant with the steps of each seed, so that its tokens are nearest to config.tokens."""
    assert config.token_count is not None
    steps = {}
    for seed in config.all_seeds:
        samplings = dict.fromkeys(phase.sampling for phase in variant.config.all_phases)
        rows = {each: row_lengths(tokens, location, each, seed) for each in samplings}
        steps[seed] = steps_for_tokens(replace(variant.config, seed=seed), config.token_count, rows)
    return replace(variant, steps=steps)


def _step_of(config: Pretrain, tokens: TokenFile, device: torch.device) -> Callable[[int], None]:
    """Return a function that takes a step of a new run on the run's first rows; its argument is not used."""
    rows, needed = [], config.batch.rows_per_step
    while sum(table.num_rows for table in rows) < needed:
        rows.append(rows_of_window(tokens, config.sampling, config.seed, len(rows)))
    batch = config.batch
    slots = list(islice(cut_into_slots(iter(rows), batch.slot_rows), batch.slots_per_step))
    precision = chosen_precision(config.placement, device)
    module = build_module(config, tokens.vocabulary.size, device, precision)
    optimizer = build_optimizer(config.optimizer, module)
    made = [make_slot(table, index, module.counts) for index, table in enumerate(slots)]
    counts = {term: sum(slot.record.counts[i] for slot in made) for i, term in enumerate(module.terms)}
    compute = StepContext(device=device, autocast=autocast_of(precision, device), seed=config.seed)

    def step(_: int) -> None:
        train_step(
            module,
            optimizer,
            [(slot.record.index, slot.batch) for slot in made],
            divisors(counts, module.weights),
            compute,
            step=0,
            rate=config.optimizer.learning_rate,
            clip_norm=config.optimizer.clip_norm,
        )

    return step


def _report_turns(config: Ablate, variants: Sequence[Variant], tokens: TokenFile, turns: int) -> None:
    """Print the median time of a step of each variant, eager; the variants take steps in turn."""
    torch.set_num_threads(config.placement.threads or cores())
    device = required_device(config.placement)
    steps = {each.label: _step_of(each.config, tokens, device) for each in variants}
    seconds = median_seconds(steps, device, turns)
    first = seconds[variants[0].label]
    rows = [[label, f"{1000 * value:.1f}", f"{value / first:.2f}"] for label, value in seconds.items()]
    print("\n".join(aligned(["variant", "milliseconds per step", f"/ {variants[0].label}"], rows)))


def _source(config: Ablate, tokens: TokenFile) -> dict[str, Any]:
    """Return what a run's measurements depend on, except the settings in its name."""
    text = {"corpus": tokens.corpus, "vocabulary": tokens.vocabulary.fingerprint, "windows": len(tokens.train)}
    return text | {"pairs": config.blimp and config.blimp_pairs}


def _result(run: Pretrain, source: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a finished run measured, or None.

    Raises ConfigError for what a stopped run has left, or if the run was measured with another `source`.
    """
    folder = run_folder(run)
    found = storage.read_object(storage.join(folder, RESULT))
    before = storage.read_object(storage.join(folder, SOURCE))
    require(
        found is None or before == source,
        f"{folder} was trained on other text or scored on other pairs ({before} instead of {source}): choose another "
        "output",
    )
    require(
        found is not None or not storage.children(folder),
        f"{folder} is of a run that was stopped, which cannot be continued: delete this folder",
    )
    return found


def _train(run: Pretrain, location: str, pairs: Sequence[Paradigm], source: dict[str, Any]) -> dict[str, Any]:
    """Train a run, in a process of its own, and write its `source`."""
    measured = train_on_tokens(run, location, no_op, pairs)  # lines of several runs would be mixed
    storage.write_json(storage.join(run_folder(run), SOURCE), source)
    return measured


def _train_all(
    runs: dict[str, Pretrain], location: str, pairs: Sequence[Paradigm], at_once: int, source: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Train the runs {label: run} that are not finished; return {label: what the run measured}."""
    measured = {label: found for label, run in runs.items() if (found := _result(run, source)) is not None}
    with ProcessPoolExecutor(at_once, get_context("spawn"), max_tasks_per_child=1) as processes:
        missing = {
            label: processes.submit(_train, run, location, pairs, source)
            for label, run in runs.items()
            if label not in measured
        }
        try:
            for label, future in missing.items():
                measured[label] = future.result()
                print_line(f"{label}: trained in {duration(measured[label]['training_seconds'])}")
        except BrokenProcessPool as error:
            raise ConfigError(
                f"a process that trains ended, perhaps because memory ran out: train fewer runs at the same time than "
                f"{at_once} (at-once)"
            ) from error
        finally:
            processes.shutdown(wait=True, cancel_futures=True)
    return measured


def _outcome(config: Ablate, run: Pretrain, measured: dict[str, Any]) -> Outcome:
    """Return a run's outcome, with the accuracies on minimal pairs that the run itself measured."""
    summary = measured | {"mlflow_run_id": ""}
    outcome = outcome_of(replace(config, blimp=None), run, summary, _unused, _unused, print_line)
    accuracies = {
        f"BLiMP {scoring}": measured["blimp"][metric] for scoring, metric in METRICS.items() if measured["blimp"]
    }
    return replace(outcome, scores=outcome.scores | accuracies)


def _unused(*_: Any) -> Any:
    """Raise an error: scores that need Ray are not asked for."""
    raise AssertionError("an ablation without Ray has no such scores")


def _whole_number(text: str) -> int:
    """Parse the value of --turns."""
    require(text.isdecimal() and int(text) >= 1, f"turns ({text}) must be a whole number of at least 1")
    return int(text)


def main(arguments: Sequence[str]) -> int:
    """Parse, train and compare."""
    config, extra = read_ablate_with_extra(arguments, str(__doc__), "python -m tests.benchmarks ablation", EXTRA)
    if "file" not in extra:
        raise ConfigError(f"--file is missing: {EXTRA[0].text}")
    require(config.token_count is not None, "minutes cannot be set here: give --tokens")
    require(not config.task, f"task ({', '.join(config.task)}) needs Ray: use jobs/ablate.py, or leave task out")
    interrupt_on_sigterm()
    location, config = absolute(extra["file"]), with_absolute_locations(config)
    tokens, variants = token_file.read(location), variants_of(config)
    pairs = [] if config.blimp is None else select(read_blimp(config.blimp, print_line, "blimp"), config.blimp_pairs)
    if "turns" in extra:
        require(config.placement.graphs != "on", "turns are of code without CUDA graphs: leave placement.graphs out")
        for variant in variants:
            require(
                len(variant.config.all_phases) == 1,
                f"turns are of one phase, but phases of variant {variant.label!r} is "
                f"{flag_of(type(variant.config.phases))}: add phases:one-phase",
            )
        _report_turns(config, variants, tokens, _whole_number(extra["turns"]))
        return 0
    storage.require_writable("output", config.output)
    sized = [_with_steps(variant, config, tokens, location) for variant in variants]
    for variant in sized:
        print_line(f"{variant.label}: {', '.join(f'{steps:,}' for steps in variant.steps.values())} steps")
    at_once = config.at_once or 1
    placement = replace(config.placement, threads=config.placement.threads or max(1, cores() // at_once))
    runs = {
        f"{each.label}, seed {seed}": replace(each.run(seed), placement=placement)
        for seed in config.all_seeds
        for each in sized
    }
    measured = _train_all(runs, location, pairs, at_once, _source(config, tokens))
    outcomes = [
        [
            _outcome(config, runs[label], measured[label])
            for seed in config.all_seeds
            for label in [f"{each.label}, seed {seed}"]
        ]
        for each in sized
    ]
    print("", *table_lines(result_of(ablation_name(config, variants), config.budget, sized, outcomes)), sep="\n")
    return 0

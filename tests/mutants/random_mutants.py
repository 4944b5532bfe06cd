"""Measure how many random mutants the tests kill: `make random-mutants`.

    python -m tests.mutants.random_mutants [--count N] [--seed N] [--copies N] [--markers EXPRESSION]

Each mutant is one small change (operators.py) in one of the areas below, and the area's tests run until the first
failure. Unlike in run.py, every failure kills: an assertion, an exception, an import. So does a time above the limit,
because an endless loop does not pass either. The mutants depend on the code of pipeline/ and on the seed, not on the
tests, and a change of one function changes the mutants of that function alone. So the shares before and after a change
of the tests can be compared.

This is a script because mutmut (3.8) draws no random sample, runs the whole suite first to learn which test calls which
function, and forks a process that has loaded torch.

The exit code is 0 however many are killed: this is a measurement. It is 1 if tests fail without a mutant.
"""

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tests.mutants.mutant import ROOT
from tests.mutants.operators import Change, changes
from tests.mutants.run import FAILED, copy_project, in_copies, pytest, undone

LEAST_LIMIT, TIMES_UNCHANGED = 60.0, 5
"""A mutant's tests may take 60 s, or 5 times what they take without a mutant if that is more."""
MODELS = ("roberta", "modernbert", "deberta", "longformer", "bigbird", "compiled")
"""Words in the names of tests that are not run, for time: compilation, and families that only add a model."""
OBJECTIVES = ("electra", "distilbert", "albert")
"""The same words for tests that need no other objective than BERT's."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """Code that holds some guarantees, and the tests of these guarantees."""

    name: str
    code: tuple[str, ...]
    """Files in pipeline/, whole or as FILE::FUNCTION or FILE::CLASS."""
    without: tuple[str, ...] = ()
    """Functions and classes of whole files that have no mutants: they need Ray or a GPU, or describe something."""
    tests: tuple[str, ...]
    """Files of tests without Ray, the quickest and closest first."""
    left_out: tuple[str, ...] = MODELS
    """Words in the names of tests that are not run."""

    @property
    def chosen(self) -> str:
        """The area's tests that are run, as an expression for pytest -k."""
        return " and ".join(f"not {word}" for word in self.left_out)


DEALING = ("slots_of_rank", "slots_of_block", "rows_of_round", "slots_by_rank")
AREAS = (
    Area(
        name="order",
        code=("corpus/order.py",),
        without=DEALING,
        tests=("tests/unit/corpus/test_order.py", "tests/unit/train/test_phases.py"),
    ),
    Area(
        name="dealing",
        code=(*(f"corpus/order.py::{name}" for name in DEALING), "corpus/stream.py"),
        without=("build_stream", "stream_from_items", "blocks_for_ranks"),
        tests=(
            "tests/unit/corpus/test_order.py",
            "tests/unit/corpus/test_stream.py",
            "tests/unit/train/test_loop.py",
        ),
        left_out=MODELS + OBJECTIVES,
    ),
    Area(
        name="slots",
        code=(
            "train/slots.py",
            *(f"batch.py::{name}" for name in ("collate", "masked_batch", "_sequences", "_flat_sequences")),
        ),
        tests=(
            "tests/unit/test_batch.py",
            "tests/unit/train/test_slots.py",
            "tests/unit/tasks/test_choices.py",
            "tests/unit/train/test_loop.py",
            "tests/unit/train/test_contrastive_loop.py",
        ),
        left_out=MODELS + OBJECTIVES,
    ),
    Area(
        name="step",
        code=("train/step.py", "train/loop.py"),
        without=("_backward_of_graphs", "prepare", "_average_in_bfloat16"),
        tests=(
            "tests/unit/optim/test_build.py",
            "tests/unit/objectives/test_contrastive.py",
            "tests/unit/train/test_loop.py",
            "tests/unit/optim/test_loss_scale.py",
            "tests/unit/train/test_contrastive_loop.py",
            "tests/unit/train/test_phases.py",
            "tests/unit/train/test_reduce_precision.py",
        ),
        left_out=MODELS + OBJECTIVES,
    ),
    Area(
        name="terms",
        code=tuple(
            f"objectives/{name}.py"
            for name in ("terms", "masked", "replaced", "distilled", "contrastive", "sequences", "tokens")
        ),
        without=(
            *("described", "flops_per_token", "trained_parts", "start_text", "vectors_text"),
            *("masked_rows", "pair_rows", "replaced_rows", "distilled_rows", "contrastive_rows"),
        ),
        tests=(
            "tests/unit/objectives",
            "tests/parity/test_task_losses.py",
            "tests/parity/test_families.py",
            "tests/unit/evaluation/test_evaluate.py",
            "tests/unit/fine_tuned/test_tuned.py",
            "tests/golden/test_losses.py",
        ),
    ),
    Area(
        name="masking",
        code=("text/masking.py", "text/words.py"),
        tests=(
            "tests/unit/text/test_masking.py",
            "tests/unit/text/test_words.py",
            "tests/parity/test_added_tokens.py",
            "tests/golden/test_losses.py",
        ),
    ),
    Area(
        name="pairs",
        code=tuple(
            f"text/{name}.py" for name in ("next_sentence", "sentence_order", "chunks", "sequences", "contiguous")
        ),
        tests=(
            "tests/unit/text/test_pairs.py",
            "tests/unit/text/test_sentence_order.py",
            "tests/unit/text/test_contiguous.py",
            "tests/golden/test_losses.py",
        ),
    ),
    Area(
        name="checkpoint",
        code=("train/checkpoint.py", "train/saver.py", "train/extra_checkpoints.py"),
        tests=(
            "tests/unit/train/test_extra_checkpoints.py",
            "tests/unit/train/test_saver.py",
            "tests/unit/files/test_google_storage.py",
            "tests/unit/show/test_seen.py",
            "tests/unit/train/test_checkpoint.py",
            "tests/golden/test_losses.py",
        ),
    ),
    Area(
        name="storage",
        code=("files/storage.py", "files/local_files.py"),
        tests=tuple(
            f"tests/unit/files/test_{name}.py" for name in ("storage", "local_files", "google_storage", "locks")
        ),
    ),
    Area(
        name="WordPiece",
        code=(
            *("text/cached_tokenizer.py", "text/splitting.py"),
            *(
                f"text/cuts.py::{name}"
                for name in ("_word_classes", "cuts_around_words", "_starts_of_single_characters")
            ),
        ),
        tests=(
            "tests/unit/text/test_cached_tokenizer.py",
            "tests/unit/text/test_cuts.py",
            "tests/parity/test_added_tokens.py",
            "tests/unit/text/test_kinds.py",
        ),
    ),
    Area(
        name="scores",
        code=(
            *(f"tasks/metrics/{name}.py" for name in ("label_metrics", "entities", "squad", "ranking")),
            "evaluation/retrieval/ranking.py",
        ),
        tests=(
            *(f"tests/unit/tasks/metrics/test_{name}.py" for name in ("squad", "ranking", "label_metrics", "entities")),
            *(f"tests/unit/tasks/test_{name}.py" for name in ("word_columns", "selection")),
            "tests/unit/evaluation/retrieval/test_measures.py",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class RandomMutant:
    """A change of a file of an area."""

    area: Area
    file: str
    """File in pipeline/."""
    change: Change
    line: int
    before: str
    after: str
    """The changed line."""

    def draw(self, seed: int, number: int) -> str:
        """Return a number in hexadecimal that is random, but the same for the same seed and the same code.

        `number` tells apart the changes of equal lines of a function.
        """
        about = (seed, self.file, self.change.name, self.before, self.after, number)
        return hashlib.sha256(repr(about).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.area.name:<10} {self.file}:{self.line}  {self.before}  ->  {self.after}"


def mutants_of(area: Area, root: Path = ROOT) -> list[RandomMutant]:
    """Return all mutants of an area."""
    found = []
    for file, names in code_of(area).items():
        code = (root / "pipeline" / file).read_bytes()
        for change in changes(code, without=area.without):
            if names and change.name.split(".")[0] not in names:
                continue
            line, before, after = change.lines(code)
            found.append(RandomMutant(area=area, file=file, change=change, line=line, before=before, after=after))
    return found


def code_of(area: Area) -> dict[str, set[str]]:
    """Return {file: names of its functions and classes in the area}; no names stand for the whole file."""
    parts: dict[str, set[str]] = {}
    for part in area.code:
        file, _, name = part.partition("::")
        parts.setdefault(file, set()).update({name} if name else ())
    return parts


def sample(count: int, seed: int, areas: Sequence[Area] = AREAS, root: Path = ROOT) -> list[RandomMutant]:
    """Return `count` random mutants, as many of one area as of another if there are enough."""
    drawn = [drawn_order(mutants_of(area, root), seed) for area in areas]
    turns = [mutant for turn in zip_longest(*drawn) for mutant in turn if mutant is not None]
    return sorted(turns[:count], key=lambda mutant: areas.index(mutant.area))


def drawn_order(mutants: Sequence[RandomMutant], seed: int) -> list[RandomMutant]:
    """Return mutants in the random order of a seed."""
    seen: Counter[tuple[str, ...]] = Counter()
    draws = {}
    for mutant in mutants:
        same = (mutant.file, mutant.change.name, mutant.before, mutant.after)
        draws[mutant.draw(seed, seen[same])] = mutant
        seen[same] += 1
    return [draws[draw] for draw in sorted(draws)]


@dataclass(frozen=True, kw_only=True)
class Tested:
    """Result of a mutant's tests."""

    mutant: RandomMutant
    reason: str | None
    """Test that killed it, or another reason; None if it survived."""
    seconds: float

    def __str__(self) -> str:
        word = "survived" if self.reason is None else "killed"
        return f"{word:<8} {self.seconds:5.1f} s  {self.mutant}" + (f"  ({self.reason})" if self.reason else "")


def reason_of(code: int | None, output: str) -> str | None:
    """Return what in an exit code and output of pytest kills a mutant; None if the tests pass."""
    if code == 0:
        return None
    if code is None:
        return "its tests did not end in time"
    failed = FAILED.search(output)
    return failed.group(1) if failed else f"pytest ended with {code}"


def run(mutants: Sequence[RandomMutant], folder: Path, copies: int, options: Sequence[str]) -> list[Tested]:
    """Test the unchanged copies, then all mutants; print a line per area and per mutant.

    Raises SystemExit if tests do not pass without a mutant.
    """
    places = [folder / str(number) for number in range(copies)]
    for place in places:
        copy_project(place)
    limits: dict[str, float] = {}

    def unchanged(area: Area, copy: Path) -> str:
        started = time.monotonic()
        code, output = pytest(copy, area.tests, "-k", area.chosen, *options, writes_bytecode=True)
        seconds = time.monotonic() - started
        if code != 0:
            print(output, file=sys.stderr)
            raise SystemExit(f"error: the tests of {area.name} do not pass without a mutant (pytest ended with {code})")
        limits[area.name] = max(LEAST_LIMIT, TIMES_UNCHANGED * seconds)
        return f"pass     {seconds:5.1f} s  {area.name}, unchanged"

    def tested(mutant: RandomMutant, copy: Path) -> Tested:
        started = time.monotonic()
        path = copy / "pipeline" / mutant.file
        with undone(path):
            path.write_bytes(mutant.change.apply(path.read_bytes()))
            tests, limit = mutant.area.tests, limits[mutant.area.name]
            code, output = pytest(copy, tests, "-k", mutant.area.chosen, *options, most_seconds=limit)
        return Tested(mutant=mutant, reason=reason_of(code, output), seconds=time.monotonic() - started)

    in_copies(unchanged, {mutant.area.name: mutant.area for mutant in mutants}.values(), places)
    return in_copies(tested, mutants, places)


def summary(done: Sequence[Tested]) -> str:
    """Return the survivors, and the share of each area that is killed."""
    killed = Counter(each.mutant.area.name for each in done if each.reason is not None)
    lines = [str(each) for each in done if each.reason is None]
    for name, number in Counter(each.mutant.area.name for each in done).items():
        lines.append(f"{name:<10} {killed[name]:3} of {number:3} killed")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other mutants")
    parser.add_argument("--copies", type=int, default=2, help="tested at a time, each in one process of one thread")
    parser.add_argument("--markers", metavar="EXPRESSION", help="pytest -m; default: the tests of `make test`")
    settings = parser.parse_args(arguments)
    options = [] if settings.markers is None else ["-m", settings.markers]
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="bertstream-mutants-"))
    try:
        done = run(sample(settings.count, settings.seed), folder, settings.copies, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    killed = sum(each.reason is not None for each in done)
    print(summary(done))
    print(f"killed {killed} of {len(done)} (seed {settings.seed}) in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Prove that tests hold their guarantees: `make mutants`.

    python -m tests.mutants.run [NAME ...] [--copies N]

The tests first run on an unchanged copy of the project and must pass. Then each mutant is applied to a copy, and its
tests must fail: by an assertion, or because an expected error was not raised. Two copies are tested at a time (or N);
the working tree is never changed. Exit code 0 if all mutants are killed, 1 if one survives, 2 if the table is wrong.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, STDOUT
from typing import TypeVar

import psutil

from tests.mutants.mutant import ROOT, Mutant, problems
from tests.mutants.table import MUTANTS

COPIED = ("pipeline", "jobs", "tests", "cluster", "pyproject.toml", "README.md", "Makefile", "LICENSE")
MOST_SECONDS = 300.0
"""A mutant's tests are stopped after this time: an endless loop is not a failed assertion."""
MOST_BYTES = 8 * 2**30
PYTEST = (
    "import resource, sys, pytest; "
    f"resource.setrlimit(resource.RLIMIT_DATA, ({MOST_BYTES}, {MOST_BYTES})); "
    "sys.exit(pytest.main())"
)
"""`python -m pytest` with a limit of memory: an endless loop may also fill it."""
Item = TypeVar("Item")
Result = TypeVar("Result")
FAILED = re.compile(r"^FAILED (\S+?(?:\[.*\])?) - (.*)$", re.M)
KILLS = re.compile(r"assert\b|AssertionError\b|Failed: DID NOT (RAISE|WARN)\b")
"""Beginnings of the reasons that count: an assertion, or an expected error that was not raised."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a mutant's tests."""

    mutant: Mutant
    killed: bool
    seconds: float
    reason: str
    """The failed test and its message, or why the mutant counts as not killed."""

    def __str__(self) -> str:
        word = "killed" if self.killed else "NOT KILLED"
        return f"{word:<10} {self.seconds:5.1f} s  {self.mutant.name}: {self.reason}"


def pytest(
    copy: Path,
    tests: Sequence[str],
    *options: str,
    most_seconds: float = MOST_SECONDS,
    writes_bytecode: bool = False,
) -> tuple[int | None, str]:
    """Run tests in a copy until the first failure; return the exit code and the output. The code is None after
    `most_seconds`. `options` are those of pytest.
    """
    shutil.rmtree(copy / ".hypothesis" / "examples", ignore_errors=True)  # those that failed for another mutant
    environment = os.environ | {
        "PYTHONPATH": str(copy),  # for processes that tests start; pytest itself finds the copy in its working folder
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
    }
    environment |= {} if writes_bytecode else {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PYTEST, "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    process = subprocess.Popen(
        [*command, *options, *tests], cwd=copy, env=environment, stdout=PIPE, stderr=STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=most_seconds)
    except subprocess.TimeoutExpired:
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in started:  # a process of a test may be in an endless loop, too
            with suppress(psutil.NoSuchProcess):
                child.kill()
        return None, process.communicate()[0]
    return process.returncode, output


@contextmanager
def undone(path: Path) -> Generator[None]:
    """Let a file be changed within the context; at its end, the file has its content again."""
    content = path.read_bytes()
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()  # its time and size may be those of the mutant
    try:
        yield
    finally:
        path.write_bytes(content)


def outcome(mutant: Mutant, copy: Path) -> Outcome:
    """Apply a mutant to a copy, run its tests, and undo it."""
    started = time.monotonic()
    with undone(copy / "pipeline" / mutant.file):
        mutant.apply(copy)
        code, output = pytest(copy, mutant.tests)
    killed, reason = verdict(code, output)
    return Outcome(mutant=mutant, killed=killed, seconds=time.monotonic() - started, reason=reason)


def verdict(code: int | None, output: str) -> tuple[bool, str]:
    """Return whether an exit code and output of pytest kill a mutant, and why."""
    if code is None:
        return False, f"its tests did not end within {MOST_SECONDS:g} s"
    if code == 0:
        return False, "its tests pass"
    failed = FAILED.search(output)
    if code != 1 or failed is None:
        return False, f"pytest ended with {code} and without a failed test: {output.strip()[-200:]!r}"
    test, reason = failed.groups()
    return KILLS.match(reason) is not None, f"{test} - {reason[:120]}"


def copy_project(copy: Path) -> None:
    """Copy what tests need. Raises SystemExit if the copy's pipeline is not the one that Python then imports."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    found = subprocess.run(
        [sys.executable, "-c", "import pipeline.errors; print(pipeline.errors.__file__)"],
        cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    if found != str(copy / "pipeline" / "errors.py"):
        raise SystemExit(f"error: Python imports {found or 'no pipeline'} in the copy {copy}")


def run(mutants: Sequence[Mutant], folder: Path, copies: int) -> list[Outcome]:
    """Test the unchanged copy, then all mutants, `copies` at a time; print a line per mutant.

    Raises SystemExit if the tests do not pass without a mutant.
    """
    first = folder / "0"
    copy_project(first)
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    started = time.monotonic()
    code, output = pytest(first, tests, writes_bytecode=True)
    if code != 0:
        print(output, file=sys.stderr)
        raise SystemExit(f"error: the tests do not pass without a mutant (pytest ended with {code})")
    print(f"{len(tests)} selections of tests pass without a mutant, {time.monotonic() - started:.1f} s", flush=True)
    for number in range(1, copies):
        shutil.copytree(first, folder / str(number))
    return in_copies(outcome, mutants, [folder / str(number) for number in range(copies)])


def in_copies(tested: Callable[[Item, Path], Result], items: Iterable[Item], copies: Sequence[Path]) -> list[Result]:
    """Call `tested` for each item with a copy that no other call uses meanwhile; print and return the results."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def tested_in_free_copy(item: Item) -> Result:
        copy = free.get()
        try:
            done = tested(item, copy)
        finally:
            free.put(copy)
        print(done, flush=True)
        return done

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(tested_in_free_copy, items))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to test; default: all")
    parser.add_argument("--copies", type=int, default=2, help="tested at a time, each in one process of one thread")
    options = parser.parse_args(arguments)
    names = options.names
    if unknown := sorted(set(names) - {mutant.name for mutant in MUTANTS}):
        parser.error(f"unknown mutants: {', '.join(unknown)}; choose from {', '.join(m.name for m in MUTANTS)}")
    if wrong := problems(MUTANTS):
        print("\n".join(wrong), file=sys.stderr)
        return 2
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="bertstream-mutants-"))
    try:
        outcomes = run(chosen, folder, options.copies)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    killed = sum(done.killed for done in outcomes)
    print(f"{killed} of {len(outcomes)} mutants killed in {time.monotonic() - started:.0f} s")
    for done in outcomes:
        if not done.killed:
            print(done)
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

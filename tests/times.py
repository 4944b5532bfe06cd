"""Measure what tests cost: `python -m tests.times [ARGUMENTS OF PYTEST]` on a machine that does nothing else.

Prints wall time, the CPU time of the whole machine meanwhile (Ray's processes end as nobody's children, so theirs is
not in any other count), and the seconds of each file: setting up, running and tearing down its tests.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import psutil


def busy_seconds() -> float:
    """Return the CPU time that this machine has spent since it started, without waiting."""
    times = psutil.cpu_times()
    return times.user + times.system + getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)


def seconds_of_tests(report: Path) -> dict[str, float]:
    """Return the seconds of each test in a report of pytest, by `module::name`; a module that was skipped is a test."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {
        f"{case.get('classname') or case.get('name')}::{case.get('name')}": float(case.get("time", 0)) for case in cases
    }


def by_file(seconds: dict[str, float]) -> Counter[str]:
    """Return the sums of each file."""
    files: Counter[str] = Counter()
    for test, spent in seconds.items():
        files[test.split("::")[0].replace(".", "/") + ".py"] += spent
    return files


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", "--durations=0", *arguments]
        started, busy = time.monotonic(), busy_seconds()
        code = subprocess.run(command).returncode
        wall, busy = time.monotonic() - started, busy_seconds() - busy
        seconds = seconds_of_tests(report)
    files = by_file(seconds)
    print(f"\n{len(seconds)} tests in {len(files)} files: {wall:.0f} s, {busy:.0f} CPU seconds of the machine\n")
    print("\n".join(f"{spent:7.1f} s  {file}" for file, spent in files.most_common()))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.files.locks import locked, locked_name

LOCK = """
import sys
from pipeline.errors import ConfigError
from pipeline.files.locks import locked
try:
    with locked(sys.argv[1]):
        print("locked")
except ConfigError as error:
    print(error)
"""


def lock_elsewhere(folder: Path) -> str:
    """Return the output of a second process that tries to take the lock."""
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", LOCK, str(folder)], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_lock_may_be_waited_for(tmp_path: Path) -> None:
    waits = "import sys; from pipeline.files.locks import locked\nwith locked(sys.argv[1], wait=True): print('locked')"
    with locked(str(tmp_path)):
        second = subprocess.Popen([sys.executable, "-c", waits, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        while not any(file.path.startswith(str(tmp_path)) for file in psutil.Process(second.pid).open_files()):
            time.sleep(0.05)
        assert not select.select([second.stdout], [], [], 0.2)[0]
    assert second.communicate(timeout=60)[0] == "locked\n"


def test_a_lock_refuses_a_second_process_and_goes_with_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with locked(str(folder)):
        assert (
            lock_elsewhere(folder)
            == f"{folder} is in use by process {os.getpid()}; wait for it, stop it, or choose another name"
        )
        assert lock_elsewhere(tmp_path / "other") == "locked"
    assert lock_elsewhere(folder) == "locked"
    with locked(str(folder)):  # the file of the process that is gone refuses nobody
        pass
    with pytest.raises(ZeroDivisionError), locked(str(folder)):
        raise ZeroDivisionError
    assert lock_elsewhere(folder) == "locked"


HOLD = """
import sys
from pipeline.errors import ConfigError
from pipeline.files.locks import locked_name
try:
    with locked_name(sys.argv[1], wait=len(sys.argv) > 2):
        print("locked", flush=True)
        sys.stdin.readline()
except ConfigError as error:
    print(error)
"""


def hold_elsewhere(location: Path, *words: str) -> subprocess.Popen:
    """A process that wants the lock of a name, and keeps it until it gets a line."""
    command = [sys.executable, "-c", HOLD, str(location), *words]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_locked_name_leaves_nothing_and_is_held_by_one(tmp_path: Path) -> None:
    place = tmp_path / "made" / "vocabulary"
    with locked_name(str(place)):
        waiting = [hold_elsewhere(place, "wait") for _ in range(2)]
        message = f"{place} is in use by process {os.getpid()}; wait for it, stop it, or choose another name\n"
        assert hold_elsewhere(place).communicate(timeout=60)[0] == message
        while not all(
            any(file.path.endswith(".lock") for file in psutil.Process(one.pid).open_files()) for one in waiting
        ):
            time.sleep(0.05)
        assert not any(select.select([one.stdout for one in waiting], [], [], 0.2)[0])
    ready, *_ = select.select([one.stdout for one in waiting], [], [], 60)
    assert len(ready) == 1
    first = next(one for one in waiting if one.stdout is ready[0])
    (second,) = [one for one in waiting if one is not first]
    assert not select.select([second.stdout], [], [], 0.2)[0]
    new = hold_elsewhere(place).communicate("\n", timeout=60)[0]
    assert new == f"{place} is in use by process {first.pid}; wait for it, stop it, or choose another name\n"
    assert first.communicate("\n", timeout=60)[0] == "locked\n" == second.communicate("\n", timeout=60)[0]
    assert not any(place.parent.iterdir())
    with pytest.raises(ZeroDivisionError), locked_name(str(place)):
        raise ZeroDivisionError
    assert not any(place.parent.iterdir())

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from pipeline.tracking.drivers import is_gone, machine, this_driver


@pytest.fixture
def other() -> Iterator[subprocess.Popen]:
    """Another process, which ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


def named(process: subprocess.Popen) -> str:
    return f"{machine()} {process.pid} {psutil.Process(process.pid).create_time():.0f}"


def test_a_driver_is_gone_when_its_process_has_ended(other: subprocess.Popen) -> None:
    driver = named(other)
    assert not is_gone(driver)
    other.stdin.write(b"\n")
    other.stdin.flush()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(driver)  # while its parent has not asked for its exit code
    other.wait()
    assert is_gone(driver)


def test_this_process_drives() -> None:
    assert this_driver().startswith(f"{machine()} {os.getpid()} ") and not is_gone(this_driver())


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    start = round(psutil.Process().create_time())
    assert not is_gone(f"{machine()} {os.getpid()} {start - 50}")
    assert is_gone(f"{machine()} {os.getpid()} {start - 100}")


@pytest.mark.parametrize(
    "driver", ["", "1 2", "another pid:[4026531836] 99999999 1", f"{machine()} x 1", f"{machine()} 99999999 -"]
)
def test_what_this_machine_cannot_know_is_not_gone(driver: str) -> None:
    assert not is_gone(driver)
    assert is_gone(f"{machine()} 99999999 1")

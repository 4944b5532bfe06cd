"""Kill a job as soon as it has done some parts"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import ray

from tests.answered import part_bytes


def kill_when_begun(job: str, arguments: Sequence[str], parts: Path, *, on_ray: bool) -> int:
    """Run a job, send it SIGKILL as soon as two of its parts are done, and return the number of parts that are done.

    It joins the Ray of this process, or works in its own process.
    """
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    # without the address file of a head of this machine
    environment |= {"RAY_ADDRESS": ray.get_runtime_context().gcs_address} if on_ray else {"RAY_TMPDIR": str(parts)}
    command = [sys.executable, f"jobs/{job}.py", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as running:
        until = time.monotonic() + 120
        while running.poll() is None and len(part_bytes(parts)) < 2 and time.monotonic() < until:
            time.sleep(0.005)
        running.kill()
    assert running.returncode == -signal.SIGKILL, running.stderr
    return len(part_bytes(parts))

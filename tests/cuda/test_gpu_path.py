"""The GPU path on a machine without a GPU: the checks in this folder, run with a CUDA device that computes nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TORCH = Path(torch.__file__).parent
CHECKS = {
    "steps": ["steps.py"],
    "choices": ["choices.py"],
    "recording": ["recording.py"],
    "budget": ["budget.py", "-k", "update or two and not rows and not bfloat16"],
    "more budgets": ["budget.py", "-k", "two and (rows or bfloat16)"],
    "budget of whole models": ["budget.py", "-k", "rows and not two"],
    "operators": ["budget.py", "-k", "plan"],
    "memory": ["memory.py", "-k", "every or small and modernbert"],
    "memory of all families": ["memory.py"],
}
"""Name -> file of checks and which of them."""
MARKS = {
    "steps": pytest.mark.second,
    "choices": pytest.mark.second,
    "recording": pytest.mark.second,
    "more budgets": pytest.mark.second,
    "budget of whole models": pytest.mark.long,
    "operators": pytest.mark.long,
    "memory": pytest.mark.second,
    "memory of all families": pytest.mark.long,
}
"""Name -> mark of checks that are not in the first tier."""
PLUGINS = ("tests.cuda.device", "no:cacheprovider", "no:logging")
IGNORED = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile guard.cpp to a library for the installed torch: three seconds of g++."""
    if torch.version.cuda or torch.version.hip:
        pytest.skip("needs a build of torch without a device guard of its own")
    if shutil.which("g++") is None:
        pytest.skip("needs g++, to build the device's guard")
    library = tmp_path_factory.mktemp("cuda") / "guard.so"
    command = ["g++", "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{TORCH}/include", str(HERE / "guard.cpp")]
    libraries = [f"-L{TORCH}/lib", f"-Wl,-rpath,{TORCH}/lib", "-ltorch_cpu", "-lc10"]
    subprocess.run([*command, *libraries, "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize("checks", [pytest.param(name, marks=MARKS.get(name, ())) for name in CHECKS])
def test_gpu_path(guard: Path, checks: str) -> None:
    plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "-qs", "--noconftest", "-o", "addopts=--import-mode=importlib", *plugins]
    environment = {name: value for name, value in os.environ.items() if name not in IGNORED}
    environment |= {"FAKE_CUDA": str(guard), "OMP_NUM_THREADS": "1"}
    command += [str(HERE / CHECKS[checks][0]), *CHECKS[checks][1:]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr

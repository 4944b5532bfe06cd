"""The notebook jobs/tour.ipynb, run from its first cell to its last in a process of its own."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.saved.checkpoints import folder_of
from tests.documents import ROOT, code_cells, whole_lines

pytestmark = pytest.mark.second
TOUR = ROOT / "jobs/tour.ipynb"


def program(notebook: Path) -> str:
    """The code cells as one program: it runs the commands of a cell, and prints a cell's last value as Jupyter does."""
    parts = ["import subprocess"]
    for number, source in enumerate(code_cells(notebook)):
        lines = [
            f"subprocess.run(f{line[1:]!r}, shell=True, check=True)" if line.startswith("!") else line
            for line in whole_lines(source)
        ]
        cell = ast.parse("\n".join(lines))
        if isinstance(last := cell.body[-1], ast.Expr):
            last.value = ast.Call(ast.Name("print"), [ast.Constant(f"cell {number}:"), last.value], [])
        parts.append(ast.unparse(cell))
    return "\n".join(parts)


def test_the_tour_runs_after_make_pretrain(tiny_run: Path, tiny_lineage: Lineage, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs", ignore=shutil.ignore_patterns("__pycache__", "results"))
    export(folder_of(str(tiny_run), 3), str(tmp_path / "output/runs/quickstart-tiny/export"), tiny_lineage)
    environment = os.environ | {"RAY_ADDRESS": "local", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-c", program(TOUR)]
    done = subprocess.run(
        run, cwd=tmp_path / "jobs", env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line for line in done.stdout.splitlines() if line.startswith("cell ")]
    assert len(shown) > 8 and "2 layers, width 32" in shown[0] and "('[CLS]', " in shown[1]
    assert "{'dev': {'accuracy': " in done.stdout and re.search(r"^  trained +50 steps", done.stdout, re.M)
    assert (tmp_path / "output/runs/quickstart-tiny-continued/export/model.safetensors").is_file()

"""Every job has its steps in the same kind of file, under the same kind of name."""

import ast
from pathlib import Path

from pipeline.errors import JOBS

ROOT = Path(__file__).parents[3]
LONGEST = 16
"""Maximum statements of a workflow, including those in its blocks: a reader sees the whole job at once."""


def function(file: Path, name: str) -> ast.FunctionDef:
    (found,) = [
        node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return found


def statements(node: ast.FunctionDef) -> int:
    """Statements of a function but its docstring."""
    return sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 2


def test_every_job_has_a_workflow_and_every_workflow_a_job() -> None:
    files = {path.stem for path in (ROOT / "pipeline/workflows").glob("[!_]*.py")}
    assert files == {*JOBS, "inputs"}  # what jobs check before torch and Ray are loaded
    assert sorted(path.stem for path in (ROOT / "jobs").glob("[!_]*.py")) == sorted(JOBS)


def test_a_workflow_is_a_function_of_the_job_s_name_from_its_settings() -> None:
    for job in JOBS:
        workflow = function(ROOT / f"pipeline/workflows/{job}.py", job)
        names = [argument.arg for argument in workflow.args.args]
        assert names == (["config"] if job == "show" else ["config", "report"]), job
        assert 1 <= statements(workflow) <= LONGEST, job


def test_a_job_leaves_its_errors_to_the_one_place_that_handles_them() -> None:
    for job in JOBS:
        main = function(ROOT / f"jobs/{job}.py", "main")
        (decorator,) = main.decorator_list
        assert ast.unparse(decorator).startswith("job_main(stopped='stopped"), job
        assert not [node for node in ast.walk(main) if isinstance(node, ast.Try)], job

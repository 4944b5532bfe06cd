"""Files that other programs read: the citation, GitHub's workflow and forms for issues, the Makefile."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
PYTHONS = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_citation_is_of_this_version() -> None:
    citation = read_yaml("CITATION.cff")
    same = {"title": "name", "version": "version", "license": "license", "abstract": "description"}
    assert {key: citation[key] for key in same} == {key: PROJECT[name] for key, name in same.items()}
    assert (
        citation["cff-version"] == "1.2.0" and citation["message"] and all(row["name"] for row in citation["authors"])
    )


def test_the_workflow_runs_what_ci_runs_with_few_rights() -> None:
    workflow = read_yaml(".github/workflows/ci.yml")
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert workflow["permissions"] == {"contents": "read"} and job["timeout-minutes"] == 40
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert python == PYTHONS[0]
    variables = set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {"CI_BASE"}
    assert set(job["steps"][-1]["env"]) <= variables


def test_the_oldest_python_is_the_same_everywhere() -> None:
    oldest = PYTHONS[0]
    assert PROJECT["requires-python"] == f">={oldest}"
    assert SETTINGS["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in (ROOT / "Makefile").read_text()
    rows = re.findall(r"^\| Python (3\.\d+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert rows == PYTHONS, "CONTRIBUTING.md says which tests ran on which Python"


def test_forms_for_issues_ask_for_the_command() -> None:
    for form, first in (("bug", "command"), ("question", "goal")):
        content = read_yaml(f".github/ISSUE_TEMPLATE/{form}.yml")
        fields = {field["id"]: field["validations"]["required"] for field in content["body"] if "validations" in field}
        assert content["name"] and content["description"] and fields[first]
    assert read_yaml(".github/ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": True}


def test_a_virtual_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    def write_program(path: str, text: str) -> Path:
        (program := tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return program

    for needed in ("pyproject.toml", "cluster/requirements.txt", ".venv/bin/python"):
        write_program(needed, "exit 0")
    made = 'test "$1 $2" != "-m venv" || { printf "#!/bin/sh\\n" > $3/bin/pip; chmod +x $3/bin/pip; }'
    python = write_program("python", made)
    make = ["make", "-f", str(ROOT / "Makefile"), ".venv/.installed", f"PYTHON={python}"]
    done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / ".venv/.installed").exists(), done.stderr

"""Every table by kind of task has a row for each kind, so that a new kind is a row that no table can lack."""

import ast
import importlib
from pathlib import Path
from typing import get_args

import pytest

from pipeline.config.task_kind import VALUE_METRICS, Kind
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.serve.uses import SERVED
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.metrics.ranking import RANKINGS

ROOT = Path(__file__).parents[2]
DEFINED = ROOT / "pipeline/config/task_kind.py"
OF_SOME = {
    "pipeline.config.task_kind.VALUE_METRICS": "metrics of kinds whose labels are numbers",
    "pipeline.tasks.selection.CHOICES": "metrics that a kind may have in addition",
}
"""Tables that have rows for some kinds only -> what they hold."""


def tables() -> list[str]:
    """Names of module variables that are annotated as dict[Kind, ...], where Kind is that of tasks."""
    return [
        f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.{ast.unparse(node.target)}"
        for path in sorted((ROOT / "pipeline").rglob("*.py"))
        if "dict[Kind, " in (text := path.read_text()) and (path == DEFINED or knows_kind(ast.parse(text).body))
        for node in ast.parse(text).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("dict[Kind, ")
    ]


def knows_kind(body: list[ast.stmt]) -> bool:
    """Whether a module imports the kinds of tasks; other rooms have kinds of their own."""
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "pipeline.config.task_kind"]
    return any(alias.name == "Kind" for node in imports for alias in node.names)


FOUND = tables()


def test_the_tables_are_found() -> None:
    of_tasks = {"tasks.kinds.KINDS", "objectives.tasks.TASK_MODULES", "finetune.kinds.TRAINING"}
    named = {*of_tasks, "fine_tuned.published.PUBLISHED", "export.cards.CARDS", "serve.uses.SERVED"}
    assert {*OF_SOME, *(f"pipeline.{name}" for name in named)} <= set(FOUND)


@pytest.mark.parametrize("name", [name for name in FOUND if name not in OF_SOME])
def test_a_table_by_kind_has_a_row_for_each_kind(name: str) -> None:
    module, _, table = name.rpartition(".")
    assert set(getattr(importlib.import_module(module), table)) == set(get_args(Kind))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].saved_as])
def test_a_kind_is_published_and_served_as_the_kind_of_its_saved_model(kind: Kind) -> None:
    saved = KINDS[kind].saved_as
    assert saved is not None and (PUBLISHED[kind], SERVED[kind]) == (PUBLISHED[saved], SERVED[saved])


def test_rankings_have_the_metrics_of_rankings() -> None:
    assert VALUE_METRICS["ranking"] == tuple(RANKINGS)

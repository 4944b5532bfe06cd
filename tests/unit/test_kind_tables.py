"""Tables keyed by kind of task: each has a row for every kind, so that none forgets a new kind."""

from collections.abc import Collection, Mapping
from typing import Any, get_args

import pytest

from pipeline.finetune.kinds import TRAINING
from pipeline.objectives.tasks import OBJECTIVES, TASK_MODULES
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Kind

TABLES: dict[str, Mapping[Kind, Any]] = {
    "tasks/kinds.py": KINDS,
    "objectives/tasks.py": TASK_MODULES,
    "finetune/kinds.py": TRAINING,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_all_kinds(name: str) -> None:
    assert set(TABLES[name]) == set(get_args(Kind))


def test_saved_kinds_are_kinds_that_a_saved_model_can_have() -> None:
    saved: Collection[str] = {handlers.saved_as or kind for kind, handlers in KINDS.items()}
    assert saved == set(OBJECTIVES) < set(KINDS)


def test_labels_stand_in_columns_of_encoded_rows() -> None:
    assert {handlers.label_column for handlers in KINDS.values()} <= set(ENCODED.names)

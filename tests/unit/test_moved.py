"""The table of modules that moved: every name since exists, and programs with the names before are rewritten."""

from pathlib import Path

from tests.moved import MOVED, main, rewritten

ROOT = Path(__file__).parents[2]
KEPT = {"predict.answers", "train.tuned"}
"""Names before that models registered in MLflow still import."""


def file_of(module: str) -> Path:
    return ROOT / "pipeline" / f"{module.replace('.', '/')}.py"


def test_modules_are_where_the_table_says() -> None:
    assert [since for since in MOVED.values() if not file_of(since).exists()] == []
    assert {before for before in MOVED if file_of(before).exists()} == KEPT


def test_a_program_gets_the_names_since(tmp_path: Path) -> None:
    before = (
        "from pipeline import storage, api\nfrom pipeline import ray_private  # noqa\nimport pipeline.train.optim\n"
        "def f():\n    from pipeline.train.tracking import experiments\n    from pipeline.train import pictures\n"
        "from pipeline.train.step import train_step\nfrom pipeline.presets import PRESETS\n"
    )
    since = (
        "from pipeline.files import storage\nfrom pipeline import api\n"
        "from pipeline.on_ray import ray_private  # noqa\n"
        "import pipeline.optim.build\ndef f():\n    from pipeline.tracking.runs import experiments\n"
        "    from pipeline.tracking import curves as pictures\nfrom pipeline.train.step import train_step\n"
        "from pipeline.presets.table import PRESETS\n"
    )
    assert rewritten(before) == since and rewritten(since) == since
    program = tmp_path / "program.py"
    program.write_text(before)
    main([str(program)])
    assert program.read_text() == since

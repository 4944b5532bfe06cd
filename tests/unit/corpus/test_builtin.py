"""Documentation strings of a made-up installed package."""

from importlib.metadata import Distribution
from pathlib import Path

import pytest

from pipeline.corpus import builtin


def test_documentation_strings_come_with_the_package_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "pack/b.py": f"def f():\n    '''{'word ' * 50}'''\n",
        "pack/a.py": f"'''{'other ' * 50}\n\nEnd.'''\ndef g():\n    '''Too short.'''\n",
        "pack/broken.py": "def",
        "alone.py": f"'''{'word ' * 50}'''\n",
        "pack/data.txt": "x",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    about = tmp_path / "some_pack-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: some-pack\nVersion: 1.0\n")
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in (*files, "pack/gone.py", "../bin/tool.py")))
    monkeypatch.setattr(builtin, "distributions", lambda: {"some-pack": Distribution.at(about)})
    assert list(builtin.package_docstrings()) == [
        ("pack", ("other " * 50).strip() + "\nEnd."),
        ("pack", ("word " * 50).strip()),
    ]

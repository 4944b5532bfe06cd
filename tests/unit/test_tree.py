"""The map in pipeline/README.md: rooms, files to begin with, what exists; beginnings of docstrings and of skips.

python -m tests.unit.test_tree     # prints every file of pipeline/ and jobs/ with the first sentence of its docstring
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "pipeline" / "README.md"
MOST_TO_BEGIN = 15
"""Most files in which the map shows how a run goes."""
BEGINS_BADLY = re.compile(r'^\s*"""(What|How|Where|Of|That which)\b.*$', re.M)
NOT_YET = {
    "tests/parity/test_api.py",
    "tests/parity/test_cards.py",
    "tests/parity/test_export.py",
    "tests/parity/test_onnx.py",
    "tests/parity/test_published_tuned.py",
    "tests/parity/test_served_tasks.py",
    "tests/unit/model/test_gpu.py",
}
"""Files whose docstrings still begin badly."""


def documented(file: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    paragraph = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
    return re.split(r"(?<!et al)\. ", " ".join(paragraph.split()))[0].removesuffix(".")


def tree() -> str:
    """One line per file of pipeline/ and jobs/, below its folder's."""
    folders = [ROOT / "jobs", *sorted(path.parent for path in (ROOT / "pipeline").rglob("__init__.py"))]
    lines = []
    for folder in folders:
        lines.append(f"{folder.relative_to(ROOT)}/")
        files = {path.name: documented(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"}
        lines += [f"    {name:<24}{line}".rstrip() for name, line in files.items()]
    return "\n".join(lines)


def section(title: str) -> str:
    """A section of the map."""
    return README.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_map_has_every_room_and_loose_file() -> None:
    rooms = re.findall(r"`(\w+)/`:", section("Rooms"))
    folders = {path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")}
    assert len(rooms) == len(set(rooms)) and set(rooms) == folders
    loose = {path.name for path in (ROOT / "pipeline").glob("*.py")} - {"__init__.py"}
    assert [name for name in loose if f"`{name}`" not in section("Rooms")] == []


def test_the_map_begins_with_few_files() -> None:
    files = re.findall(r"^\d+\. `([\w/.]+)`", section("Where to begin"), re.M)
    assert 10 < len(files) <= MOST_TO_BEGIN
    assert [name for name in files if not any((ROOT / folder / name).is_file() for folder in ("pipeline", "."))] == []


def test_what_the_map_says_of_additions_exists() -> None:
    names = re.findall(r"`(\w+/[\w/]*\w+\.py|\w+/)`", section("How to add"))
    missing = [name for name in names if not any((ROOT / folder / name).exists() for folder in ("pipeline", "."))]
    short = [name for name in missing if not list((ROOT / "pipeline").rglob(name))]  # families/table.py
    assert len(names) > 40 and short == []


def test_every_file_says_what_it_is() -> None:
    assert [line for line in tree().splitlines() if line.startswith("    ") and len(line.split()) < 3] == []


def test_docstrings_begin_with_a_verb_or_the_noun() -> None:
    files = [path for folder in ("pipeline", "jobs", "cluster", "tests") for path in (ROOT / folder).rglob("*.py")]
    wrong = {
        str(path.relative_to(ROOT)): [line.group() for line in lines]
        for path in sorted(files)
        if (lines := list(BEGINS_BADLY.finditer(path.read_text())))
    }
    assert {file: lines for file, lines in wrong.items() if file not in NOT_YET} == {}


def reasons_of_skips(file: Path) -> list[str]:
    """The reasons for which a file skips tests; a missing package names itself."""
    text = file.read_text()
    nodes = ast.walk(ast.parse(text)) if "skip" in text else ()
    reasons = []
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name == "pytest.skip":
            reasons.append(call.args[0])
        elif name in ("pytest.mark.skipif", "pytest.importorskip"):
            reasons += [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    return [ast.unparse(reason).lstrip("f'\"") for reason in reasons]


def test_a_skipped_test_says_what_it_needs() -> None:
    reasons = {file: reasons_of_skips(file) for file in (ROOT / "tests").rglob("*.py")}
    assert sum(map(len, reasons.values())) > 20
    wrong = [
        f"{file.relative_to(ROOT)}: {reason}"
        for file, found in reasons.items()
        for reason in found
        if not reason.startswith(("needs ", "{NEEDS_DATA}", "reason"))
    ]
    assert wrong == []


if __name__ == "__main__":
    print(tree())

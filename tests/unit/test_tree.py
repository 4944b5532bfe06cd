"""The tree of files in pipeline/README.md, with first sentences of docstrings; beginnings of docstrings and of skips.

python -m tests.unit.test_tree     # writes it anew
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "pipeline" / "README.md"
TREE = re.compile(r"(?<=<!-- tree -->\n```text\n).*?(?=\n```\n<!-- /tree -->)", re.S)
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
OTHERS = {
    "prices.toml": "Prices, bandwidths and assumed utilisation of machines, for --plan",
    "py.typed": "",
    "CHANGELOG.md": "",
}


def documented(file: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    paragraph = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
    return re.split(r"(?<!et al)\. ", " ".join(paragraph.split()))[0].removesuffix(".")


def tree() -> str:
    """One line per file of pipeline/ and jobs/, below its folder's."""
    lines = []
    for folder in (
        ROOT / "jobs",
        ROOT / "pipeline",
        *sorted(path for path in (ROOT / "pipeline").iterdir() if (path / "__init__.py").exists()),
    ):
        lines.append(f"{folder.relative_to(ROOT)}/")
        files = {path.name: documented(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"}
        files |= OTHERS if folder.name == "pipeline" else {}
        lines += [f"    {name:<24}{line}".rstrip() for name, line in files.items()]
    return "\n".join(lines)


def test_every_file_is_in_the_tree_with_the_first_sentence_of_its_docstring() -> None:
    (written,) = TREE.findall(README.read_text())
    assert written == tree(), "python -m tests.unit.test_tree writes it anew"


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
    README.write_text(TREE.sub(lambda _: tree(), README.read_text()))

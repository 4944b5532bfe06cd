"""The tree of files in pipeline/README.md: every file with the first sentence of its docstring.

python -m tests.unit.test_tree     # writes it anew
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "pipeline" / "README.md"
TREE = re.compile(r"(?<=<!-- tree -->\n```text\n).*?(?=\n```\n<!-- /tree -->)", re.S)
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


if __name__ == "__main__":
    README.write_text(TREE.sub(lambda _: tree(), README.read_text()))

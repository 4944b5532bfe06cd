"""Commands of this project that the documents name, taken from their text."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "jobs/*.md",
    "jobs/results/*.md",
    "cluster/README.md",
    "pipeline/*.md",
    "jobs/[!_]*.py",
    "jobs/*.ipynb",
)
"""Documents, jobs (their docstrings are their help), and notebooks (their commands begin with an exclamation mark)."""

FENCED = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}(.*\n)", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
JOB = re.compile(r"(?:.*/)?jobs/(\w+)\.py$")
OPTIONAL = re.compile(r"\[(-[^\]]*)\]")
VARIABLE = re.compile(r"[A-Z_]+=")
ENDS = re.compile(r"[|&;<>()]+$")


@dataclass(frozen=True, kw_only=True)
class Written:
    """A piece of a document that a reader may type."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def program(self) -> str:
        """Name of the program, without the folder and the variables before it."""
        words = [word for word in self.words if not VARIABLE.match(word)]
        return words[0].rpartition("/")[2] if words else ""

    @property
    def job(self) -> str | None:
        """Name of the job that it runs, by its file or by the command `bertstream`."""
        for word, following in zip(self.words, (*self.words[1:], "")):
            if found := JOB.match(word):
                return found[1]
            if word.endswith("bertstream") and following.isalpha():
                return following
        return None

    @property
    def arguments(self) -> list[str]:
        """Words after the name of the job."""
        before = next(index for index, word in enumerate(self.words) if JOB.match(word) or word.endswith("bertstream"))
        return list(self.words[before + (1 if JOB.match(self.words[before]) else 2) :])


def commands() -> list[Written]:
    """Every command in a block or between back quotes, in the order of the documents; a pipeline is several."""
    return [
        Written(page=str(path.relative_to(ROOT)), words=words)
        for pattern in PAGES
        for path in sorted(ROOT.glob(pattern))
        for piece in pieces(path)
        for words in split(piece)
    ]


def pieces(path: Path) -> Iterator[str]:
    """Blocks line by line, and what stands between back quotes."""
    if path.suffix == ".ipynb":
        lines = (line for source in code_cells(path) for line in whole_lines(source))
        yield from (line[1:].replace("{", "").replace("}", "") for line in lines if line.startswith("!"))
        return
    text = path.read_text()
    if path.suffix == ".py":
        yield from INDENTED.findall(text.split('"""')[1])
        return
    for block in FENCED.findall(text):
        yield from whole_lines(block)
    prose = FENCED.sub("", text)
    yield from whole_lines("".join(INDENTED.findall(prose)))
    for quoted in INLINE.findall(INDENTED.sub("\n", prose)):
        yield " ".join(quoted.split()).replace("\\|", "|")


def code_cells(notebook: Path) -> list[str]:
    """Source of each code cell of a notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def whole_lines(block: str) -> Iterator[str]:
    """Lines of a block, those that end with a backslash joined with the next."""
    yield from block.replace("\\\n", " ").splitlines()


def split(piece: str) -> Iterator[tuple[str, ...]]:
    """Words of each command of a line, without comments; optional words count as given."""
    parser = shlex.shlex(OPTIONAL.sub(r"\1", piece), posix=True, punctuation_chars="|&;<>()")
    parser.whitespace_split, parser.commenters = True, "#"
    try:
        words = list(parser)
    except ValueError:  # prose or code, with an apostrophe
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if not ENDS.match(word):
            command.append(word)
        elif command:
            yield tuple(word for word in command if word != "…" or word == command[0])
            command = []

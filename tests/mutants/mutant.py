"""A mutant: one text of the pipeline that becomes another, and the tests that must notice."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A small change of the pipeline that breaks a guarantee."""

    name: str
    guarantee: str
    file: str
    """File in pipeline/."""
    before: str
    """Text of the file that occurs exactly once in pipeline/."""
    after: str
    """Text in its place."""
    tests: tuple[str, ...]
    """Fast tests that pass without the change and fail with it: files, or FILE::FUNCTION."""

    def apply(self, root: Path) -> None:
        """Change the file in the copy at `root`."""
        path = root / "pipeline" / self.file
        path.write_text(path.read_text().replace(self.before, self.after))


def problems(mutants: tuple[Mutant, ...], root: Path = ROOT) -> list[str]:
    """Return what is wrong with a table: texts that do not occur once, tests that are missing, names that repeat."""
    code = {path.relative_to(root / "pipeline").as_posix(): path.read_text() for path in root.glob("pipeline/**/*.py")}
    names = [mutant.name for mutant in mutants]
    found = [
        f"{name}: {names.count(name)} mutants have this name" for name in sorted(set(names)) if names.count(name) > 1
    ]
    for mutant in mutants:
        here, everywhere = code.get(mutant.file, "").count(mutant.before), _occurrences(mutant.before, code)
        if (here, everywhere) != (1, 1):
            found.append(
                f"{mutant.name}: its text occurs {here} times in pipeline/{mutant.file} and {everywhere} times in "
                f"pipeline/, but it must occur once: {mutant.before!r}"
            )
        found += [f"{mutant.name}: there is no test {test}" for test in mutant.tests if not _exists(test, root)]
    return found


def _occurrences(text: str, code: dict[str, str]) -> int:
    return sum(content.count(text) for content in code.values())


def _exists(test: str, root: Path) -> bool:
    """Return whether the file of a test exists and has its function."""
    file, _, function = test.partition("::")
    return (root / file).is_file() and (
        not function or f"def {function.partition('[')[0]}(" in (root / file).read_text()
    )

"""Random mutants are small changes that parse, and the same ones for the same code; `make random-mutants` runs them."""

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT
from tests.mutants.operators import changes
from tests.mutants.random_mutants import AREAS, Area, RandomMutant, code_of, mutants_of, reason_of, sample
from tests.mutants.run import undone

CODE = '''"""A module of 1 docstring."""
from dataclasses import dataclass

LIMIT = 5


@dataclass(frozen=True)
class Store:
    """It has 2 lines."""

    most: int = 3

    def keep(self, names: "list[1]", *, deep: bool = True) -> None:
        if len(names) > self.most and not deep:
            raise ValueError("more than " + str(4))
        report(f"{len(names) + 1} names")
        self.forget()


def share(é: float, counts: list[int]) -> float:
    assert counts
    total = max(sum(counts) - 2, -1)
    return total / (len(counts)
                    + é) if counts is not None else [~c | 8 for c in counts if c and zip(c, strict=True)]


def described() -> str:
    return "1" * 2
'''
CHANGED = [
    ("Store", "most: int = 4"),
    ("Store.keep", 'def keep(self, names: "list[1]", *, deep: bool = False) -> None:'),
    ("Store.keep", "if len(names) >= self.most and not deep:"),
    ("Store.keep", "if not (len(names) > self.most and not deep):"),
    ("Store.keep", "if len(names) > self.most or not deep:"),
    ("Store.keep", "if len(names) > self.most and deep:"),
    ("Store.keep", "None"),
    ("share", "total = min(sum(counts) - 2, -1)"),
    ("share", "total = max(sum(counts) + 2, -1)"),
    ("share", "total = max(sum(counts) - 3, -1)"),
    ("share", "total = max(sum(counts) - 2, 1)"),
    ("share", "total = max(sum(counts) - 2, -2)"),
    ("share", "return total * (len(counts)"),
    ("share", "- é) if counts is not None else [~c | 8 for c in counts if c and zip(c, strict=True)]"),
    ("share", "+ é) if counts is None else [~c | 8 for c in counts if c and zip(c, strict=True)]"),
    ("share", "+ é) if counts is not None else [c | 8 for c in counts if c and zip(c, strict=True)]"),
    ("share", "+ é) if counts is not None else [~c & 8 for c in counts if c and zip(c, strict=True)]"),
    ("share", "+ é) if counts is not None else [~c | 9 for c in counts if c and zip(c, strict=True)]"),
    ("share", "+ é) if counts is not None else [~c | 8 for c in counts if not (c and zip(c, strict=True))]"),
    ("share", "+ é) if counts is not None else [~c | 8 for c in counts if c or zip(c, strict=True)]"),
]


def test_changes_of_a_file() -> None:
    code = CODE.encode()
    found = changes(code, without=("described",))
    assert sorted((change.name, change.lines(code)[2]) for change in found) == sorted(CHANGED)
    for change in found:
        ast.parse(change.apply(code))
        number, before, after = change.lines(code)
        assert CODE.splitlines()[number - 1].strip() == before != after


def project(root: Path, **functions: str) -> Path:
    """A project of a file a.py with functions of one expression each."""
    (root / "pipeline").mkdir(parents=True)
    (root / "pipeline" / "a.py").write_text(
        "\n\n".join(f"def {name}(x):\n    return {expression}" for name, expression in functions.items())
    )
    return root


def texts(mutants: list[RandomMutant]) -> list[str]:
    return [mutant.after for mutant in mutants]


def test_a_sample_depends_on_the_seed_and_on_the_code_of_each_function_alone(tmp_path: Path) -> None:
    areas = (
        Area(name="one", code=("a.py",), without=("g",), tests=()),
        Area(name="other", code=("a.py::g",), tests=()),
    )
    f, g = "x + 1 + 1 < 2 or x > 3", "x * 2 - x"
    root = project(tmp_path / "a", f=f, g=g)
    every = sample(99, 0, areas, root)
    assert [mutant.area.name for mutant in every] == ["one"] * 9 + ["other"] * 3
    assert texts(sample(99, 0, areas, root)) == texts(every) != texts(sample(99, 1, areas, root))
    few = sample(4, 0, areas, root)
    assert texts(few) == texts(every[:2] + every[9:11]) and len(sample(8, 0, areas, root)) == 8
    moved = project(tmp_path / "b", h="x", g=g, f=f)
    assert texts(sample(4, 0, areas, moved)) == texts(few)
    changed = project(tmp_path / "c", f=f, g="x // 5")
    assert texts(sample(4, 0, areas, changed))[:2] == texts(few)[:2]


def test_the_code_and_the_tests_of_every_area_exist() -> None:
    missing = [f"{area.name}: {test}" for area in AREAS for test in area.tests if not (ROOT / test).exists()]
    for area in AREAS:
        defined = set[str]()
        for file, names in code_of(area).items():
            tree = ast.parse((ROOT / "pipeline" / file).read_bytes())
            here = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            missing += [f"{area.name}: {file}::{name}" for name in names - here]
            defined |= here
        missing += [f"{area.name}: {name}" for name in set(area.without) - defined]
    assert missing == []


def test_the_sample_of_the_measurement_has_all_areas_and_parses() -> None:
    mutants = sample(150, 0)
    numbers = {area.name: [mutant.area for mutant in mutants].count(area) for area in AREAS}
    assert len(mutants) == 150 and min(numbers.values()) >= 13
    for mutant in mutants:
        code = (ROOT / "pipeline" / mutant.file).read_bytes()
        assert ast.dump(ast.parse(mutant.change.apply(code))) != ast.dump(ast.parse(code)), str(mutant)
        assert re.match(rf"{mutant.area.name} +{mutant.file}:\d+  \S.*  ->  ", str(mutant))


def test_no_function_is_in_two_areas() -> None:
    places = [(mutant.file, mutant.change.start, mutant.change.after) for area in AREAS for mutant in mutants_of(area)]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (0, "1 passed", None),
        (1, "FAILED tests/unit/test_a.py::test_b[1-x] - assert 1 == 2", "tests/unit/test_a.py::test_b[1-x]"),
        (1, "FAILED tests/unit/test_a.py::test_b - NameError: x", "tests/unit/test_a.py::test_b"),
        (2, "ERROR tests/unit/test_a.py - ImportError: no", "pytest ended with 2"),
        (-11, "", "pytest ended with -11"),
        (None, "", "its tests did not end in time"),
    ],
)
def test_every_failure_and_an_endless_loop_kill(code: int | None, output: str, reason: str | None) -> None:
    assert reason_of(code, output) == reason


def test_a_change_is_undone_also_after_an_error(tmp_path: Path) -> None:
    file, compiled = tmp_path / "a.py", tmp_path / "__pycache__" / "a.cpython-311.pyc"
    file.write_text("1")
    compiled.parent.mkdir()
    compiled.touch()
    with pytest.raises(KeyboardInterrupt):
        with undone(file):
            file.write_text("2")
            raise KeyboardInterrupt
    assert file.read_text() == "1" and not compiled.exists()

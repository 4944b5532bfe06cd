import shutil
from pathlib import Path

import pytest

from pipeline.corpus.prepared import Corpus
from tests.books import quiet_prepare, write_books


@pytest.fixture(scope="session")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of books that no test may change."""
    return write_books(tmp_path_factory.mktemp("data") / "books")


@pytest.fixture(scope="session")
def corpus(books: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Return the corpus prepared from the books, which no test may change."""
    return quiet_prepare([books], tmp_path_factory.mktemp("out") / "corpus")


@pytest.fixture
def own(corpus: Corpus, tmp_path: Path) -> Path:
    """Return a copy of the prepared corpus, for tests that change it."""
    return Path(shutil.copytree(corpus.folder, tmp_path / "own"))

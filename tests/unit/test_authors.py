"""The table of passages by author: which lines count, how passages are cut, and how books are dealt to the splits."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.config.finetune import Finetune
from pipeline.tasks.own import read_own
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from tests.studies import authors
from tests.studies.authors import Book, counts_text, passages_of, read_book, table_of, write

WORDS = ("kar", "lost", "kand", "mir", "nel", "sup")
TEXT = """# Title: Short Tales

## Author: A. Person

## Year: 1904

-------
_Translated by B. Person_

### CHAPTER I

"Kar  lost,"\tsaid mir.

Nel.
"""


def book_of(author: str, number: int, paragraphs: int) -> Book:
    draw = np.random.default_rng(number)
    rows = (" ".join(draw.choice(WORDS, draw.integers(3, 12))) for _ in range(paragraphs))
    return Book(title=f"{author} {number}", author=author, paragraphs=(f'"{author}" says', *rows))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages of 20 to 40 tokens."""
    monkeypatch.setattr(authors, "LEAST", 20)
    monkeypatch.setattr(authors, "MOST", 40)


def test_a_book_is_its_paragraphs_without_headings_and_names() -> None:
    assert read_book(TEXT) == Book(
        title="Short Tales", author="A. Person", paragraphs=('"Kar lost," said mir.', "Nel.")
    )
    assert read_book("A text without first lines.\n-------\nText.") is None and read_book("") is None


def test_passages_have_whole_paragraphs_in_order_and_their_length(short: None, tiny_vocabulary: Vocabulary) -> None:
    tokenizer = CachedTokenizer(tiny_vocabulary)
    book = book_of("a", 1, 200)
    passages = passages_of(book, tokenizer, np.random.default_rng(0))
    lengths = np.diff(tokenizer.encode(passages)[1])
    assert lengths.min() >= 20 and lengths.max() <= 40 and len(set(lengths.tolist())) > 5
    assert " ".join(book.paragraphs).startswith(" ".join(passages))


def test_no_book_is_in_two_splits_and_the_table_is_read_as_a_task(
    short: None, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    tokenizer = CachedTokenizer(tiny_vocabulary)
    many = [book_of(name, number, 150) for name in ("a", "b", "c") for number in range(5)]
    few = [book_of("d", number, 150) for number in range(3)]
    thin = [book_of("e", number, 9) for number in range(9)]
    table = table_of([*thin, *many, *few], tokenizer, 2, 0)
    assert list(table) == ["a", "b"] and table == table_of([*thin, *many, *few], tokenizer, 2, 0)
    assert table != table_of(many, tokenizer, 2, 1)
    for splits in table.values():
        assert {split: len(rows) for split, rows in splits.items()} == {"test": 8, "dev": 8, "train": 25}
        titles = [{title for title, _ in rows} for rows in splits.values()]
        assert not titles[0] & titles[1] and not titles[0] & titles[2] and not titles[1] & titles[2]
    assert counts_text(table).splitlines()[0].split() == ["author", "test", "books", "dev", "books", "train", "books"]
    write(table, tmp_path)
    train, dev = str(tmp_path / "train.tsv"), str(tmp_path / "dev.tsv")
    task, items, _ = read_own(Finetune(checkpoint="c", train=train, dev=dev), train, dev)
    assert task.kind == "classification" and task.labels == ("a", "b")
    wanted = [passage for splits in table.values() for _, passage in splits["train"]]
    assert items["train"]["first"].to_pylist() == wanted and items["dev"].num_rows == 16
    assert any(passage.startswith('"') for passage in wanted)

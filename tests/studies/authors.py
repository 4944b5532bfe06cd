"""Table of the task "which author wrote this passage": python -m tests.studies.authors --books FOLDER --vocabulary
vocab.txt --output FOLDER

Reads books (*.txt.gz) whose first lines are "# Title: …" and "## Author: …", up to a line of dashes, with one paragraph
per line. Takes the authors with the most books, cuts their books into passages of 2,048 to 4,096 tokens, and writes
train.tsv, dev.tsv and test.tsv with the columns text, label (the author) and book. No book is in two of these files.
The files are a pure function of the books, the vocabulary and the options.
"""

import argparse
import gzip
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.command_line.columns import aligned
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.randomness import numbered_generator
from pipeline.text.vocabulary_loading import load_vocabulary_as_published

LEAST, MOST = 2_048, 4_096
"""Fewest and most tokens of a passage, without special tokens."""
LEAST_BOOKS = 4
WANTED = {"test": 8, "dev": 8, "train": 25}
"""Split -> passages per author; books are dealt to the splits in this order."""
COLLECTIVE = ("Anonymous", "Various", "Unknown")
TITLE, AUTHOR = re.compile(r"^# Title: (.+)$", re.M), re.compile(r"^## Author: (.+)$", re.M)
DASHES = re.compile(r"^-{5,}$", re.M)
NAMES_A_PERSON = re.compile(r"^(#|_*(by|translated|edited|illustrated)\b)", re.I)
"""Beginning of paragraphs that are left out: headings, and lines that name the author, translator or editor."""


@dataclass(frozen=True, kw_only=True)
class Book:
    """One book, without its first lines."""

    title: str
    author: str
    paragraphs: tuple[str, ...]


def read_book(content: str) -> Book | None:
    """Return the book in a file's content; None if its first lines do not name title and author."""
    head = DASHES.split(content, maxsplit=1)
    title, author = TITLE.search(head[0]), AUTHOR.search(head[0])
    if len(head) < 2 or title is None or author is None:
        return None
    lines = (" ".join(line.split()) for line in head[1].splitlines())
    kept = tuple(line for line in lines if line and not NAMES_A_PERSON.match(line))
    return Book(title=title[1].strip(), author=author[1].strip(), paragraphs=kept)


def passages_of(book: Book, tokenizer: CachedTokenizer, generator: np.random.Generator) -> list[str]:
    """Return the book's passages, each of whole paragraphs and of LEAST to MOST tokens, without overlap.

    The length at which a passage ends is drawn from `generator`. A passage ends before a paragraph that would make it
    longer; the paragraphs of a passage that would get too long or too short are left out.
    """
    bounds = tokenizer.encode(list(book.paragraphs))[1]
    passages: list[str] = []
    taken: list[str] = []
    size, end = 0, int(generator.integers(LEAST, MOST + 1))
    for paragraph, length in zip(book.paragraphs, np.diff(bounds).tolist(), strict=True):
        if taken and size + length > (end if size >= LEAST else MOST):
            passages += [" ".join(taken)] if size >= LEAST else []
            taken, size, end = [], 0, int(generator.integers(LEAST, MOST + 1))
        if length <= MOST:
            taken, size = [*taken, paragraph], size + length
    return passages + ([" ".join(taken)] if size >= LEAST else [])


def dealt(books: Sequence[tuple[str, list[str]]], generator: np.random.Generator) -> dict[str, list[tuple[str, str]]]:
    """Return split -> (title, passage), from the titles and passages of an author's books; {} if there are too few.

    Books are dealt in a random order: a split gets books until it has its passages, and train gets the rest. Then the
    passages of each split are a random choice among those of its books.
    """
    order = [books[index] for index in generator.permutation(len(books))]
    pools: dict[str, list[tuple[str, str]]] = {}
    for split, wanted in WANTED.items():
        pools[split] = []
        while order and (split == "train" or len(pools[split]) < wanted):
            title, passages = order.pop()
            pools[split] += [(title, passage) for passage in passages]
        if len(pools[split]) < wanted:
            return {}
    return {
        split: [pool[index] for index in sorted(generator.permutation(len(pool))[: WANTED[split]])]
        for split, pool in pools.items()
    }


def table_of(
    books: Iterable[Book], tokenizer: CachedTokenizer, authors: int, seed: int
) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """Return author -> split -> (title, passage), for the `authors` authors with the most books of those with enough.

    Equal numbers of books are in alphabetical order.
    """
    by_author: dict[str, list[Book]] = {}
    for book in books:
        by_author.setdefault(book.author, []).append(book)
    found: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for number, (author, own) in enumerate(sorted(by_author.items(), key=lambda entry: (-len(entry[1]), entry[0]))):
        if len(found) == authors or len(own) < LEAST_BOOKS or author in COLLECTIVE:
            continue
        generator = numbered_generator(seed, number)
        cut = [(book.title, passages_of(book, tokenizer, generator)) for book in sorted(own, key=lambda b: b.title)]
        if splits := dealt(cut, generator):
            found[author] = splits
    return found


def write(table: dict[str, dict[str, list[tuple[str, str]]]], folder: Path) -> None:
    """Write the passages of each split as SPLIT.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in WANTED:
        rows = [(passage, author, title) for author, splits in table.items() for title, passage in splits[split]]
        # TSV has no quotes: passages have single spaces only, so nothing needs them.
        lines = ["\t".join(row) for row in (("text", "label", "book"), *rows)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def counts_text(table: dict[str, dict[str, list[tuple[str, str]]]]) -> str:
    """Return the passages and books of each author and split as a table."""
    rows = [
        (author, *itertools.chain(*((str(len(own)), str(len({title for title, _ in own}))) for own in splits.values())))
        for author, splits in table.items()
    ]
    names = ("author", *(name for split in WANTED for name in (split, "books")))
    return "\n".join(aligned(names, rows))


def main() -> None:
    """Read the command line, write the files and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--authors", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    contents = (gzip.decompress(path.read_bytes()).decode() for path in sorted(options.books.glob("*.txt.gz")))
    books = [book for book in map(read_book, contents) if book is not None]
    tokenizer = CachedTokenizer(load_vocabulary_as_published(options.vocabulary))
    table = table_of(books, tokenizer, options.authors, options.seed)
    write(table, options.output)
    print(counts_text(table))


if __name__ == "__main__":
    main()

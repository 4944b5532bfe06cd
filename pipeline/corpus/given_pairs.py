"""Read given pairs: tables (CSV, TSV, JSON lines or Parquet) with two texts per row, and perhaps hard negatives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from typing import Any

from pipeline.config.data import PAIRS, GivenPairs, Sampling
from pipeline.corpus.parquet import column_rows, is_parquet
from pipeline.errors import BadRow, ConfigError, listed
from pipeline.files.opening import Opened, bare_name, whole_lines
from pipeline.tables.records import LONGEST_RECORD, NoTextColumn, first_rows, is_text, parse_lines
from pipeline.tables.roles import FIRST, NEGATIVE, SECOND
from pipeline.tables.separated import csv_fields, tab_separated
from pipeline.text.documents import Dropped, Pair, dropped

Choose = Callable[[Sequence[str]], list[str]]
"""Names of the columns with text -> columns of the two texts and of hard negatives."""
Rows = Iterator[Sequence[Any] | Dropped]
"""Values of the chosen columns of each row, or why a row is dropped."""


def require_fitting_pairs(sampling: Sampling, formats: Sequence[str | None], corpus: str) -> None:
    """Raise ConfigError if the sources of a corpus are given pairs and sampling.pairs is another kind, or the other way
    round. `formats`: those of the sources; `corpus` names the corpus in the message.
    """
    wanted, kind = isinstance(sampling.pairs, GivenPairs), type(sampling.pairs).__name__
    if wanted and PAIRS not in formats:
        raise ConfigError(
            f"sampling.pairs (GivenPairs) needs a corpus of given pairs, but {corpus} has documents: give a table of "
            "pairs, as in --corpus 'pairs.jsonl::format=pairs', or choose other sampling.pairs"
        )
    if PAIRS in formats and not wanted:
        raise ConfigError(
            f"sampling.pairs ({kind}) needs a corpus of documents, but {corpus} has given pairs: choose "
            "objective:contrastive sampling.pairs:given-pairs, or give other text"
        )


def read_pairs(file: Opened) -> Iterator[Pair | Dropped]:
    """Yield the pairs of a table; its format is recognised by its name, or by its first bytes if it is Parquet.

    A row with several first or second texts gives a pair for each combination, with the same hard negatives. A
    negative that is one of the row's second texts is left out. Raises NoTextColumn if the table lacks a column.
    """
    head = next(file.blocks, b"")
    file = replace(file, blocks=chain([head], file.blocks))
    name, choose = bare_name(file.name).lower(), partial(pair_columns, file.location, file.column)
    if is_parquet(name, head):
        rows = column_rows(file, choose)
    elif name.endswith((".csv", ".tsv")):
        rows = _separated_rows(file, choose, tabs=name.endswith(".tsv"))
    else:
        rows = _json_rows(file, choose)
    for number, row in enumerate(rows):
        yield from [row] if isinstance(row, Dropped) else _pairs_of_row(f"{file.name}:{number}", row)


def pair_columns(location: str, wanted: str | None, names: Sequence[str]) -> list[str]:
    """Return the columns of the two texts and of hard negatives: those in `wanted`, separated by commas, else those
    with usual names. Raises NoTextColumn if a column is missing.
    """
    advice = (
        f"its columns with text are {listed(names)}; name those of both texts, and of any hard negatives, with "
        "::column=FIRST,SECOND,NEGATIVE"
    )
    if wanted is not None:
        columns = wanted.split(",")
        if missing := [name for name in columns if name not in names]:
            raise NoTextColumn(f"{location} has no column {missing[0]} with text: {advice}")
        return columns
    both = [next((name for name in usual if name in names), None) for usual in (FIRST, SECOND)]
    for name, usual, position in zip(both, (FIRST, SECOND), ("first", "second"), strict=True):
        if name is None:
            raise NoTextColumn(
                f"{location} has no column for the {position} text of a pair ({', '.join(usual)}): {advice}"
            )
    return [name for name in both if name] + [name for name in names if NEGATIVE.fullmatch(name)]


def _pairs_of_row(id: str, values: Sequence[Any]) -> Iterator[Pair | Dropped]:
    """Yield the pairs of the values of a row: the two texts and the negatives, each a text, a list of texts or None."""
    if not all(value is None or value == [] or is_text(value) for value in values):
        yield dropped(id, "broken record", str(values))
        return
    first, second, *negatives = ([value] if isinstance(value, str) else value or [] for value in values)
    right = {text.strip() for text in second}
    wrong = [text for text in chain.from_iterable(negatives) if text.strip() not in right]
    pairs = list(product(first or [""], second or [""]))
    for number, pair in enumerate(pairs):
        yield Pair(id=f"{id}.{number}" if len(pairs) > 1 else id, texts=(*pair, *wrong))


def _json_rows(file: Opened, choose: Choose) -> Rows:
    """Yield the values of JSON lines. A row may lack hard negatives, but not the two texts."""
    rows = parse_lines(whole_lines(file.blocks, LONGEST_RECORD))
    first = first_rows(rows)
    objects = [value for _, value in first if isinstance(value, dict)]
    named = dict.fromkeys(key for value in objects for key in value)
    texts = [
        key
        for key in named
        if any(is_text(value.get(key)) for value in objects) or not any(value.get(key) for value in objects)
    ]
    columns = choose(texts) if objects else []
    for number, (line, value) in enumerate(chain(first, rows)):
        if isinstance(value, dict) and columns and value.keys() >= set(columns[:2]):
            yield [value.get(name) for name in columns]
        else:
            yield dropped(f"{file.name}:{number}", "broken record", line)


def _separated_rows(file: Opened, choose: Choose, *, tabs: bool) -> Rows:
    """Yield the values of a CSV or TSV file, whose first row names the columns."""
    lines = (f"{line}\n" for line, _ in whole_lines(file.blocks, LONGEST_RECORD))
    rows = tab_separated(lines) if tabs else csv_fields(file.location, lines, longest=LONGEST_RECORD)
    header = next(rows, (1, ()))[1]
    names = [] if isinstance(header, BadRow) else header
    indices = [names.index(name) for name in choose(names)]
    for number, (_, fields) in enumerate(rows):
        if isinstance(fields, BadRow) or len(fields) != len(names):
            row = "" if isinstance(fields, BadRow) else ("\t" if tabs else ",").join(fields)
            yield dropped(f"{file.name}:{number}", "broken record", row)
        else:
            yield [fields[index] for index in indices]

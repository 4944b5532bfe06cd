"""Print the views of a corpus and of a run, one function each."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.show import Documents, Dropped, Examples, Seen, Statistics, View
from pipeline.config.training import Batch
from pipeline.corpus.given_pairs import require_fitting_pairs
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepared import load_corpus, read_window
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.corpus.summary import corpus_text
from pipeline.errors import ConfigError, listed
from pipeline.files import storage
from pipeline.show import statistics as figures
from pipeline.show.picture import draw
from pipeline.show.pictures import PICTURES
from pipeline.show.rows import LEGEND, example_lines, example_summary
from pipeline.show.seen import documents_of, recompute_rows
from pipeline.show.style import require_picture, write_picture
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.sentences import split_sentences
from pipeline.text.vocabulary import Vocabulary

CONSOLE = Console(highlight=False, soft_wrap=True)
WIDEST = 110
"""Maximum characters of a line of running text, for readability."""
LABELS = {"NotNext": "not_next", "swapped": "swapped"}
TITLE, DETAIL = "bold", "dim"
"""Styles of headings and of details."""


def _documents(folder: str, number: int, window: int, source: str | None, sentences: int) -> None:
    corpus = load_corpus(folder)
    table = read_window(corpus, corpus.train[_require_in_range("window", window, len(corpus.train))])
    rows = [row for row in table.to_pylist() if source is None or source in row["source"]]
    if not rows:
        raise ConfigError(
            f"source ({source}) matches no document of window {window}; the sources are {listed(corpus.sources)}"
        )
    for index, row in enumerate(rows[:number]):
        CONSOLE.print(Text("\n" * bool(index) + (row["title"] or "(no title)"), TITLE))
        split = split_sentences(row["text"], lines_are_sentences=row["lines_are_sentences"], language=row["language"])
        CONSOLE.print(
            Text(
                f"{row['id']}, from {row['source']}, {row['language']}, "
                f"{len(row['text']):,} characters, {len(split):,} sentences",
                DETAIL,
            )
        )
        for count, sentence in enumerate(split[:sentences], start=1):
            CONSOLE.print(with_margin(Text(f"{count:4}  ", DETAIL), Text(sentence)))
        if len(split) > sentences:
            CONSOLE.print(Text(f"   …  {len(split) - sentences:,} more sentences", DETAIL))


def _dropped(folder: str) -> None:
    corpus = load_corpus(folder)
    samples = storage.read_json(storage.join(corpus.folder, storage.MANIFEST))["samples"]
    CONSOLE.print(Text(corpus_text(corpus)))
    if not corpus.dropped:
        CONSOLE.print("\nnothing was dropped")
    for reason, dropped in sorted(samples.items()):
        CONSOLE.print(Text(f"\n{reason} ({corpus.dropped[reason]:,})", TITLE))
        for id, beginning in dropped:
            CONSOLE.print(Text(f"  {id}", DETAIL))
            CONSOLE.print(with_margin(Text("    "), Text(" ".join(beginning.split()))))


def _statistics(folder: str, vocabulary: VocabularySettings, windows: int, picture: str | None) -> None:
    if picture is not None:
        require_picture(picture)
    corpus = load_corpus(folder)
    with CONSOLE.status(f"reading {min(windows, len(corpus.train))} windows"):
        statistics = figures.statistics(corpus, given_vocabulary(vocabulary), windows)
    CONSOLE.print(Text("\n".join([corpus_text(corpus), "", *figures.lines(statistics, corpus)])))
    if picture is not None:
        write_picture(draw(statistics, corpus), picture)
        CONSOLE.print(Text(f"\npicture: {picture}"))


def _examples(
    folder: str, number: int, window: int, epoch: int, seed: int, vocabulary: VocabularySettings, sampling: Sampling
) -> None:
    corpus = load_corpus(folder)
    require_fitting_pairs(sampling, corpus.formats, folder)
    _require_in_range("window", window, len(corpus.train))
    settings = StreamSettings(
        corpus=corpus, vocabulary=_require_vocabulary(vocabulary), sampling=sampling, batch=Batch(), seed=seed
    )
    table = window_rows(settings, CachedTokenizer(settings.vocabulary), corpus.train, epoch, window)
    documents = documents_of(settings, epoch, window)
    CONSOLE.print(
        Text(
            f"{table.num_rows:,} examples in window {window} of epoch {epoch}, "
            f"{len(table['ids'].combine_chunks().flatten()):,} tokens{labels(table)}"
        )
    )
    _print_legend(masked=sampling.masks)
    for row in table.slice(0, number).to_pylist():
        _print_example(f"row {row['row']}", row, documents, settings.vocabulary)


def _print_legend(*, masked: bool) -> None:
    """Print the legend of masked positions if the rows have such positions."""
    if masked:
        CONSOLE.print(LEGEND)


def _print_example(name: str, row: dict[str, Any], documents: pa.Table, vocabulary: Vocabulary) -> None:
    """Print one example: a heading, then its documents and segments as separate paragraphs."""
    CONSOLE.print(Text.assemble("\n", (name, TITLE), (f"  {example_summary(row)}", DETAIL)))
    for margin, text in example_lines(row, documents, vocabulary):
        CONSOLE.print(with_margin(margin, text))


def with_margin(margin: Text, text: Text) -> Text:
    """Wrap a text between words to the terminal's width. The first line has the margin; the others are indented."""
    width = max(20, min(WIDEST, CONSOLE.width) - margin.cell_len)
    lines = text.wrap(CONSOLE, width)
    for line in lines:
        line.rstrip()
    return margin + Text("\n" + " " * margin.cell_len).join(lines)


def labels(table: pa.Table) -> str:
    """Return the share of examples with each pair label, as text; an empty string without a pair task."""
    shares = {name: pc.mean(table[column]).as_py() for name, column in LABELS.items()}
    return "".join(f", {share:.1%} {name}" for name, share in shares.items() if share is not None)


def _seen_rows(folder: str, step: int, row: int, number: int) -> None:
    with CONSOLE.status(f"recomputing the rows of step {step:,}"):
        rows = recompute_rows(folder, step, row, number)
    _print_legend(masked=rows[0].phase.sampling.masks)
    if step > rows[0].known:
        CONSOLE.print(
            Text(
                f"the run's newest checkpoint is of step {rows[0].known:,}: "
                f"these are the rows of step {step:,}, which the run may not have trained yet"
            )
        )
    for index, seen in enumerate(rows, start=row):
        values = seen.row
        position = (
            f"epoch {values['epoch']}, window {values['window']}, row {values['row']} of {values['rows_in_window']}, "
            f"sequences of at most {seen.phase.sampling.maximum_length} tokens"
        )
        _print_example(f"step {step}, row {index}: {position}", values, seen.documents, seen.vocabulary)


def _require_in_range(name: str, value: int, count: int) -> int:
    """Return the value. Raises ConfigError if the value is not from 0 to count - 1."""
    if not 0 <= value < count:
        raise ConfigError(f"{name} ({value}) must be from 0 to {count - 1}")
    return value


def _require_vocabulary(settings: VocabularySettings) -> Vocabulary:
    """Return the vocabulary that the settings name. Raises ConfigError if they name none."""
    if vocabulary := given_vocabulary(settings):
        return vocabulary
    raise ConfigError(
        "vocabulary.path must be given: a vocab.txt, a tokenizer.json, or a folder such as OUTPUT/vocabularies/NAME"
    )


VIEWS: dict[type[View], Callable[..., None]] = {
    Documents: _documents,
    Dropped: _dropped,
    Statistics: _statistics,
    Examples: _examples,
    Seen: _seen_rows,
    **PICTURES,
}
"""Settings type -> function that prints the view."""

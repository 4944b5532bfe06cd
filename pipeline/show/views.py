"""What jobs/show.py prints, one function a view."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

from pipeline import storage
from pipeline.config.data import Sampling, VocabularySettings
from pipeline.config.training import Batch
from pipeline.corpus.prepare import load_corpus, read_window
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.corpus.summary import corpus_text
from pipeline.corpus.vocabulary import given_vocabulary
from pipeline.errors import ConfigError
from pipeline.show import statistics as figures
from pipeline.show.rows import LEGEND, about, coloured
from pipeline.show.seen import documents_of, seen
from pipeline.text.sentences import split_sentences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece

CONSOLE = Console(highlight=False, soft_wrap=True)
LABELS = {"NotNext": "not_next", "swapped": "swapped"}


def documents(folder: str, number: int, window: int, source: str | None, sentences: int) -> None:
    corpus = load_corpus(folder)
    table = read_window(corpus, corpus.train[within("window", window, len(corpus.train))])
    rows = [row for row in table.to_pylist() if source is None or source in row["source"]]
    if not rows:
        raise ConfigError(f"source ({source}) matches no document of window {window}; the corpus has {', '.join(corpus.sources)}")
    for row in rows[:number]:
        CONSOLE.print(Text(f"{row['title'] or '(no title)'}", "bold"), Text(f"{row['id']}, from {row['source']}, {row['language']}, {len(row['text']):,} characters", "dim"))
        split = split_sentences(row["text"], lines_are_sentences=row["lines_are_sentences"], language=row["language"])
        for place, sentence in enumerate(split[:sentences]):
            CONSOLE.print(Text(f"{place + 1:4} ", "dim") + Text(sentence))
        CONSOLE.print(Text(f"     … {len(split) - sentences} more sentences" if len(split) > sentences else "", "dim"))


def dropped(folder: str) -> None:
    corpus = load_corpus(folder)
    samples = storage.read_json(storage.join(corpus.folder, storage.MANIFEST))["samples"]
    CONSOLE.print(Text(corpus_text(corpus)))
    for reason, found in sorted(samples.items()):
        CONSOLE.print(Text(f"\n{reason} ({corpus.dropped[reason]:,})", "bold"))
        for id, beginning in found:
            CONSOLE.print(Text(f"  {id}", "dim"), Text(" ".join(beginning.split())))


def statistics(folder: str, vocabulary: VocabularySettings, windows: int, picture: str | None) -> None:
    corpus = load_corpus(folder)
    found = figures.statistics(corpus, given_vocabulary(vocabulary), windows)
    CONSOLE.print(Text("\n".join([corpus_text(corpus), "", *figures.lines(found, corpus)])))
    if picture is not None:
        figures.picture(found, corpus, picture)
        CONSOLE.print(Text(f"\npicture: {picture}"))


def examples(folder: str, number: int, window: int, epoch: int, seed: int, vocabulary: VocabularySettings, sampling: Sampling) -> None:
    corpus = load_corpus(folder)
    within("window", window, len(corpus.train))
    settings = StreamSettings(corpus=corpus, vocabulary=require_vocabulary(vocabulary), sampling=sampling, batch=Batch(), seed=seed)
    table = window_rows(settings, WordPiece(settings.vocabulary), corpus.train, epoch, window)
    beside = documents_of(settings, epoch, window)
    said = f"{table.num_rows:,} examples in window {window} of epoch {epoch}, {len(table['ids'].combine_chunks().flatten()):,} tokens{labels(table)}; "
    CONSOLE.print(Text(said) + LEGEND)
    for row in table.slice(0, number).to_pylist():
        CONSOLE.print(Text("\n" + "\n".join(about(row, beside)), "dim"))
        CONSOLE.print(coloured(row, settings.vocabulary))


def labels(table: pa.Table) -> str:
    """The share of each pair label that the examples have, in words."""
    shares = {name: pc.mean(table[column]).as_py() for name, column in LABELS.items()}
    return "".join(f", {share:.1%} {name}" for name, share in shares.items() if share is not None)


def what_was_seen(folder: str, step: int, row: int, number: int) -> None:
    CONSOLE.print(LEGEND)
    for place in range(row, row + number):
        found = seen(folder, step, place)
        at = found.row
        CONSOLE.print(Text(f"\nstep {step}, row {place}: epoch {at['epoch']}, window {at['window']}, row {at['row']} of {at['rows_in_window']}", "bold"))
        CONSOLE.print(Text("\n".join(about(at, found.documents)), "dim"))
        CONSOLE.print(coloured(at, found.vocabulary))


def within(name: str, value: int, count: int) -> int:
    """The value. Raises ConfigError unless it is one of 0 to count - 1."""
    if not 0 <= value < count:
        raise ConfigError(f"{name} ({value}) must be from 0 to {count - 1}")
    return value


def require_vocabulary(settings: VocabularySettings) -> Vocabulary:
    """The vocabulary that is named. Raises ConfigError where none is."""
    if found := given_vocabulary(settings):
        return found
    raise ConfigError("vocabulary.path must be given: a vocab.txt, a tokenizer.json, or a folder such as OUTPUT/vocabularies/NAME")


VIEWS: dict[str, Callable[..., None]] = {"Documents": documents, "Dropped": dropped, "Statistics": statistics, "Examples": examples, "Seen": what_was_seen}
"""By the name of the settings' type in jobs/show.py."""

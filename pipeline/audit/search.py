"""Search the corpus and the rows of a run, as independent tasks: windows with texts first, then their rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.audit.rows import TokenTexts, words_as_read, words_of_rows
from pipeline.audit.steps import StepFinder, Stretch, TrainedRun, window_at, windows_to_make
from pipeline.audit.texts import AuditTexts
from pipeline.command_line.progress import Progress
from pipeline.config.phases import Phase
from pipeline.corpus.prepared import read_window
from pipeline.corpus.stream import StreamSettings, documents_of_window, settings_for_phase, window_rows
from pipeline.on_ray.tasks import RAY, Executor, run_tasks
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.ngrams import CommonRuns, TextFinder, WordSpans, parts_of

WINDOWS_PER_TASK = 8
MOST_SIGHTS, MOST_SHOWN = 100, 40
"""Sights of a text, and words of a sight, that are kept. All are counted."""
LEAST_KNOWN = 3
"""Words that are known to the vocabulary, by which a text is found in the rows of a document that contains it."""
PLACE = ["row", "document_a", "document_b", "not_next", "swapped"]


@dataclass(frozen=True, kw_only=True, order=True)
class Sight:
    """A row that shows a text."""

    window: int
    """Window, counted through all epochs."""
    row: int
    """Index of the row in its window."""
    words: int
    """Words in a row of the text that the row shows."""
    document: str
    """Id of the document."""
    shown: str
    """These words, with brackets around the masked ones."""


@dataclass(kw_only=True)
class Sightings:
    """The number of rows that show a text, and the first of these rows."""

    times: int = 0
    sights: list[Sight] = field(default_factory=list)

    def add(self, times: int, sights: Sequence[Sight]) -> None:
        """Add rows; of all sights, the first are kept."""
        self.times += times
        full = len(self.sights) == MOST_SIGHTS  # then most rows of a frequent text come too late to be kept
        if fresh := [sight for sight in sights if not full or sight < self.sights[-1]]:
            self.sights = sorted([*self.sights, *fresh])[:MOST_SIGHTS]


@dataclass(frozen=True, kw_only=True)
class InCorpus:
    """Texts that the training documents of a corpus contain, and the windows of these documents."""

    texts: list[int]
    """Indices of the texts that occur, ascending."""
    windows: np.ndarray
    """bool (windows,): whether a window has one of them."""


def search(
    trained: TrainedRun, texts: AuditTexts, report: Report, executor: Executor = RAY
) -> tuple[InCorpus, StepFinder, dict[int, Sightings]]:
    """Return where the corpus has the texts, and which rows that the run has read show them, with their steps."""
    in_corpus = _search_corpus(trained.settings, texts.texts, report, executor)
    return in_corpus, *_search_rows(trained, texts.texts, in_corpus, report, executor)


def _search_corpus(settings: StreamSettings, texts: Sequence[str], report: Report, executor: Executor) -> InCorpus:
    """Search all training windows for the texts: one pass over the shards."""
    search = _WindowSearch(settings=settings, finder=TextFinder(WordSpans.of(texts)))
    count = len(settings.corpus.train)
    items = [list(range(start, min(start + WINDOWS_PER_TASK, count))) for start in range(0, count, WINDOWS_PER_TASK)]
    found, windows = set[int](), np.zeros(count, bool)
    with Progress(report, "searching", "windows", count, "audit") as progress:
        for result in run_tasks(executor, search, items):
            found.update(result["texts"])
            windows[result["windows"]] = True
            progress.advance(result["searched"], result["characters"])
    return InCorpus(texts=sorted(found), windows=windows)


@dataclass(frozen=True, kw_only=True)
class _WindowSearch:
    """Task that searches windows of a corpus."""

    settings: StreamSettings
    finder: TextFinder

    def __call__(self, windows: list[int]) -> dict[str, Any]:
        found, having, characters = set[int](), [], 0
        for index in windows:
            window = self.settings.corpus.train[index]
            pairs = _documents_with_texts(read_window(self.settings.corpus, window), self.finder)
            characters += window.characters
            found.update(text for _, text in pairs)
            having += [index] * bool(pairs)
        return {"texts": sorted(found), "windows": having, "searched": len(windows), "characters": characters}


def _documents_with_texts(documents: pa.Table, finder: TextFinder) -> set[tuple[int, int]]:
    """Return (index of a document, index of a text) for each text that a document contains."""
    pairs = set[tuple[int, int]]()
    for start, part in parts_of(documents["text"].to_pylist()):
        searched = WordSpans.of(part)
        found = finder.find(searched)
        pairs.update(zip((start + searched.texts[found.at]).tolist(), finder.wanted.texts[found.first].tolist()))
    return pairs


def _search_rows(
    trained: TrainedRun, texts: Sequence[str], in_corpus: InCorpus, report: Report, executor: Executor
) -> tuple[StepFinder, dict[int, Sightings]]:
    """Make the rows of windows with texts; return the steps of these rows, and {index of a text: where it was seen}.

    The windows before them are made, too, because the steps of rows follow from the number of rows before them.
    """
    settings, wanted = trained.settings, [texts[index] for index in in_corpus.texts]
    made = list(windows_to_make(trained.stretches, in_corpus.windows, settings.seed))
    tokens = TokenTexts.of(settings.vocabulary)
    search = _RowSearch(
        phases={each.phase.first: _with_factors(settings, each.phase) for each, _ in made},
        tokens=tokens,
        holds=in_corpus.windows,
        in_documents=TextFinder(WordSpans.of(wanted)),
        in_rows=TextFinder(words_as_read(wanted, CachedTokenizer(settings.vocabulary), tokens), LEAST_KNOWN),
    )
    items = list(_items(made, trained.cut_windows()))
    rows, seen = dict[int, int](), dict[int, Sightings]()
    if not items:
        return StepFinder(made, rows), seen
    with Progress(report, "making rows of", "windows", sum(len(item["windows"]) for item in items), "audit") as bar:
        for result in run_tasks(executor, search, items):
            rows |= {int(number): count for number, count in result["rows"].items()}
            for index, found in result["seen"].items():
                text = in_corpus.texts[int(index)]
                seen.setdefault(text, Sightings()).add(found["times"], [Sight(**sight) for sight in found["sights"]])
            bar.advance(len(result["rows"]))
    return StepFinder(made, rows), seen


def _with_factors(settings: StreamSettings, phase: Phase) -> StreamSettings:
    """Return the settings of a phase, with the factors of languages, which tasks need not compute again."""
    own = settings_for_phase(settings, phase)
    assert own.language_factors is not None
    return own


def _items(made: Sequence[tuple[Stretch, range]], cut: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield the tasks: windows of one phase, and how many of their rows have been read. No window is in two tasks."""
    done = 0
    for stretch, numbers in made:
        for start in range(max(numbers.start, done), numbers.stop, WINDOWS_PER_TASK):
            windows = range(start, min(start + WINDOWS_PER_TASK, numbers.stop))
            yield {"phase": stretch.phase.first, "windows": [[number, cut.get(number)] for number in windows]}
        done = max(done, numbers.stop)


@dataclass(frozen=True, kw_only=True)
class _RowSearch:
    """Task that makes the rows of windows, and searches those of documents with texts."""

    phases: Mapping[int, StreamSettings]
    """{first step of a phase: settings}."""
    tokens: TokenTexts
    holds: np.ndarray
    in_documents: TextFinder
    in_rows: TextFinder

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        settings = self.phases[item["phase"]]
        tokenizer, train = CachedTokenizer(settings.vocabulary), settings.corpus.train
        rows, seen = dict[int, int](), dict[int, Sightings]()
        for number, read in item["windows"]:
            table = window_rows(settings, tokenizer, train, *divmod(number, len(train)))
            rows[number] = table.num_rows
            if self.holds[window_at(number, settings.seed, len(train))]:
                for text, sight in self._sights(settings, table.slice(0, read), number):
                    seen.setdefault(text, Sightings()).add(1, [sight])
        return {"rows": rows, "seen": {text: asdict(found) for text, found in seen.items()}}

    def _sights(self, settings: StreamSettings, table: pa.Table, number: int) -> Iterator[tuple[int, Sight]]:
        """Yield (text, row that shows it) for the rows of a window."""
        train = settings.corpus.train
        window = train[window_at(number, settings.seed, len(train))]
        documents = documents_of_window(settings, window, number // len(train))
        having = _documents_with_texts(documents, self.in_documents)
        rows = table.filter(pa.array(_of_documents(table, {document for document, _ in having}, documents.num_rows)))
        if not rows.num_rows:
            return
        words, masked = words_of_rows(rows, self.tokens)
        found = self.in_rows.find(words)
        ids, places = documents["id"].to_pylist(), rows.select(PLACE).to_pylist()
        for (row, text), runs in _grouped(words, found, self.in_rows.wanted):
            shown = [at for at in _document_range(places[row]) if (at, text) in having]
            if shown:
                first, last = _longest(runs)
                last = min(last, first + int(self.in_rows.wanted.lengths[text]))  # a text may repeat itself
                yield (
                    text,
                    Sight(
                        window=number,
                        row=places[row]["row"],
                        words=last - first,
                        document=ids[shown[0]],
                        shown=_with_brackets(words, masked, first, min(last, first + MOST_SHOWN)),
                    ),
                )


def _of_documents(table: pa.Table, documents: set[int], count: int) -> np.ndarray:
    """Return which rows may have words of one of the documents, bool (rows,); `count` is the window's documents."""
    chosen = np.zeros(count, bool)
    chosen[list(documents)] = True
    first, last = (table[name].to_numpy() for name in ("document_a", "document_b"))
    before = np.append(0, np.cumsum(chosen))
    between = before[np.maximum(first, last) + 1] > before[np.minimum(first, last)]
    return np.where(_is_pair(table), chosen[first] | chosen[last], between)


def _is_pair(table: pa.Table) -> np.ndarray:
    """Return which rows have two segments, each of one document; the others run from one document to another."""
    labels = [pc.is_valid(table[name]).to_numpy() for name in ("not_next", "swapped")]
    return labels[0] | labels[1]


def _document_range(place: Mapping[str, Any]) -> Sequence[int]:
    """Return the documents of a row, the first of its text first."""
    first, last = place["document_a"], place["document_b"]
    is_pair = place["not_next"] is not None or place["swapped"] is not None
    return (first, last) if is_pair else range(min(first, last), max(first, last) + 1)


def _grouped(
    words: WordSpans, found: CommonRuns, wanted: WordSpans
) -> Iterator[tuple[tuple[int, int], list[tuple[int, int]]]]:
    """Yield ((row, text), ascending (first word, word after the last) of the text's runs) for each text of a row."""
    keys = zip(words.texts[found.at].tolist(), wanted.texts[found.first].tolist())
    runs = sorted(zip(keys, zip(found.at.tolist(), (found.at + found.words).tolist())))
    for key, group in groupby(runs, key=itemgetter(0)):
        yield key, [run for _, run in group]


def _longest(runs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the longest range of words that runs cover without a gap; the runs ascend and overlap."""
    joined = [runs[0]]
    for first, last in runs[1:]:
        if first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return max(joined, key=lambda run: run[1] - run[0])


def _with_brackets(words: WordSpans, masked: np.ndarray, first: int, last: int) -> str:
    """Return words as text, with brackets around the masked ones."""
    shown = []
    for at in range(first, last):
        word = words.data[words.starts[at] : words.stops[at]].tobytes().decode(errors="replace")
        shown.append(f"[{word}]" if masked[at] else word)
    return " ".join(shown)

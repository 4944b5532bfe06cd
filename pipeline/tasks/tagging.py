"""Sentences whose words have tags, as CoNLL's files hold them: words to pieces, and predictions back to words.

L tokens of a window.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from pipeline.errors import BadRow, ConfigError, DataError, listed, shown
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.content import bare_name, lines
from pipeline.tasks.entities import OUTSIDE, as_iob, iob2, is_chunk_tag, is_span_tag, split
from pipeline.tasks.parts import most_context, parts
from pipeline.tasks.pieces import Pieces, Tokenization
from pipeline.tasks.readers import rows_in
from pipeline.tasks.squad import SURROGATE
from pipeline.text.vocabulary import Vocabulary

DOCUMENT_START = "-DOCSTART-"
BLANK = re.compile("[ \t]+")  # other white space, such as a no-break space, may stand in a word
WITH_LISTS = (".jsonl", ".ndjson", ".json", ".parquet")
"""Formats of own files whose columns can hold lists."""
IGNORED = -100
"""The label of what the loss leaves out (PyTorch's ignore_index)."""
SPECIAL_TOKENS = 2


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """Words and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """How sentences are cut, in pieces, and which pieces have labels."""

    maximum_length: int = 128
    stride: int = 32
    """What a window of a longer sentence shares with the next."""
    label_all_pieces: bool = False
    """Whether pieces after a word's first are labelled too, B- as I-; else the loss leaves them out (Devlin et al. 2019, 5.3)."""

    def __post_init__(self) -> None:
        room = self.maximum_length - SPECIAL_TOKENS
        if not 0 <= self.stride < room:
            raise ConfigError(
                f"cutting.stride ({self.stride}) must be from 0 to less than the {room} pieces that cutting.maximum_length ({self.maximum_length}) "
                f"leaves beside {SPECIAL_TOKENS} special tokens: lower the stride or raise the length"
            )


@dataclass(frozen=True, kw_only=True)
class TaggingWindow:
    """One model input of a sentence. Of all its windows a piece has its label in one, where it has the most context."""

    ids: np.ndarray  # int32 (L,)
    labels: np.ndarray  # int64 (L,), places in the tag names, or IGNORED
    words: np.ndarray  # int32 (L,), place of each piece's word in the sentence; -1 for special tokens
    first: (
        np.ndarray
    )  # bool (L,), whether the word's tag is read here: its first piece, in the window where it has the most context


def read_sentences(location: str, column: int = -1, bad: BadRows | None = None) -> list[Sentence]:
    """The sentences of a CoNLL file, which may be compressed: a word a line, its tags in columns by spaces or tabs, a blank line after a sentence.

    `column`, from 0 or from -1 backwards, has the tags; the first has the words. Where all tags are chunks (IOB1, IOB2, BIOES, BILOU) they come as
    IOB2. Raises DataError for a file without sentences, and, unless `bad` leaves such sentences out, naming the line where the columns are not as in the first.
    """
    bad = bad or BadRows()
    sentences = list(sentences_of(location, column, bad))
    bad.require_some(location, len(sentences))
    if not sentences:
        raise DataError(
            f"{location} has 0 sentences: give a file with a word and its tags on each line, and blank lines between sentences"
        )
    return in_iob2(sentences)


def in_iob2(sentences: list[Sentence]) -> list[Sentence]:
    """The sentences as IOB2 where all tags are chunks, in IOB1, IOB2, BIOES or BILOU, else as they are."""
    if all(is_chunk_tag(tag) for sentence in sentences for tag in sentence.tags):
        return [Sentence(words=sentence.words, tags=iob2(sentence.tags)) for sentence in sentences]
    if all(is_span_tag(tag) for sentence in sentences for tag in sentence.tags):
        return [Sentence(words=sentence.words, tags=tuple(map(as_iob, sentence.tags))) for sentence in sentences]
    return sentences


def sentences_of(location: str, column: int, bad: BadRows) -> Iterator[Sentence]:
    """The sentences with their tags as they stand."""
    columns = 0
    for block in blocks(location):
        columns = columns or len(block[0][1])
        try:
            for number, cells in block:
                require_column(f"{location}, line {number}", column, cells, columns)
        except BadRow as error:
            bad.take(error)
            continue
        yield Sentence(words=tuple(cells[0] for _, cells in block), tags=tuple(cells[column] for _, cells in block))


def blocks(location: str) -> Iterator[list[tuple[int, list[str]]]]:
    """The lines of each sentence of a CoNLL file: number of the line from 1, and its cells."""
    block: list[tuple[int, list[str]]] = []
    for number, line in enumerate([*lines(location), ""], 1):
        cells = BLANK.split(line.strip(" \t"))
        if cells[0] not in ("", DOCUMENT_START):
            block.append((number, cells))
        elif block:
            yield block
            block = []


def read_tagged(location: str, words_column: str, tags_column: str, bad: BadRows | None = None) -> list[Sentence]:
    """The sentences of a table, one a row: two lists of texts of equal length, or texts of as many words and tags between white space. Chunks come as IOB2, as of read_sentences.

    Raises DataError, with file and line (in Parquet the row's number from 1), for what is neither and for lists of different lengths, unless
    `bad` leaves such rows out.
    """
    bad, sentences = bad or BadRows(), []
    for line, values in rows_in(location, (words_column, tags_column), bad):
        try:
            sentences.append(sentence_of(f"{location}:{line}", (words_column, tags_column), values))
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(sentences))
    if not sentences:
        raise DataError(f"{location} has no rows")
    return in_iob2(sentences)


def sentence_of(place: str, columns: tuple[str, str], values: Sequence[Any]) -> Sentence:
    """A row of words and tags, each a list or divided by white space. Raises BadRow; `place` is the file and the line."""
    if all(isinstance(value, str) for value in values):
        values = [value.split() for value in values]
    words, tags = (texts_in(f"{place}: column {column}", value) for column, value in zip(columns, values))
    if len(words) != len(tags):
        raise BadRow(
            f"{place}: column {columns[0]} has {len(words)} words and column {columns[1]} {len(tags)} tags: give each word one tag",
            "words-and-tags",
        )
    return Sentence(words=words, tags=tags)


def read_words(location: str, words_column: str | None = None) -> list[tuple[str, ...]]:
    """The words of sentences to be tagged: a column of lists in JSON lines or Parquet (None: words), else the first column of a CoNLL file.

    Raises DataError for a file without sentences, and with file and line for what is no list of texts.
    """
    if bare_name(location).endswith(WITH_LISTS):
        column = words_column or "words"
        sentences = [
            texts_in(f"{location}:{line}: column {column}", value) for line, (value,) in rows_in(location, (column,))
        ]
    else:
        sentences = [tuple(cells[0] for _, cells in block) for block in blocks(location)]
    if not sentences:
        raise DataError(
            f"{location} has 0 sentences: give a file with a word on each line and blank lines between sentences, or JSON lines with lists of words"
        )
    return sentences


def texts_in(place: str, value: Any) -> tuple[str, ...]:
    """The texts of a list, of which there is one at least. Raises DataError; `place` is file, line and column."""
    if not isinstance(value, list) or not value:
        raise BadRow(
            f"{place} is {'empty' if value is None or value == [] else f'no list but {shown(value)}'}; a list of texts is read, one for each word",
            "no-words",
        )
    for text in value:
        if not isinstance(text, str):
            raise BadRow(
                f"{place} holds {shown(text)}, which is no text; words and the names of tags, such as B-PER, are read",
                "no-words",
            )
        if SURROGATE.search(text):
            raise BadRow(
                f"{place} holds {shown(text)}, half of a surrogate pair, which is no character", "half-a-character"
            )
    return tuple(value)


def require_column(place: str, column: int, cells: Sequence[str], columns: int) -> None:
    """Raise DataError unless a line has as many columns as the first, which is a BadRow, and the one with the tags, which is not the words'."""
    there = len(cells)
    if there != columns:
        raise BadRow(
            f"{place} ({shown(' '.join(cells))}) has {there} columns, and the file's first word has {columns}: give each word the same number",
            "number-of-columns",
        )
    if not -there <= column < there or column % there == 0:
        choice = (
            f"choose one of 1 to {there - 1}, column 0 has the words" if there > 1 else "give each word a tag beside it"
        )
        raise DataError(f"{place} has {there} columns, and tags are wanted from column {column}: {choice}")


def tag_names(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """All tags, sorted; of chunks O and then B and I of each type, even those that no word has: label_all_pieces needs them."""
    tags = {tag for sentence in sentences for tag in sentence.tags}
    if not all(map(is_chunk_tag, tags)):
        return tuple(sorted(tags))
    kinds = sorted({split(tag)[1] for tag in tags - {OUTSIDE}})
    return (OUTSIDE, *chain.from_iterable((f"B-{kind}", f"I-{kind}") for kind in kinds))


def encode(
    tokenization: Tokenization, sentences: Sequence[Sentence], names: Sequence[str], tagging: Tagging = Tagging()
) -> list[list[TaggingWindow]]:
    """The windows of each sentence. Raises DataError for a tag that is not among the names."""
    require_known(sentences, names)
    places = {name: place for place, name in enumerate(names)}
    encoded = tokenization.of_words([sentence.words for sentence in sentences])
    return [
        list(
            windows_of(
                tokenization.vocabulary,
                pieces,
                labels(pieces, sentence.tags, places, tagging.label_all_pieces),
                tagging,
            )
        )
        for sentence, pieces in zip(sentences, encoded)
    ]


def require_known(sentences: Sequence[Sentence], names: Sequence[str]) -> None:
    """Raise DataError where a tag is not among the names."""
    unknown = Counter(tag for sentence in sentences for tag in sentence.tags)
    for name in names:
        unknown.pop(name, None)
    if unknown:
        tag, times = unknown.most_common(1)[0]
        raise DataError(
            f"tag {shown(tag)} ({times} words) is not among the {len(names)} tags learnt: {listed(names)}; mend the file or train with that tag"
        )


def first_of_word(pieces: Pieces) -> np.ndarray:
    """Whether each piece is its word's first, bool (T,)."""
    return np.diff(pieces.words, prepend=-1) != 0


def labels(pieces: Pieces, tags: Sequence[str], places: dict[str, int], all_pieces: bool) -> np.ndarray:
    """The label of each piece, int64 (T,)."""
    begun = np.array([places[tag] for tag in tags], np.int64)
    later = np.array(
        [
            places[f"I-{tag[2:]}" if is_chunk_tag(tag) and tag != OUTSIDE else tag] if all_pieces else IGNORED
            for tag in tags
        ],
        np.int64,
    )
    return np.where(first_of_word(pieces), begun[pieces.words], later[pieces.words])


def windows_of(vocabulary: Vocabulary, pieces: Pieces, labels: np.ndarray, tagging: Tagging) -> Iterator[TaggingWindow]:
    """The windows of one sentence."""
    bounds = parts(len(pieces.ids), tagging.maximum_length - SPECIAL_TOKENS, tagging.stride)
    firsts = first_of_word(pieces)
    for (start, end), most in zip(bounds, most_context(bounds)):
        yield TaggingWindow(
            ids=between(vocabulary.cls_id, pieces.ids[start:end], vocabulary.sep_id),
            labels=between(IGNORED, np.where(most, labels[start:end], IGNORED), IGNORED),
            words=between(-1, pieces.words[start:end], -1),
            first=between(False, firsts[start:end] & most, False),
        )


def between(before: int, values: np.ndarray, after: int) -> np.ndarray:
    """The values with one before and one after them, of their type."""
    return np.concatenate(([before], values, [after])).astype(values.dtype)


@dataclass(frozen=True, kw_only=True)
class PredictedTags:
    """A tag for each word of a sentence, and how many of them are O because no piece of the word was seen."""

    tags: tuple[str, ...]
    unseen: int


def predicted_tags(
    words: int, windows: Sequence[TaggingWindow], predictions: Sequence[np.ndarray], names: Sequence[str]
) -> PredictedTags:
    """The tags of a sentence of so many words from the predicted label of each token, int (L,), of each of its windows.

    A word's tag is its first piece's. A word without pieces, or in none of the windows, is O.
    """
    tags: list[str | None] = [None] * words
    for window, predicted in zip(windows, predictions, strict=True):
        for word, label in zip(window.words[window.first], predicted[window.first], strict=True):
            tags[word] = names[label]
    return PredictedTags(tags=tuple(tag or OUTSIDE for tag in tags), unseen=tags.count(None))

"""Sentences with a tag per word, as in CoNLL's files: encode words as pieces, and map predictions back to words.

Shapes: T pieces per sentence, L tokens per window.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from pipeline.config.cutting import Continuation
from pipeline.errors import BadRow, ConfigError, DataError, listed, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import EmptyTable, lines
from pipeline.tables.readers import rows_in
from pipeline.tables.spans import list_in, require_no_spans
from pipeline.tables.word_columns import WordLines, require_column, require_columns, texts_in, word_lines
from pipeline.tasks.metrics.entities import (
    OUTSIDE,
    as_iob,
    begun_inside,
    iob2,
    is_chunk_tag,
    is_span_tag,
    respelled,
    split,
)
from pipeline.tasks.parts import most_context, parts
from pipeline.tasks.pieces import Pieces, Tokenization
from pipeline.text.template import SPECIALS_OF_ONE
from pipeline.text.vocabulary import Vocabulary

IGNORED = -100
"""Label of tokens that the loss ignores (PyTorch's ignore_index)."""
CUT = -101
"""Label of the first or last token of a window if the sentence goes on beyond the window; the loss ignores it too."""
CONTINUED = "##"
"""Name of the tag of later pieces in config.json, with a continuation tag of their own."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """Words, with one tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Utterance(Sentence):
    """Words, with one tag each, and the intent of the whole sentence."""

    intent: str


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """Settings for splitting sentences into windows, and for choosing the pieces that have labels."""

    maximum_length: int = 128
    stride: int = 32
    """Overlap of consecutive windows of a long sentence."""
    label_all_pieces: bool = False
    """Whether the later pieces of a word have labels too. If not, the loss ignores these pieces (Devlin et al. 2019,
    section 5.3).
    """
    continuation: Continuation = "inside"
    """Label of later pieces. inside: the word's tag, with I- instead of B-; own: the index after the last tag."""

    def __post_init__(self) -> None:
        room = self.maximum_length - SPECIALS_OF_ONE
        if not 0 <= self.stride < room:
            raise ConfigError(
                f"cutting.stride ({self.stride}) must be at least 0 and less than {room}, the pieces that fit in "
                f"cutting.maximum_length ({self.maximum_length}) "
                f"with {SPECIALS_OF_ONE} special tokens: lower the stride or raise the length"
            )


@dataclass(frozen=True, kw_only=True)
class TaggingWindow:
    """One window of a sentence. A piece is labelled only in the window where it has the most context."""

    ids: np.ndarray  # int32 (L,)
    labels: np.ndarray  # int64 (L,), indices into the tag names, or IGNORED; the first and last may be CUT
    words: np.ndarray  # int32 (L,), index of each piece's word in the sentence; -1 for special tokens
    # bool (L,), whether a word's tag is read from this token: true for the first piece of the word, in the window where
    # that piece has the most context
    first: np.ndarray


def read_sentences(
    location: str, tags: int | None = None, bad: BadRows | None = None, words: int | None = None
) -> list[Sentence]:
    """Return the sentences of a file with a word and its tags on each line, optionally compressed.

    Columns are separated by spaces or tabs, and a blank line follows each sentence. `tags` and `words` are indices of
    columns (negative: from the end); None: those of `word_lines`, which also says what a comment is. Chunk tags are
    converted to IOB2 (`_in_iob2`).

    Raises DataError for a file without sentences or without the columns. If a line has more or fewer columns than the
    first line with a word, its sentence is bad: `bad` skips the sentence, or raises DataError.
    """
    bad, found = bad or BadRows(), word_lines(content := lines(location))
    if not any(content):
        raise EmptyTable(location)
    words, tags = found.words if words is None else words, found.tags if tags is None else tags
    sentences = list(_sentences_of(location, found, words, tags, bad))
    bad.require_some(location, len(sentences))
    if not sentences:
        raise DataError(
            f"{location} has 0 sentences: give a file with a word and its tags on each line, and blank lines between "
            "sentences"
        )
    bad.notes += found.notes(words, tags)
    return _in_iob2(sentences, bad)


def _in_iob2(sentences: list[Sentence], bad: BadRows) -> list[Sentence]:
    """Return the sentences, with IOB2 tags if all tags are chunk tags (IOB1, IOB2, BIOES or BILOU), else unchanged.

    Tags such as B_PER and b-per count as chunk tags (`respelled`). Adds a note to `bad` if the tags are respelled, or
    if only some of them are chunk tags.
    """
    tags = {tag for sentence in sentences for tag in sentence.tags}
    spelling = {tag: respelled(tag) for tag in tags}
    if others := sorted(tag for tag, standard in spelling.items() if not is_span_tag(standard)):
        if len(others) < len(spelling):
            bad.notes.append(
                f"words are scored, not entities, because tags such as {shown(others[0])} are not O, B-TYPE or I-TYPE"
            )
        return sentences
    if changed := sorted(tag for tag, standard in spelling.items() if tag != standard):
        bad.notes.append(f"tags such as {shown(changed[0])} are read as {spelling[changed[0]]}")
    renamed = [tuple(spelling[tag] for tag in sentence.tags) for sentence in sentences]
    convert = iob2 if all(map(is_chunk_tag, spelling.values())) else lambda tags: tuple(map(as_iob, tags))
    return [replace(sentence, tags=convert(tags)) for sentence, tags in zip(sentences, renamed)]


def _sentences_of(location: str, found: WordLines, words: int, tags: int, bad: BadRows) -> Iterator[Sentence]:
    """Yield the sentences with the file's own tags; `bad` skips or raises bad sentences."""
    if found.sentences:
        require_columns(f"{location}, line {found.sentences[0][0][0]}", words, tags, found.columns)
    for sentence in found.sentences:
        try:
            for number, cells in sentence:
                require_column(f"{location}, line {number}", cells, found.columns)
        except BadRow as error:
            bad.take(error)
            continue
        yield Sentence(
            words=tuple(cells[words] for _, cells in sentence), tags=tuple(cells[tags] for _, cells in sentence)
        )


def read_tagged(
    location: str,
    words_column: str,
    tags_column: str,
    bad: BadRows | None = None,
    intent_column: str | None = None,
) -> list[Sentence]:
    """Return the sentences of a table, one per row. Chunk tags are converted to IOB2, as in `read_sentences`.

    The columns of words and tags hold lists of equal length, or texts: such a list as text (`list_in`), or equally many
    parts between white space. With a column of intents, the sentences are utterances. Raises DataError, with file and
    line (in Parquet the row number from 1), for other values, unless `bad` skips such rows.
    """
    columns = (words_column, tags_column, *([intent_column] if intent_column is not None else []))
    bad, names = bad or BadRows(), (f"column {words_column}", f"column {tags_column}")
    return sentences_in(location, rows_in(location, columns, bad), names, bad)


def sentences_in(
    location: str, rows: Iterable[tuple[int, Sequence[Any]]], names: tuple[str, str], bad: BadRows
) -> list[Sentence]:
    """Return the sentences of rows: (line number, (words, tags)), or (line number, (words, tags, intent)).

    `names` say where words and tags stand, for messages. For bad rows, see `read_tagged`.
    """
    sentences = []
    for line, (words, tags, *intents) in rows:
        try:
            require_no_spans(f"{location}:{line}", names[1].removeprefix("column "), tags)
            sentence = _sentence_of(f"{location}:{line}", names, (words, tags))
            sentences.append(_utterance(f"{location}:{line}", sentence, intents[0]) if intents else sentence)
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(sentences))
    if not sentences:
        raise DataError(f"{location} has no rows")
    if len(sentences) > 1 and all(len(sentence.words) == 1 for sentence in sentences):
        bad.notes.append(
            "each row has one word: give a row the words and tags of a whole sentence, or name a file with a word on "
            "each line and blank lines between sentences .conll"
        )
    return _in_iob2(sentences, bad)


def _utterance(where: str, sentence: Sentence, intent: object) -> Utterance:
    """Return the sentence with its intent. Raises BadRow unless that is a text; `where` is file and line."""
    if not isinstance(intent, str) or not intent.strip():
        raise BadRow(f"{where} has the intent {shown(intent)}, which is not text: name the intent", "no-intent")
    return Utterance(words=sentence.words, tags=sentence.tags, intent=intent.strip())


def _sentence_of(where: str, names: tuple[str, str], values: Sequence[Any]) -> Sentence:
    """Convert a row's words and tags, which are two lists or two texts (`read_tagged`).

    `where` is file and line, and `names` say where words and tags stand, for messages. Raises BadRow for other values,
    and unless each word has one tag.
    """
    if all(isinstance(value, str) for value in values):
        values = [split_cell(value) for value in values]
    words, tags = (texts_in(f"{where}: {name}", value) for name, value in zip(names, values))
    if len(words) != len(tags):
        raise BadRow(
            f"{where}: {names[0]} has {len(words)} words and {names[1]} {len(tags)} tags: give each word one tag",
            "words-and-tags",
        )
    return Sentence(words=words, tags=tags)


def split_cell(text: str) -> list[Any]:
    """Return the members of a list as text (`list_in`), if one of them is a text, else the parts between white space.

    "[ 12 ]" is a sentence of three words.
    """
    members = list_in(text) or ()
    return list(members) if any(isinstance(member, str) for member in members) else text.split()


def tag_names(sentences: Sequence[Sentence]) -> tuple[str, ...]:
    """Return all tags, sorted; for chunk tags, O and then B-TYPE and I-TYPE of each type.

    B-TYPE and I-TYPE are both returned even if only one occurs, because label_all_pieces may need the other.
    """
    tags = {tag for sentence in sentences for tag in sentence.tags}
    if not all(map(is_chunk_tag, tags)):
        return tuple(sorted(tags))
    kinds = sorted({split(tag)[1] for tag in tags - {OUTSIDE}})
    return (OUTSIDE, *chain.from_iterable((f"B-{kind}", f"I-{kind}") for kind in kinds))


def encode(
    tokenization: Tokenization, sentences: Sequence[Sentence], names: Sequence[str], tagging: Tagging = Tagging()
) -> list[list[TaggingWindow]]:
    """Return the windows of each sentence. `names` are the tags; raises DataError for a tag that is not among them.

    Tags of `begun_inside` are labelled as the inside of their type.
    """
    _require_known(sentences, names)
    numbers, inside = {name: number for number, name in enumerate(names)}, begun_inside(names)
    encoded = tokenization.of_words([sentence.words for sentence in sentences])
    return [
        list(
            _windows_of(
                tokenization.vocabulary,
                pieces,
                _labels(pieces, [_inside(tag) if tag in inside else tag for tag in sentence.tags], numbers, tagging),
                tagging,
            )
        )
        for sentence, pieces in zip(sentences, encoded)
    ]


def _require_known(sentences: Sequence[Sentence], names: Sequence[str]) -> None:
    """Raise DataError for a tag that is not in `names`."""
    unknown = Counter(tag for sentence in sentences for tag in sentence.tags)
    for name in (*names, *begun_inside(names)):
        unknown.pop(name, None)
    if unknown:
        tag, times = unknown.most_common(1)[0]
        raise DataError(
            f"tag {shown(tag)} ({times} words) is not among the {len(names)} tags learnt: {listed(names)}; correct the "
            "file, or train on a file with that tag"
        )


def _first_of_word(pieces: Pieces) -> np.ndarray:
    """Return whether each piece is its word's first, bool (T,)."""
    return np.diff(pieces.words, prepend=-1) != 0


def _labels(pieces: Pieces, tags: Sequence[str], numbers: dict[str, int], tagging: Tagging) -> np.ndarray:
    """Return the label of each piece, int64 (T,); later pieces of a word are labelled as `tagging` says."""
    first = np.array([numbers[tag] for tag in tags], np.int64)
    if not tagging.label_all_pieces:
        later = np.full_like(first, IGNORED)
    elif tagging.continuation == "own":
        later = np.full_like(first, len(numbers))
    else:
        later = np.array([numbers[_inside(tag)] for tag in tags], np.int64)
    return np.where(_first_of_word(pieces), first[pieces.words], later[pieces.words])


def _inside(tag: str) -> str:
    """Return a chunk tag with I- instead of B-; other tags are unchanged."""
    return f"I-{tag[2:]}" if is_chunk_tag(tag) and tag != OUTSIDE else tag


def _windows_of(
    vocabulary: Vocabulary, pieces: Pieces, labels: np.ndarray, tagging: Tagging
) -> Iterator[TaggingWindow]:
    """Yield the windows of one sentence."""
    bounds = parts(len(pieces.ids), tagging.maximum_length - SPECIALS_OF_ONE, tagging.stride)
    firsts, length = _first_of_word(pieces), len(pieces.ids)
    for (start, end), most in zip(bounds, most_context(bounds)):
        before, after = CUT if start > 0 else IGNORED, CUT if end < length else IGNORED
        yield TaggingWindow(
            ids=_between(vocabulary.cls_id, pieces.ids[start:end], vocabulary.sep_id),
            labels=_between(before, np.where(most, labels[start:end], IGNORED), after),
            words=_between(-1, pieces.words[start:end], -1),
            first=_between(False, firsts[start:end] & most, False),
        )


def _between(before: int, values: np.ndarray, after: int) -> np.ndarray:
    """Return the values with one value added before and after them, in their dtype."""
    return np.concatenate(([before], values, [after])).astype(values.dtype)


@dataclass(frozen=True, kw_only=True)
class PredictedTags:
    """Tags of a sentence's words, and the number of words tagged O because they have no token in any window."""

    tags: tuple[str, ...]
    unseen: int
    intent: str | None = None
    """Intent of the sentence; None if the task has no intents."""


def predicted_tags(
    words: int, windows: Sequence[TaggingWindow], predictions: Sequence[np.ndarray], names: Sequence[str]
) -> PredictedTags:
    """Return the tags of a sentence with `words` words, from the predictions for each of its windows.

    `predictions` has one array per window, int (L,): the index in `names` of each token's tag. A word has the tag of
    its first piece. A word without pieces, or in no window, is tagged O.
    """
    tags: list[str | None] = [None] * words
    for window, predicted in zip(windows, predictions, strict=True):
        for word, label in zip(window.words[window.first], predicted[window.first], strict=True):
            tags[word] = names[label]
    return PredictedTags(tags=tuple(tag or OUTSIDE for tag in tags), unseen=tags.count(None))


def word_scores(
    words: int, windows: Sequence[TaggingWindow], logits: Sequence[np.ndarray], names: Sequence[str]
) -> tuple[np.ndarray, int]:
    """Return the scores of the tags of each word, float32 (words, tags), and the number of words without scores.

    `logits` has one array per window, (L, at least the number of tags). A word has the scores of its first piece. A
    word without pieces, or in no window, has the score 0 for O and minus infinity for other tags; without a tag O, all
    scores are 0.
    """
    unseen = np.array([0.0 if name == OUTSIDE or OUTSIDE not in names else -np.inf for name in names], np.float32)
    scores, seen = np.tile(unseen, (words, 1)), np.zeros(words, bool)
    for window, of_window in zip(windows, logits, strict=True):
        own = window.words[window.first]
        scores[own], seen[own] = of_window[window.first][:, : len(names)], True
    return scores, int((~seen).sum())

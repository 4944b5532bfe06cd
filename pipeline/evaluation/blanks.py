"""Fill in the blank: let the model guess one hidden word per held-out sentence, and select a few sentences to show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.batch import Batch, collate
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.objectives.table import Pretraining
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.documents import WORDY
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.splitting import decoder_of
from pipeline.text.vocabulary import Vocabulary

WINDOWS = 8  # maximum held-out windows to search
SENTENCE_ENDS = ".!?…。！？؟।۔"
MOST_LATER = 8  # maximum further sentences in total, after one sentence from each parent document
BETWEEN_WORDY = re.compile(rf"(?<={WORDY.pattern}) (?={WORDY.pattern})")
PUNCTUATED = re.compile(r"____ (?=[.,;:!?])")
WORDS = range(8, 31)  # lengths in tokens of sentences that are easy to read
CANDIDATES = 256  # maximum sentences in which the model guesses a word
RANDOM, SUREST = 3, 4  # maximum sentences to show of each selection


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A sentence with a hidden word, and the model's best guesses."""

    text: str
    """The sentence, with ____ for the hidden word."""
    answer: str
    """The hidden word."""
    guesses: list[list[str | float]]
    """Up to five pairs [word, probability], best first.

    Probabilities are over the whole vocabulary. Only entries that begin a word and consist of letters are guesses.
    """

    @property
    def right(self) -> bool:
        """Whether the best guess is the hidden word."""
        return bool(self.guesses) and self.guesses[0][0] == self.answer


@dataclass(frozen=True, kw_only=True)
class Blanks:
    """Two selections from the same candidates: random ones, and the most confident correct ones."""

    random: list[Blank]
    surest: list[Blank]
    """Candidates whose best guess is right: those with the highest probabilities, at most one per answer.

    May be empty.
    """
    candidates: int
    """Number of candidates."""
    right: int
    """Number of candidates whose best guess is right."""


def sentences_with_blanks(
    corpus: Corpus, tokenizer: CachedTokenizer, vocabulary: Vocabulary
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (ids, position of a whole word to hide) for held-out sentences.

    The first sentences come from different parent documents; up to MOST_LATER further ones follow. `ids` is int32 (L,)
    without special tokens.
    """
    random = generator(0, 0, 0, "blanks")
    parents: set[str] = set()
    later: list[tuple[np.ndarray, np.ndarray]] = []
    for window in corpus.heldout[:WINDOWS]:
        for document in read_window(corpus, window).to_pylist():
            fitting = _fitting_sentences(document, tokenizer, vocabulary)
            if document["parent"] not in parents and (first := next(fitting, None)):
                parents.add(document["parent"])
                yield first[0], int(random.choice(first[1]))
            later += islice(fitting, MOST_LATER - len(later))
    for ids, word_indices in later:
        yield ids, int(random.choice(word_indices))


def _fitting_sentences(
    document: dict[str, Any], tokenizer: CachedTokenizer, vocabulary: Vocabulary
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (ids, positions of whole words) of each sentence that is complete and has a length in WORDS.

    A complete sentence starts with a letter that is not lower-case, and ends with a mark in SENTENCE_ENDS.
    """
    lines, language = document["lines_are_sentences"], document["language"]
    for sentence in split_sentences(document["text"], lines_are_sentences=lines, language=language):
        if sentence[-1] not in SENTENCE_ENDS or not sentence[0].isalpha() or sentence[0].islower():
            continue
        ids = tokenizer.encode([sentence])[0]
        if len(ids) in WORDS and len(word_indices := _whole_words(ids, vocabulary)):
            yield ids, word_indices


def _whole_words(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return the positions in `ids` (L,) of entries that are whole words worth guessing, int64."""
    letters = np.array([_is_worth_guessing(_word_of(vocabulary, i)) for i in ids])
    continued = np.append(vocabulary.continuation[ids[1:]], False)
    return np.flatnonzero(letters & ~continued)


def _is_worth_guessing(word: str) -> bool:
    """Return whether a word has three or more characters, or contains an ideograph, kana or Hangul syllable."""
    return len(word) >= 3 or WORDY.search(word) is not None


def _word_of(vocabulary: Vocabulary, entry: int) -> str:
    """Return the text of an entry that begins a word and has only letters; an empty string for other entries."""
    if vocabulary.continuation[entry]:
        return ""
    word = decoder_of(vocabulary.kind).decode([vocabulary.tokens[entry]]).strip()
    return word if word.isalpha() else ""


def _blank_batch(sentences: list[tuple[np.ndarray, int]], vocabulary: Vocabulary) -> Batch:
    """Return a batch of the sequences [CLS] sentence [SEP]; the word at each sentence's position is masked."""
    rows = []
    for ids, position in sentences:
        sequence = [vocabulary.cls_id, *ids.tolist(), vocabulary.sep_id]
        sequence[position + 1] = vocabulary.mask_id
        row = {
            "ids": sequence,
            "first_length": len(sequence),
            "masked_positions": [position + 1],
            "masked_labels": [int(ids[position])],
        }
        rows.append(row | {"not_next": False, "document_a": 0, "document_b": 0})
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


def readable(ids: np.ndarray, position: int, vocabulary: Vocabulary) -> str:
    """Return the sentence as text, with ____ for the hidden word and no spaces between ideographs."""
    if vocabulary.kind != "wordpiece":
        return _decoded(ids, position, vocabulary)
    words: list[str] = []
    for index, i in enumerate(ids):
        token = vocabulary.tokens[i]
        if index == position:
            words.append("____")
        elif token.startswith("##") and words:
            words[-1] += token[2:]
        else:
            words.append(token)
    return BETWEEN_WORDY.sub("", " ".join(words))


def _decoded(ids: np.ndarray, position: int, vocabulary: Vocabulary) -> str:
    """Return the same text as `readable`, for vocabularies whose entries include the space before a word."""
    decode = decoder_of(vocabulary.kind).decode
    before, after = ([vocabulary.tokens[i] for i in part] for part in (ids[:position], ids[position + 1 :]))
    whole = f"{decode(before)} ____ {decode(after).lstrip()}"
    return PUNCTUATED.sub("____", whole).strip()


def fill_in_the_blanks(
    module: Pretraining,
    corpus: Corpus,
    tokenizer: CachedTokenizer,
    vocabulary: Vocabulary,
    *,
    maximum_length: int,
    device: torch.device,
) -> Blanks:
    """Let the model guess a hidden word in each of up to CANDIDATES held-out sentences, and select sentences to show.

    Sentences that do not fit in `maximum_length` tokens, with [CLS] and [SEP], are skipped.
    """
    sentences = sentences_with_blanks(corpus, tokenizer, vocabulary)
    fitting = (sentence for sentence in sentences if len(sentence[0]) + 2 <= maximum_length)
    sentences = list(islice(fitting, CANDIDATES))
    if not sentences:
        return Blanks(random=[], surest=[], candidates=0, right=0)
    word_ids = torch.tensor([i for i in vocabulary.ordinary_ids.tolist() if _word_of(vocabulary, i)], device=device)
    was_training = module.training
    module.eval()
    with torch.inference_mode():
        logits_BV = module.predict_masked(_blank_batch(sentences, vocabulary).to(device))
    module.train(was_training)
    best = logits_BV.float().softmax(-1)[:, word_ids].topk(min(5, len(word_ids)))
    blanks = []
    for (ids, position), probabilities, indices in zip(
        sentences, best.values.tolist(), word_ids[best.indices].tolist(), strict=True
    ):
        guesses = [[_word_of(vocabulary, i), p] for p, i in zip(probabilities, indices, strict=True)]
        blanks.append(
            Blank(text=readable(ids, position, vocabulary), answer=_word_of(vocabulary, ids[position]), guesses=guesses)
        )
    return chosen(blanks)


def chosen(blanks: list[Blank]) -> Blanks:
    """Select the sentences to show: random candidates, and the most confident correct ones, one per answer.

    The first candidates serve as random ones, because the documents of a corpus are in random order.
    """
    right = sorted((blank for blank in blanks if blank.right), key=lambda blank: blank.guesses[0][1])
    by_answer = {blank.answer: blank for blank in right}  # the last blank of an answer has the highest probability
    surest = sorted(by_answer.values(), key=lambda blank: blank.guesses[0][1], reverse=True)[:SUREST]
    return Blanks(random=blanks[:RANDOM], surest=surest, candidates=len(blanks), right=len(right))

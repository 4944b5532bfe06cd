"""Fill in the blank: let the model guess one hidden word per held-out sentence, and select a few sentences to show."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.batch import MaskedBatch, collate
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.objectives.table import Pretraining
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.documents import WORDY
from pipeline.text.prose import UNSPACED, is_complete, is_letters, is_plain, word_spans
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.splitting import decoder_of
from pipeline.text.vocabulary import Vocabulary

WINDOWS = 8  # maximum held-out windows to search
WORDS = range(8, 31)  # lengths in tokens of sentences that are easy to read
CANDIDATES = 256  # maximum sentences in which the model guesses a word
RANDOM, SUREST = 10, 5  # maximum sentences to show of each selection


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A sentence with a hidden word, and the model's best guesses."""

    text: str
    """The sentence, with ____ for the hidden word."""
    answer: str
    """The hidden word."""
    guesses: list[list[str | float]]
    """Up to five pairs [word, probability], best first.

    Probabilities are over the whole vocabulary. Only entries that stand for a word are guesses (`word_entries`).
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
    plain: int
    """Number of candidates that are plain prose; less than `candidates` only if the text has few such sentences."""


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """A held-out sentence, and the word to hide in it."""

    ids: list[int]
    """Ids of the whole sentence, without special tokens."""
    position: int
    """Index in `ids` of the hidden word."""
    text: str
    """The sentence as its document has it, with ____ for the hidden word."""


def sentences_with_blanks(
    corpus: Corpus, tokenizer: CachedTokenizer, vocabulary: Vocabulary, longest: int = WORDS[-1]
) -> tuple[list[Hidden], int]:
    """Return up to CANDIDATES complete held-out sentences with a word to hide, and the number of those of plain prose.

    Sentences of plain prose come first: one of each parent document, drawn at random, then further ones. If there are
    fewer than RANDOM, other sentences follow, up to RANDOM in all. Sentences have at most `longest` tokens.
    """
    random, words = generator(0, 0, 0, "blanks"), word_entries(vocabulary)
    parents: set[str] = set()
    first: dict[str, Hidden] = {}  # by sentence, because texts repeat some
    later: dict[str, Hidden] = {}
    other: dict[str, Hidden] = {}
    for document in (row for window in corpus.heldout[:WINDOWS] for row in read_window(corpus, window).to_pylist()):
        for sentence in _complete_sentences(document, random):
            plain = is_plain(sentence)
            group = other if not plain else later if document["parent"] in parents else first
            if len(group) < (CANDIDATES if plain else RANDOM) and (
                hidden := _hide_word(sentence, tokenizer, words, longest, random)
            ):
                group[sentence] = hidden
                if plain:
                    parents.add(document["parent"])
        if len(first) == CANDIDATES:
            break
    chosen_plain = list((first | later).values())[:CANDIDATES]
    return chosen_plain + list(other.values())[: max(RANDOM - len(chosen_plain), 0)], len(chosen_plain)


def _complete_sentences(document: dict[str, Any], random: np.random.Generator) -> Iterator[str]:
    """Yield the complete sentences of a document in random order."""
    sentences = split_sentences(
        document["text"], lines_are_sentences=document["lines_are_sentences"], language=document["language"]
    )
    complete = [sentence for sentence in sentences if is_complete(sentence)]
    for index in random.permutation(len(complete)):
        yield complete[index]


def _hide_word(
    sentence: str, tokenizer: CachedTokenizer, words: list[str], longest: int, random: np.random.Generator
) -> Hidden | None:
    """Return the sentence with a word hidden that is one entry of the vocabulary; None if it has no such word.

    `words`: as from `word_entries`. Return None too if the sentence has not as many tokens as WORDS, or over `longest`.
    """
    encoding = tokenizer.tokenizer.encode(sentence, add_special_tokens=False)
    if len(encoding.ids) not in WORDS or len(encoding.ids) > longest:
        return None
    spans, vocabulary, places = word_spans(sentence), tokenizer.vocabulary, []
    continued = [*vocabulary.continuation[encoding.ids[1:]], False]
    for position, (i, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets, strict=True)):
        start += len(sentence[start:end]) - len(sentence[start:end].lstrip())  # a piece may include its space
        # In WordPiece, a continuation is never a word. Other kinds cut scripts without spaces into words as they can.
        alone = not (vocabulary.kind == "wordpiece" and continued[position])
        is_word = (start, end) in spans or (alone and UNSPACED.fullmatch(words[i]))
        if words[i] and is_word and _is_worth_guessing(words[i]):
            places.append((position, start, end))
    if not places:
        return None
    position, start, end = places[random.integers(len(places))]
    return Hidden(ids=encoding.ids, position=position, text=f"{sentence[:start]}____{sentence[end:]}")


def _is_worth_guessing(word: str) -> bool:
    """Return whether a word has three or more characters, or contains an ideograph, kana or Hangul syllable."""
    return len(word) >= 3 or WORDY.search(word) is not None


def word_entries(vocabulary: Vocabulary) -> list[str]:
    """Return the word that each entry of the vocabulary stands for; an empty string for other entries.

    A word has only letters and begins as words do: in WordPiece without ##, else with a space. In scripts without
    spaces between words, it need not begin with a space.
    """
    decoder = decoder_of(vocabulary.kind)
    words = [""] * vocabulary.size
    for i in vocabulary.ordinary_ids.tolist():
        word = decoder.decode([vocabulary.tokens[i]]).strip()
        unspaced = vocabulary.kind != "wordpiece" and UNSPACED.fullmatch(word)
        if is_letters(word) and (unspaced or not vocabulary.continuation[i]):
            words[i] = word
    return words


def _blank_batch(sentences: list[Hidden], vocabulary: Vocabulary) -> MaskedBatch:
    """Return a batch of the sequences [CLS] sentence [SEP]; each sentence's hidden word is masked."""
    rows = []
    for sentence in sentences:
        sequence = [vocabulary.cls_id, *sentence.ids, vocabulary.sep_id]
        sequence[sentence.position + 1] = vocabulary.mask_id
        row = {
            "ids": sequence,
            "first_length": len(sequence),
            "masked_positions": [sentence.position + 1],
            "masked_labels": [sentence.ids[sentence.position]],
        }
        rows.append(row | {"not_next": False, "document_a": 0, "document_b": 0})
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


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
    longest = min(WORDS[-1], maximum_length - 2)
    sentences, plain = sentences_with_blanks(corpus, tokenizer, vocabulary, longest)
    if not sentences:
        return Blanks(random=[], surest=[], candidates=0, right=0, plain=0)
    words = word_entries(vocabulary)
    word_ids = torch.tensor([i for i, word in enumerate(words) if word], device=device)
    answers = torch.tensor([sentence.ids[sentence.position] for sentence in sentences], device=device)
    # A word with a space before it and the same word without one are two entries: guess among those like the answer.
    continuation = torch.from_numpy(vocabulary.continuation).to(device)
    alike = continuation[answers][:, None] == continuation[word_ids]
    was_training = module.training
    module.eval()
    with torch.inference_mode():
        logits_BV = module.predict_masked(_blank_batch(sentences, vocabulary).to(device))
    module.train(was_training)
    shares = logits_BV.float().softmax(-1)[:, word_ids].masked_fill(~alike, -1)
    best = shares.topk(min(5, int(alike.sum(1).min())))
    blanks = []
    for sentence, probabilities, indices in zip(
        sentences, best.values.tolist(), word_ids[best.indices].tolist(), strict=True
    ):
        guesses = [[words[i], p] for p, i in zip(probabilities, indices, strict=True)]
        blanks.append(Blank(text=sentence.text, answer=words[sentence.ids[sentence.position]], guesses=guesses))
    return chosen(blanks, plain)


def chosen(blanks: list[Blank], plain: int) -> Blanks:
    """Select the sentences to show: random candidates, and the most confident correct ones, one per answer.

    The first candidates serve as random ones, because the documents of a corpus are in random order. `plain` is the
    number of candidates that are plain prose.
    """
    right = sorted((blank for blank in blanks if blank.right), key=lambda blank: blank.guesses[0][1])
    by_answer = {blank.answer: blank for blank in right}  # the last blank of an answer has the highest probability
    surest = sorted(by_answer.values(), key=lambda blank: blank.guesses[0][1], reverse=True)[:SUREST]
    return Blanks(random=blanks[:RANDOM], surest=surest, candidates=len(blanks), right=len(right), plain=plain)

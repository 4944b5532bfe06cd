"""Fill-in-the-blank: what the model reads into a held-out sentence with one word hidden."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from pipeline.batch import Batch, collate
from pipeline.corpus.prepare import Corpus, read_window
from pipeline.objectives.pretraining import BertPretraining
from pipeline.text.examples import generator
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece

WINDOWS = 8  # held-out ones that are looked through
WORDS = range(8, 31)  # pieces of a sentence that a person reads at a glance


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A sentence with a hidden word and the model's best guesses."""

    text: str
    answer: str
    guesses: list[list[str | float]]
    """[word, probability among all entries], best first; marks and word pieces are left out."""


def sentences_with_blanks(corpus: Corpus, wordpiece: WordPiece, vocabulary: Vocabulary) -> Iterator[tuple[np.ndarray, int]]:
    """Sentences of different held-out parents as ids, each with the place of a word that is one entry of the vocabulary."""
    random = generator(0, 0, 0, "blanks")
    parents = set()
    for window in corpus.heldout[:WINDOWS]:
        for document in read_window(corpus, window).to_pylist():
            if document["parent"] in parents:
                continue
            for sentence in split_sentences(document["text"], lines_are_sentences=document["lines_are_sentences"]):
                if sentence[-1] not in ".!?" or not sentence[0].isupper():
                    continue
                ids = wordpiece.encode([sentence])[0]
                places = whole_words(ids, vocabulary) if len(ids) in WORDS else []
                if len(places):
                    parents.add(document["parent"])
                    yield ids, int(random.choice(places))
                    break


def whole_words(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Places of entries of three letters or more that are a word by themselves."""
    letters = np.array([token.isalpha() and len(token) >= 3 for token in (vocabulary.tokens[i] for i in ids)])
    continued = np.append(vocabulary.continuation[ids[1:]], False)
    return np.flatnonzero(letters & ~continued)


def blank_batch(ids: np.ndarray, place: int, vocabulary: Vocabulary, maximum_length: int) -> Batch:
    """One sequence [CLS] sentence [SEP] [SEP] with the word at `place` masked."""
    sequence = [vocabulary.cls_id, *ids.tolist(), vocabulary.sep_id][:maximum_length]
    sequence[place + 1] = vocabulary.mask_id
    row = {
        "ids": sequence,
        "first_length": len(sequence),
        "masked_positions": [place + 1],
        "masked_labels": [int(ids[place])],
        "not_next": False,
        "document_a": 0,
        "document_b": 0,
    }
    return collate(pa.Table.from_pylist([row], schema=EXAMPLE))


def readable(ids: np.ndarray, place: int, vocabulary: Vocabulary) -> str:
    """The sentence as text, with a line for the hidden word."""
    words: list[str] = []
    for index, i in enumerate(ids):
        token = vocabulary.tokens[i]
        if index == place:
            words.append("____")
        elif token.startswith("##") and words:
            words[-1] += token[2:]
        else:
            words.append(token)
    return " ".join(words)


def fill_in_the_blanks(
    module: BertPretraining, corpus: Corpus, wordpiece: WordPiece, vocabulary: Vocabulary, *, maximum_length: int, device: torch.device, count: int = 3
) -> list[Blank]:
    """The model's top five words for a hidden word in each of `count` held-out sentences, fewer when there are not so many."""
    was_training = module.training
    module.eval()
    word_ids = torch.tensor([i for i in vocabulary.ordinary_ids.tolist() if vocabulary.tokens[i].isalpha()], device=device)
    blanks = []
    for ids, place in sentences_with_blanks(corpus, wordpiece, vocabulary):
        if len(blanks) == count:
            break
        if len(ids) + 2 > maximum_length:
            continue
        with torch.inference_mode():
            logits = module.predict_masked(blank_batch(ids, place, vocabulary, maximum_length).to(device))[0]
        best = logits.float().softmax(-1)[word_ids].topk(min(5, len(word_ids)))
        guesses = [[vocabulary.tokens[i], p] for p, i in zip(best.values.tolist(), word_ids[best.indices].tolist(), strict=True)]
        blanks.append(Blank(text=readable(ids, place, vocabulary), answer=vocabulary.tokens[ids[place]], guesses=guesses))
    module.train(was_training)
    return blanks

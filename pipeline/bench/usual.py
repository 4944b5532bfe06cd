"""Make examples in the usual way, as a baseline: encode_batch_fast, pairs as in google-research/bert, and the collator
of transformers.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
from tokenizers import Tokenizer

from pipeline.text.examples import window_sentences

ROWS = 32  # rows per collated batch


def _usual_examples(
    documents: pa.Table, tokenizer: Tokenizer, cls_id: int, sep_id: int, maximum_length: int, rng: Random
) -> Iterator[dict[str, Any]]:
    """Yield a window's next-sentence examples, made as in google-research/bert (create_instances_from_document).

    An example is a dictionary with input_ids, token_type_ids and next_sentence_label.
    """
    sentences, offsets = window_sentences(documents)
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(sentences, add_special_tokens=False)]
    all_documents = [
        [sentence for sentence in ids[start:end] if sentence] for start, end in zip(offsets[:-1], offsets[1:])
    ]
    all_documents = [document for document in all_documents if document]
    for document_index, document in enumerate(all_documents):
        for a, b, is_random in _document_pairs(all_documents, document_index, document, maximum_length - 3, rng):
            _shorten(a, b, maximum_length - 3, rng)
            yield {
                "input_ids": [cls_id, *a, sep_id, *b, sep_id],
                "token_type_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
                "next_sentence_label": int(is_random),
            }


def _document_pairs(
    all_documents: list[list[list[int]]], document_index: int, document: list[list[int]], maximum: int, rng: Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Yield the pairs (A, B, whether B is random) of one document, before truncation.

    A document is a list of sentences, and a sentence is a list of ids. `document` is all_documents[document_index].
    `maximum`: maximum number of ids that A and B have together after truncation.
    """
    target = rng.randint(2, maximum) if rng.random() < 0.1 else maximum
    chunk: list[list[int]] = []
    length = index = 0
    while index < len(document):
        chunk.append(document[index])
        length += len(document[index])
        if index == len(document) - 1 or length >= target:
            a_end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = [id for sentence in chunk[:a_end] for id in sentence]
            is_random = len(all_documents) > 1 and (len(chunk) == 1 or rng.random() < 0.5)
            b = (
                _random_other_chunk(all_documents, document_index, target - len(a), rng)
                if is_random
                else [id for sentence in chunk[a_end:] for id in sentence]
            )
            if is_random:
                index -= len(chunk) - a_end
            if b:
                yield a, b, is_random
            chunk, length = [], 0
        index += 1


def _random_other_chunk(
    all_documents: list[list[list[int]]], document_index: int, wanted: int, rng: Random
) -> list[int]:
    """Return ids of another document, starting at a random sentence.

    Whole sentences are taken until there are at least `wanted` ids or the document ends.
    """
    chosen = rng.randrange(len(all_documents) - 1)
    document = all_documents[chosen + (chosen >= document_index)]
    ids: list[int] = []
    for sentence in document[rng.randrange(len(document)) :]:
        ids.extend(sentence)
        if len(ids) >= wanted:
            break
    return ids


def _shorten(a: list[int], b: list[int], maximum: int, rng: Random) -> None:
    """Remove ids in place, at a random end of the longer segment, until A and B have at most `maximum` ids together."""
    while len(a) + len(b) > maximum:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def usual_batches(
    documents: pa.Table,
    tokenizer: Tokenizer,
    collator: Callable[..., Any],
    special: tuple[int, int],
    maximum_length: int,
    rng: Random,
) -> tuple[int, int]:
    """Make masked, padded batches of a window and discard them; return (rows, tokens without padding).

    `special`: ids of [CLS] and [SEP].
    """
    examples = list(_usual_examples(documents, tokenizer, *special, maximum_length, rng))
    rng.shuffle(examples)
    for start in range(0, len(examples), ROWS):
        collator(examples[start : start + ROWS])
    return len(examples), sum(len(example["input_ids"]) for example in examples)

"""Make a window's examples: a pure function of documents, vocabulary, settings, seed, epoch and window."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.data import Sampling, TitleParagraph
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.documents import one_line
from pipeline.text.encoded_window import EncodedWindow, assemble, sequences_of
from pipeline.text.encoded_words import EncodedWords
from pipeline.text.example_table import example_table, masked_examples
from pipeline.text.masking import without_masks
from pipeline.text.prompts import (
    lines_after_prompts,
    prompt_tokens,
    put_before_texts,
    room_after_prompts,
    without_first_spaces,
)
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.sequences import Sequences
from pipeline.text.single_texts import strings_of
from pipeline.text.template import SPECIALS_OF_ONE


def make_examples(
    documents: pa.Table, tokenizer: CachedTokenizer, sampling: Sampling, *, seed: int, epoch: int, window: int
) -> pa.Table:
    """Make the examples (schema EXAMPLE) of a window's documents (schema DOCUMENT), in random order.

    The same arguments give the same bytes in every process. The table may be empty. With sampling.copies, all epochs
    that show the same copy have the same examples.
    """
    draws = _Draws(seed=seed, copy=sampling.copy_of_epoch(epoch), window=window)
    languages = [] if sampling.mix_languages else sorted(set(documents["language"].to_pylist()))
    if len(languages) < 2:
        return _examples_of(documents, tokenizer, sampling, draws)
    tables = []
    for language in languages:
        of_language = pc.indices_nonzero(pc.equal(documents["language"], language))
        own = replace(draws, purpose=f" {language}")
        table = _examples_of(documents.take(of_language), tokenizer, sampling, own)
        for name in ("document_a", "document_b"):
            in_window = of_language.take(table[name]).cast(pa.int32())
            table = table.set_column(table.schema.get_field_index(name), EXAMPLE.field(name), in_window)
        tables.append(table)
    examples = pa.concat_tables(tables)
    return examples.take(
        generator(seed, draws.copy, window, "languages").permutation(examples.num_rows)
    ).combine_chunks()


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """Numbers that determine the random numbers of a window's examples."""

    seed: int
    copy: int
    window: int
    purpose: str = ""
    """Documents of one window that are not mixed each have a purpose of their own."""


def _examples_of(documents: pa.Table, tokenizer: CachedTokenizer, sampling: Sampling, draws: _Draws) -> pa.Table:
    """Make the examples of documents whose texts may be mixed."""
    if sampling.two_texts:
        return _rows_of_two_texts(documents, tokenizer, sampling, draws)
    if sampling.with_text:
        return _rows_with_text(documents, tokenizer, sampling, draws)
    return _masked_rows(documents, tokenizer, sampling, draws)


def _masked_rows(documents: pa.Table, tokenizer: CachedTokenizer, sampling: Sampling, draws: _Draws) -> pa.Table:
    """Make rows of masked words, in pairs of segments or without them."""
    return masked_examples(encode_window(documents, tokenizer), tokenizer.vocabulary, sampling, **vars(draws))


def _rows_of_two_texts(documents: pa.Table, tokenizer: CachedTokenizer, sampling: Sampling, draws: _Draws) -> pa.Table:
    """Make rows of two texts that belong together, perhaps with prompts before them and hard negatives after them."""
    vocabulary = tokenizer.vocabulary
    lines, document_offsets = window_lines(documents, titles=isinstance(sampling.pairs, TitleParagraph))
    lines = lines_after_prompts(lines, sampling.prompts, tokenizer)
    encoded = _encode(lines, document_offsets, documents, tokenizer)
    prompts = prompt_tokens(sampling.prompts, tokenizer)
    room = room_after_prompts(sampling.maximum_length, prompts)
    sequences = sequences_of(encoded, vocabulary, sampling, room, **vars(draws))
    tokens = encoded.tokens
    if any(sampling.prompts):
        tokens, sequences = without_first_spaces(
            tokens, sequences, lines, encoded.sentence_offsets, sampling.prompts, room, tokenizer
        )
        tokens, sequences = put_before_texts(tokens, sequences, *prompts)
    ids, offsets = assemble(tokens, sequences, vocabulary)
    masked = without_masks(ids, offsets)
    parents = parent_hashes(documents)[sequences.document_a]
    lengths = [len(prompt) for prompt in prompts]
    return example_table(sequences, offsets, masked, vocabulary.template, parents, lengths)


def _rows_with_text(documents: pa.Table, tokenizer: CachedTokenizer, sampling: Sampling, draws: _Draws) -> pa.Table:
    """Make rows of one text each, which also hold the text as a string."""
    vocabulary = tokenizer.vocabulary
    spaces = vocabulary.keeps_spaces
    sentences, document_offsets = window_sentences(documents, keep_spaces=spaces, join_lines=True)
    encoded = _encode(sentences, document_offsets, documents, tokenizer)
    sequences = sequences_of(encoded, vocabulary, sampling, sampling.maximum_length, **vars(draws))
    strings = strings_of(sentences, encoded.sentence_offsets, sequences, keep_spaces=spaces)
    tokens = encoded.tokens
    if spaces:
        tokens, sequences = encode_texts(strings, sequences, sampling.maximum_length, tokenizer)
    ids, offsets = assemble(tokens, sequences, vocabulary)
    return example_table(sequences, offsets, without_masks(ids, offsets), vocabulary.template, strings=strings)


def encode_texts(
    texts: list[str], sequences: Sequences, maximum_length: int, tokenizer: CachedTokenizer
) -> tuple[np.ndarray, Sequences]:
    """Return the flat tokens of N texts, int32, and the sequences as ranges of them; longer texts are truncated.

    In byte-level BPE, the tokens of a sentence within a line begin with its space. A text that begins there has no
    space before it, so it is encoded again, as `embed` reads it.
    """
    tokens, offsets = tokenizer.encode(texts)
    ends = np.minimum(offsets[1:], offsets[:-1] + maximum_length - SPECIALS_OF_ONE)
    return tokens, replace(sequences, starts=offsets[:-1], ends=ends)


def encode_window(documents: pa.Table, tokenizer: CachedTokenizer) -> EncodedWindow:
    """Encode the sentences of a window's documents (schema DOCUMENT)."""
    sentences, document_offsets = window_sentences(documents, keep_spaces=tokenizer.vocabulary.keeps_spaces)
    return _encode(sentences, document_offsets, documents, tokenizer)


def encode_words(sentences: Sequence[Sequence[str]], tokenizer: CachedTokenizer) -> EncodedWords:
    """Encode the words of each sentence. In byte-level BPE, every word but a sentence's first has a space before it."""
    space = " " if tokenizer.vocabulary.keeps_spaces else ""
    words = [word for words in sentences for word in words]
    spaced = [f"{space * (number > 0)}{word}" for words in sentences for number, word in enumerate(words)]
    tokens, word_offsets = tokenizer.encode(spaced)
    return EncodedWords(
        tokens=tokens,
        word_offsets=word_offsets,
        sentence_offsets=np.cumsum([0, *map(len, sentences)], dtype=np.int64),
        sizes=np.array([len(word.encode()) for word in words], np.int32),
    )


def _encode(
    sentences: list[str], document_offsets: np.ndarray, documents: pa.Table, tokenizer: CachedTokenizer
) -> EncodedWindow:
    tokens, sentence_offsets = tokenizer.encode(sentences)
    parents = documents["parent"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return EncodedWindow(
        tokens=tokens, sentence_offsets=sentence_offsets, document_offsets=document_offsets, parents=parents
    )


def window_sentences(
    documents: pa.Table, *, keep_spaces: bool = False, join_lines: bool = False
) -> tuple[list[str], np.ndarray]:
    """Return all sentences of D documents, and the offsets of the documents in this list, int64 (D + 1,).

    `keep_spaces` and `join_lines`: as in split_sentences.
    """
    sentences: list[str] = []
    offsets = [0]
    columns = (documents[name].to_pylist() for name in ("text", "lines_are_sentences", "language"))
    for text, one_per_line, language in zip(*columns):
        sentences += split_sentences(
            text,
            lines_are_sentences=one_per_line,
            language=language,
            keep_spaces=keep_spaces,
            join_lines=join_lines,
        )
        offsets.append(len(sentences))
    return sentences, np.array(offsets, np.int64)


def window_lines(documents: pa.Table, *, titles: bool) -> tuple[list[str], np.ndarray]:
    """Return all lines of D documents, and the offsets of the documents in this list, int64 (D + 1,).

    `titles`: the first line of each document is its title (`own_titles`), which may be empty.
    """
    lines: list[str] = []
    offsets = [0]
    for title, text in zip(own_titles(documents), documents["text"].to_pylist()):
        lines += [title] * titles + text.split("\n")
        offsets.append(len(lines))
    return lines, np.array(offsets, np.int64)


def own_titles(documents: pa.Table) -> list[str]:
    """Return the titles of D documents; a title that is only the file's name becomes empty.

    For a text without a title, readers use the file's name as the title. The name is known from the parent's id, which
    is FILE or FILE:NUMBER.
    """
    files = (one_line(parent.partition(":")[0].rpartition("/")[2]) for parent in documents["parent"].to_pylist())
    return ["" if title == file else title for title, file in zip(documents["title"].to_pylist(), files)]


def parent_hashes(documents: pa.Table) -> np.ndarray:
    """Return a 64-bit hash of each document's parent id, int64 (D,)."""
    digests = (blake2b(parent.encode(), digest_size=8).digest() for parent in documents["parent"].to_pylist())
    return np.frombuffer(b"".join(digests), "<i8")

"""Held-out loss by word and byte: the same words for every vocabulary, and figures by hand."""

import math
from dataclasses import replace

import pytest
import torch

from pipeline.corpus.prepared import Corpus
from pipeline.evaluation.heldout import heldout_words, sampled_sentences
from pipeline.evaluation.heldout_words import LEAST_WORDS, HeldoutWords, masked_row, word_metrics
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import encode_words
from pipeline.text.extension import extend_vocabulary
from pipeline.text.vocabulary import Vocabulary

CPU, PLAIN = torch.device("cpu"), torch.autocast("cpu", enabled=False)


def held(corpus: Corpus, vocabulary: Vocabulary, *, rank: int = 0, world: int = 1) -> HeldoutWords:
    return heldout_words(
        corpus, CachedTokenizer(vocabulary), maximum_length=64, sentences=30, rows_per_batch=8, rank=rank, world=world
    )


def test_words_are_drawn_from_the_text_alone(tiny_corpus: Corpus) -> None:
    drawn = list(sampled_sentences(tiny_corpus, 9, 30, 0, 1))
    assert len(drawn) == 30 and drawn == list(sampled_sentences(tiny_corpus, 9, 30, 0, 1))
    for words, masked in drawn:
        assert LEAST_WORDS <= len(words) <= 9 and len(masked) == 1 and 0 <= masked[0] < len(words)
    parts = [list(sampled_sentences(tiny_corpus, 9, 30, rank, 2)) for rank in range(2)]
    assert sorted(map(str, drawn)) == sorted(map(str, parts[0] + parts[1])) and all(parts)


def test_other_vocabularies_are_asked_the_same_words(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    longer = extend_vocabulary(tiny_vocabulary, ["karkar"])
    letters = Vocabulary(
        tokens=(
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            ".",
            *"kalominesutrdp",
            *(f"##{c}" for c in "kalominesutrdp"),
        ),
        lowercase=True,
    )
    found = [held(tiny_corpus, vocabulary) for vocabulary in (tiny_vocabulary, longer, letters)]
    assert len({(h.words, h.bytes) for h in found}) == 1
    assert sum(batch.masked for batch in found[2].batches) > sum(batch.masked for batch in found[0].batches)
    assert found[0].words == 30 + sum(len(words) > 9 for words, _ in sampled_sentences(tiny_corpus, 21, 30, 0, 1))


def test_all_pieces_of_a_masked_word_are_masked_and_nothing_else() -> None:
    vocabulary = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c", "."), lowercase=True)
    sentence = encode_words([["c", "ab.", "c"]], CachedTokenizer(vocabulary))
    assert sentence.tokens.tolist() == [7, 5, 6, 8, 7]
    ids, positions, labels = masked_row(sentence, [1], vocabulary)
    assert (ids.tolist(), positions.tolist(), labels.tolist()) == ([2, 7, 4, 4, 4, 7, 3], [2, 3, 4], [5, 6, 8])
    assert sentence.tokens.tolist() == [7, 5, 6, 8, 7]


def test_figures_by_hand(training, tiny_config, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    found = held(tiny_corpus, tiny_vocabulary)
    module = training.module(tiny_config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()  # every entry is as likely as any other
    size, pieces = tiny_vocabulary.size, sum(batch.masked for batch in found.batches)
    module.encoder.maximum_positions = 64
    metrics = word_metrics(module, found, world=1, device=CPU, autocast=PLAIN)
    expected = {
        "heldout/nats_per_word": pieces * math.log(size) / found.words,
        "heldout/bits_per_byte": pieces * math.log2(size) / found.bytes,
    }
    assert metrics == pytest.approx(expected, rel=1e-5)
    unknown = word_metrics(module, replace(found, unknown_bytes=5), world=1, device=CPU, autocast=PLAIN)
    assert unknown["heldout/bits_per_byte"] - metrics["heldout/bits_per_byte"] == pytest.approx(
        5 * 8 / found.bytes, rel=1e-5
    )
    assert (
        module.training
        and word_metrics(
            module, HeldoutWords(batches=[], words=0, bytes=0, unknown_bytes=0), world=1, device=CPU, autocast=PLAIN
        )
        == {}
    )


def test_words_that_cannot_be_written_are_counted(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    # Without k no word that holds one can be written: all its bytes are unknown.
    without = replace(
        tiny_vocabulary,
        tokens=tuple(
            token if "k" not in token else f"[unused{place}]" for place, token in enumerate(tiny_vocabulary.tokens)
        ),
    )
    drawn = [words[place] for words, masked in sampled_sentences(tiny_corpus, 21, 30, 0, 1) for place in masked]
    found = held(tiny_corpus, without)
    assert found.unknown_bytes == sum(len(word) for word in drawn if "k" in word.lower()) > 0
    assert found.bytes == sum(map(len, drawn)) and held(tiny_corpus, tiny_vocabulary).unknown_bytes == 0

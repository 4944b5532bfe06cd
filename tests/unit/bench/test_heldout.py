"""Held-out examples from a file of tokens: those from the corpus."""

from pathlib import Path

import pytest

from pipeline.bench.heldout import heldout_batches, heldout_words_of
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.training import Batch, Evaluation
from pipeline.corpus import token_file
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.evaluation import heldout
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.training import train_vocabulary
from tests.conftest import text_of
from tests.unit.test_batch import assert_equal


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_the_heldout_examples_are_those_of_the_corpus(kind: str, tiny_corpus: Corpus, tmp_path: Path) -> None:
    """The same rows and the same masked words, for two ranks, in several batches."""
    vocabulary = train_vocabulary(map(text_of, range(30)), size=300, lowercase=False, kind=kind)
    tokenizer, location = CachedTokenizer(vocabulary), str(tmp_path / "tokens.arrow")
    save_tokens(location, tiny_corpus, tokenizer)
    tokens = token_file.read(location)
    config = Pretrain(
        sampling=Sampling(maximum_length=64), batch=Batch(rows_per_slot=4), evaluation=Evaluation(rows=30)
    )
    for rank in range(2):
        share = {"rows": 30, "rows_per_batch": 4, "rank": rank, "world": 2}
        ours = heldout_batches(tokens, config.sampling, **share)
        theirs = heldout.heldout_batches(tiny_corpus, tokenizer, config.sampling, **share)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
        words = heldout_words_of(config, tokens, rank, 2)
        of_text = heldout.heldout_words_of(config, tiny_corpus, tokenizer, rank, 2)
        assert (words.words, words.bytes, words.unknown_bytes) == (of_text.words, of_text.bytes, of_text.unknown_bytes)
        for one, other in zip(words.batches, of_text.batches, strict=True):
            assert_equal(one, other)
        assert len(ours) > 1 and len(words.batches) > 1

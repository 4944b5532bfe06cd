"""Blocks of tokens for transformers' Trainer."""

from pathlib import Path

import numpy as np

from pipeline.corpus import token_file
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.token_file_saving import save_tokens
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from tests.benchmarks.run_mlm import blocks


def test_blocks_are_the_texts_between_special_tokens(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    save_tokens(str(tmp_path / "tokens.arrow"), tiny_corpus, CachedTokenizer(tiny_vocabulary))
    tokens = token_file.read(str(tmp_path / "tokens.arrow"))
    flat = blocks(tokens, 16).reshape(-1)
    special = np.isin(flat, (tiny_vocabulary.cls_id, tiny_vocabulary.sep_id))
    texts = np.concatenate([tokens.encoded_window(window).tokens for window in tokens.train])
    documents = sum(window.num_rows for window in tokens.train)
    assert 0 <= len(texts) + 2 * documents - len(flat) < 16
    assert np.array_equal(flat[~special], texts[: (~special).sum()])
    assert flat[0] == tiny_vocabulary.cls_id
    ends = np.flatnonzero(flat == tiny_vocabulary.sep_id)
    assert np.all(flat[ends[:-1] + 1] == tiny_vocabulary.cls_id) and documents - len(ends) in (0, 1)

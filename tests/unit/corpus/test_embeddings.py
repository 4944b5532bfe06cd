"""Word embeddings of a corpus, counted once."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.prepared import Corpus
from pipeline.errors import DataError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from tests.in_process import IN_PROCESS


def test_word_embeddings_are_counted_once_and_refused_if_damaged(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    lines: list[str] = []

    def folder() -> str:
        return counted_embeddings(
            tiny_corpus, CachedTokenizer(tiny_vocabulary), 8, str(tmp_path), lines.append, IN_PROCESS
        )

    file = Path(folder()) / "words.safetensors"
    words = load_file(file)["words"]
    seen = int(words.any(1).sum())
    assert words.shape == (tiny_vocabulary.size, 8) and 30 < seen < tiny_vocabulary.size
    assert len(lines) == 2 and f" {seen} of {tiny_vocabulary.size} entries" in lines[1]
    assert folder() == str(file.parent) and len(lines) == 2
    file.write_bytes(b"cut")
    with pytest.raises(
        DataError, match=r"word embeddings .* are damaged \(.*\); delete this folder to compute them again"
    ):
        folder()

"""Words of a corpus in a published vocabulary, by hand."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from pipeline.text.added_tokens import AddedToken
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.extension import extend_vocabulary, new_words, pad_vocabulary, pieces_of_new_words, splitting_of
from pipeline.text.training import COUNTS, counts_table, train_vocabulary, word_counts
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

TOKENS = (
    "[PAD]",
    "[unused0]",
    "[unused1]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "b",
    "##a",
    "##b",
    "##ab",
    "ba",
    "1",
    "##1",
)
VOCABULARY = Vocabulary(tokens=TOKENS, lowercase=True)


def counted(**counts: int) -> pa.Table:
    return counts_table(counts)


def test_the_most_frequent_words_of_three_pieces_are_taken() -> None:
    # abab is a ##b ##ab? The longest piece comes first: a, then ##b, then ##ab.
    counts = counted(abab=9, aab=90, bab=50, aaa=9, bbbb=12, axa=80, baba=7, bbb=4)
    assert new_words(counts, VOCABULARY, 10) == ["bbbb", "aaa", "abab", "baba"]
    assert new_words(counts, VOCABULARY, 2) == ["bbbb", "aaa"]
    assert new_words(counts_table({"111": 99, "1a1": 8, "11a": 8}), VOCABULARY, 9) == ["11a", "1a1"]
    assert new_words(COUNTS.empty_table(), VOCABULARY, 3) == []


def test_unused_entries_are_taken_first() -> None:
    longer = extend_vocabulary(VOCABULARY, ["bbbb", "aaa", "abab"])
    assert longer.tokens == ("[PAD]", "bbbb", "aaa", *TOKENS[3:], "abab")
    assert pieces_of_new_words(VOCABULARY, longer) == {1: [8, 10, 10, 10], 2: [7, 9, 9], 15: [7, 10, 11]}
    assert (longer.unk_id, longer.mask_id, longer.lowercase) == (
        3,
        6,
        True,
    ) and longer.fingerprint != VOCABULARY.fingerprint
    assert CachedTokenizer(longer).encode(["abab ababb AAA"])[0].tolist() == [15, 15, 10, 2]
    assert {1, 2, 15} <= set(longer.ordinary_ids.tolist())


def test_nothing_new_changes_nothing() -> None:
    assert extend_vocabulary(VOCABULARY, []) == VOCABULARY and pieces_of_new_words(VOCABULARY, VOCABULARY) == {}


PADDED = {
    "wordpiece": VOCABULARY,
    "wordpiece with an added token": replace(
        VOCABULARY, tokens=(*TOKENS, "<ab>"), added=(AddedToken(content="<ab>"),), model_entries=len(TOKENS)
    ),
    "bytes": train_vocabulary(["ab ba abab"], size=270, lowercase=False, kind="byte-bpe"),
    "unigram": train_vocabulary(["ab ba abab"], size=20, lowercase=False, kind="unigram"),
}


@pytest.mark.parametrize("kind", PADDED)
def test_padding_is_unused_entries_that_leave_the_ids_of_texts_and_are_saved(kind: str, tmp_path: Path) -> None:
    vocabulary, texts = PADDED[kind], ["ab <ab> abab", f"[unused{PADDED[kind].size}] a [unused1]"]
    size = vocabulary.size + 3
    padded = pad_vocabulary(vocabulary, size)
    assert padded.tokens == (*vocabulary.tokens, *(f"[unused{id}]" for id in range(size - 3, size)))
    assert padded.ordinary_ids.tolist() == vocabulary.ordinary_ids.tolist()
    assert CachedTokenizer(padded).encode(texts)[0].tolist() == CachedTokenizer(vocabulary).encode(texts)[0].tolist()
    save_vocabulary(padded, tmp_path, 16)
    assert load_vocabulary(str(tmp_path), None) == padded
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == size


def test_words_take_the_place_of_padding_in_wordpiece_only() -> None:
    assert extend_vocabulary(pad_vocabulary(VOCABULARY, 17), ["x", "y", "z"]).tokens[-2:] == ("z", "[unused16]")
    padded = pad_vocabulary(PADDED["wordpiece with an added token"], 18)
    assert extend_vocabulary(padded, ["x", "y", "z"]).tokens[-2:] == ("[unused17]", "z")


@pytest.mark.parametrize("strip_accents", [None, False])
def test_words_are_counted_as_the_vocabulary_splits_them(strip_accents: bool | None) -> None:
    cased = Vocabulary(tokens=(*TOKENS, "É"), lowercase=False, strip_accents=strip_accents)
    assert word_counts(["Été, été 中文"], splitting_of(cased)) == {"Été": 1, ",": 1, "été": 1, "中": 1, "文": 1}
    uncased = Vocabulary(tokens=TOKENS, lowercase=True, strip_accents=strip_accents, chinese_characters=False)
    word = "ete" if strip_accents is None else "été"
    assert word_counts(["Été, été 中文"], splitting_of(uncased)) == {word: 2, ",": 1, "中文": 1}

"""Added tokens, against `tokenizers` with the same tokenizer.json."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.corpus.token_file import _vocabulary_of
from pipeline.errors import DataError
from pipeline.tasks.pieces import Tokenization
from pipeline.text.added_tokens import AddedToken
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.extension import extend_vocabulary
from pipeline.text.prompts import prompt_tokens
from pipeline.text.splitting import SPECIALS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import published_tokenizer, save_vocabulary
from pipeline.text.words import whole_words

ENTRIES = (*SPECIALS, "a", "b", "##a", "##b", "ab", "é", "-", "[", "]", "<", ">", "mask", "1", "co", "##v", "cov")
TEXTS = ["a ab aba [ab] <a> B-1 é", "mask bab cov-1 力 É"] * 5
BASES = {
    "uncased": Vocabulary(tokens=ENTRIES, lowercase=True),
    "cased": Vocabulary(tokens=(*ENTRIES, "B"), lowercase=False),
    "bytes": train_vocabulary(TEXTS, size=290, lowercase=False, kind="byte-bpe"),
    "bytes-uncased": train_vocabulary(TEXTS, size=290, lowercase=True, kind="byte-bpe"),
    "unigram": train_vocabulary(TEXTS, size=60, lowercase=False, kind="unigram"),
    "unigram-uncased": train_vocabulary(TEXTS, size=60, lowercase=True, kind="unigram"),
}
CONTENTS = st.one_of(
    st.sampled_from(["COVID-19", "covid", "[E1]", "mask", "ab", "##b", "a b", "  ", "é", "e\u0301", "力", "Ⅳ"]),
    st.text(alphabet=st.sampled_from(list("abBÉé[]1-_ 力\x07#")), min_size=1, max_size=4),
)
FLAGS = {name: st.booleans() for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
ADDED = st.lists(
    st.builds(AddedToken, content=CONTENTS, **FLAGS), min_size=1, max_size=4, unique_by=lambda token: token.content
)
PIECES = st.one_of(CONTENTS, st.text(alphabet=st.sampled_from(list("abB Éé1-_力\u0301\x07\t#")), max_size=4))
LINES = st.lists(st.lists(PIECES, max_size=6).map("".join), max_size=5)


def with_added(base: Vocabulary, added: list[AddedToken]) -> dict[str, Any]:
    """tokenizer.json of `base` after `tokenizers` added the tokens."""
    library = Tokenizer.from_str(json.dumps(published_tokenizer(base)))
    for token in added:
        flags = {name: getattr(token, name) for name in FLAGS}
        library.add_tokens([tokenizers.AddedToken(token.content, **flags)])
    return json.loads(library.to_str())


def loaded(whole: dict[str, Any], folder: Path) -> Vocabulary:
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    return load_vocabulary(str(folder), None)


def library_ids(whole: dict[str, Any], lines: list[str], *, special: bool) -> list[list[int]]:
    """Ids of `tokenizers` without the five special tokens; `special`: added tokens marked as special match."""
    listed = [token | {"special": token["special"] and not special} for token in whole["added_tokens"]]
    names = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"}
    listed = [token | {"special": token["special"] or token["content"] in names} for token in listed]
    library = Tokenizer.from_str(json.dumps(whole | {"added_tokens": listed}))
    library.encode_special_tokens = True
    return [encoding.ids for encoding in library.encode_batch(lines, add_special_tokens=False)]


def our_ids(vocabulary: Vocabulary, lines: list[str], *, special: bool) -> list[list[int]]:
    ids, offsets = CachedTokenizer(vocabulary, special_added=special).encode(lines)
    return [ids[start:end].tolist() for start, end in zip(offsets, offsets[1:])]


@pytest.mark.parametrize("base", BASES)
@given(added=ADDED, lines=LINES)
def test_ids_equal_those_of_tokenizers(
    base: str, added: list[AddedToken], lines: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if BASES[base].kind == "unigram":  # here special tokens of the model are hidden from text; tokenizers finds them
        added = [replace(token, special=token.special and token.content not in BASES[base].ids) for token in added]
    whole = with_added(BASES[base], added)
    normalizer = Tokenizer.from_str(json.dumps(whole)).normalizer
    compared = [normalizer.normalize_str(token.content) if normalizer else token.content for token in added]
    assume("" not in compared)
    assume(len({*compared}) == len(added))  # of equal ones, tokenizers matches any
    vocabulary = loaded(whole, tmp_path_factory.mktemp("added"))
    for special in (False, True):
        assert our_ids(vocabulary, lines, special=special) == library_ids(whole, lines, special=special)
    pieces = Tokenization(vocabulary).of_texts(lines)
    assert [part.ids.tolist() for part in pieces] == library_ids(whole, lines, special=True)
    # What is written again reads as before.
    assert published_tokenizer(vocabulary)["added_tokens"] == whole["added_tokens"]


USUAL = [
    AddedToken(content="COVID-19"),
    AddedToken(content="<user>", normalized=False),
    AddedToken(content="[E1]", normalized=False, special=True),
]


def test_ids_by_hand(tmp_path: Path) -> None:
    vocabulary = loaded(with_added(BASES["uncased"], USUAL), tmp_path)
    lines = ["a covid-19 b", "covid19", "<user>[E1] a", "<USER>", "[MASK]"]
    covid, user, marker = 21, 22, 23
    assert vocabulary.tokens[covid:] == ("COVID-19", "<user>", "[E1]")
    unknown = [14, 1, 15]  # < [UNK] >
    assert our_ids(vocabulary, lines, special=True) == [[5, covid, 6], [1], [user, marker, 5], unknown, [12, 16, 13]]
    # In a corpus, a token that is marked as special is text.
    assert our_ids(vocabulary, lines, special=False)[2] == [user, 12, 1, 13, 5]
    assert CachedTokenizer(vocabulary).finder is not None and CachedTokenizer(BASES["uncased"]).finder is None


def test_only_texts_with_added_tokens_are_encoded_directly(tmp_path: Path) -> None:
    vocabulary = loaded(with_added(BASES["uncased"], USUAL), tmp_path)
    finder = CachedTokenizer(vocabulary).finder
    assert finder is not None
    assert finder.find(["ab", "Covid-19", "力 é", "a <user>", "<USER>", "cóvid-19"]).tolist() == [1, 3, 5]


def test_a_token_of_which_normalisation_leaves_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"json: nothing is left of the added token '\\u200d' after normalisation"):
        loaded(with_added(BASES["uncased"], [AddedToken(content="\u200d")]), tmp_path)
    assert loaded(with_added(BASES["cased"], [AddedToken(content="\u200d", normalized=False)]), tmp_path).size == 23


def test_prompts_are_read_with_their_markers(tmp_path: Path) -> None:
    vocabulary = loaded(with_added(BASES["uncased"], USUAL), tmp_path)
    query, document = prompt_tokens(("[E1] ", "a "), CachedTokenizer(vocabulary))
    assert query.tolist() == [23] and document.tolist() == [5]


def test_an_added_token_is_a_word_of_its_own(tmp_path: Path) -> None:
    vocabulary = loaded(with_added(BASES["bytes"], [AddedToken(content="covid19")]), tmp_path)
    (ids,) = our_ids(vocabulary, ["b-covid19ab covid19"], special=False)
    added = vocabulary.ids["covid19"]
    words = whole_words(np.array(ids), np.array([0, len(ids)]), vocabulary)
    spelled = [
        "".join(vocabulary.tokens[id] for id in ids[start : start + size])
        for start, size in zip(words.starts, words.sizes)
    ]
    assert ids.count(added) == 2 and spelled.count("covid19") == 2


def test_positions_in_the_text(tmp_path: Path) -> None:
    vocabulary = loaded(with_added(BASES["uncased"], USUAL), tmp_path)
    (pieces,) = Tokenization(vocabulary).of_texts(["a [E1] CoViD-19b"])
    assert list(zip(pieces.starts.tolist(), pieces.ends.tolist())) == [(0, 1), (2, 6), (7, 15), (15, 16)]
    (words,) = Tokenization(vocabulary).of_words([["a", "[E1]ab", "b"]])
    assert words.words.tolist() == [0, 1, 1, 2]


def test_transformers_reads_the_saved_tokens(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    lines = ["a covid-19 b [E1]b <user>", "mask [MASK]", "x86 ab"]
    for name in ("uncased", "bytes", "unigram"):
        whole = with_added(BASES[name], [*USUAL, AddedToken(content="x86", single_word=True, lstrip=True)])
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}-saved").mkdir()
        vocabulary = loaded(whole, tmp_path / name)
        save_vocabulary(vocabulary, tmp_path / f"{name}-saved", 64)
        assert load_vocabulary(str(tmp_path / f"{name}-saved"), None) == vocabulary
        theirs = AutoTokenizer.from_pretrained(tmp_path / f"{name}-saved")
        library = Tokenizer.from_str(json.dumps(published_tokenizer(vocabulary)))
        assert theirs(lines)["input_ids"] == [encoding.ids for encoding in library.encode_batch(lines)]


def old_folder(folder: Path) -> None:
    """Files of transformers before tokenizer.json."""
    (folder / "vocab.txt").write_text("\n".join(ENTRIES) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}')
    (folder / "added_tokens.json").write_text('{"[E1]": 22, "covid-19": 21}')
    (folder / "special_tokens_map.json").write_text(
        '{"mask_token": "[MASK]", "additional_special_tokens": ["[E1]"], "cls_token": {"content": "[CLS]"}}'
    )


def test_older_folders_list_added_tokens_in_their_own_file(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    old_folder(tmp_path)
    vocabulary = load_vocabulary(str(tmp_path), None)
    assert vocabulary.added == (
        AddedToken(content="covid-19"), AddedToken(content="[E1]", normalized=False, special=True)
    )  # fmt: skip
    lines = ["a COVID-19 b [E1]ab", "covid ab"]
    theirs = AutoTokenizer.from_pretrained(tmp_path)(lines, add_special_tokens=False)["input_ids"]
    assert our_ids(vocabulary, lines, special=True) == theirs
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {"do_lower_case": True, "added_tokens_decoder": {"21": {"content": "covid-19", "single_word": True}}}
        )
    )
    described = load_vocabulary(str(tmp_path), None).added[0]
    assert described == AddedToken(content="covid-19", single_word=True, normalized=False)


def test_older_folders_with_other_ids_are_refused(tmp_path: Path) -> None:
    old_folder(tmp_path)
    for content, message in (
        ('{"x": 23}', f"{tmp_path}: added token 'x' has id 23, but 21 is the next id after the entries of "),
        ('{"ab": 21}', "added token 'ab' has id 21"),
        ('{"x": "first"}', "does not list added tokens with their ids"),
        ("[1]", f"{tmp_path}/added_tokens.json is a list where a JSON object is needed: write a tokenizer.json with"),
    ):
        (tmp_path / "added_tokens.json").write_text(content)
        with pytest.raises(DataError, match="^[^\n]+$") as error:
            load_vocabulary(str(tmp_path), None)
        assert message in str(error.value)


def test_fingerprints_change_only_with_the_ids_of_a_corpus(tmp_path: Path) -> None:
    plain, marked = BASES["bytes"], [AddedToken(content="[E1]", special=True)]
    assert BASES["uncased"].fingerprint == "a1ffc2181858bb091dc46fd3cae955c703a9a9b7a2e8c80602788c1a9240beba"
    with_marker = replace(plain, specials=(*plain.specials, "[E1]"), tokens=(*plain.tokens, "[E1]"))
    assert loaded(with_added(plain, marked), tmp_path).fingerprint == with_marker.fingerprint
    word = loaded(with_added(plain, [AddedToken(content="x")]), tmp_path)
    assert word.fingerprint not in (plain.fingerprint, replace(word, added=()).fingerprint)


def test_added_tokens_survive_pickles_files_of_tokens_and_new_words(tmp_path: Path) -> None:
    from dataclasses import asdict

    vocabulary = loaded(with_added(BASES["uncased"], USUAL), tmp_path)
    assert pickle.loads(pickle.dumps(vocabulary)) == vocabulary
    assert _vocabulary_of(json.loads(json.dumps(asdict(vocabulary)))) == vocabulary
    longer = extend_vocabulary(vocabulary, ["abba"])
    assert our_ids(longer, ["covid-19 abba"], special=False) == [[21, 24]]

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from pipeline.errors import ConfigError, DataError
from pipeline.text.splitting import SPECIALS, Splitting
from pipeline.text.training import alphabet, counts_table, repeat_words, train_vocabulary, word_counts
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

ENTRIES = (*SPECIALS, "[unused0]", "[unused12]", "the", "##s", "[", "##ing", "a")
UNCASED = Vocabulary(tokens=ENTRIES, lowercase=True)
CASED = Vocabulary(tokens=(*ENTRIES, "The"), lowercase=False)
ACCENTED = replace(UNCASED, tokens=(*ENTRIES, "thé"), strip_accents=False)
UNSPLIT = replace(UNCASED, tokens=(*ENTRIES, "力加"), chinese_characters=False)
TEXTS = ["the cats sat on the mats", "The dogs sat, and the cats ran.", "cats and dogs; dogs and cats! über Über"] * 5


def write(folder: Path, tokens: tuple[str, ...], config: object = None) -> str:
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder / "vocab.txt")


def test_ids_are_places_and_ordinary_ids_leave_out_specials_and_unused() -> None:
    assert (UNCASED.size, UNCASED.pad_id, UNCASED.unk_id, UNCASED.cls_id, UNCASED.sep_id, UNCASED.mask_id) == (
        12,
        0,
        1,
        2,
        3,
        4,
    )
    assert UNCASED.ordinary_ids.tolist() == [7, 8, 9, 10, 11] and UNCASED.ordinary_ids.dtype == np.int32
    assert np.flatnonzero(UNCASED.continuation).tolist() == [8, 10] and UNCASED.continuation.dtype == bool


def test_the_fingerprint_depends_on_entries_order_normalisation_and_model() -> None:
    others = [
        UNCASED,
        Vocabulary(tokens=ENTRIES, lowercase=False),
        Vocabulary(tokens=ENTRIES[::-1], lowercase=True),
        Vocabulary(tokens=(*ENTRIES[:-1], "b"), lowercase=True),
        replace(UNCASED, strip_accents=False),
        replace(UNCASED, chinese_characters=False),
        replace(UNCASED, kind="unigram", model="{}"),
        replace(UNCASED, kind="unigram", model="[]"),
    ]
    assert len({v.fingerprint for v in others}) == 8
    assert (
        UNCASED.fingerprint == Vocabulary(tokens=ENTRIES, lowercase=True).fingerprint and len(UNCASED.fingerprint) == 64
    )


def test_a_pickle_holds_the_entries_only() -> None:
    used = Vocabulary(tokens=ENTRIES, lowercase=True)
    fresh = pickle.dumps(used)
    assert len(used.continuation) == len(used.ids) == 12 and len(used.ordinary_ids) == 5
    assert pickle.dumps(used) == fresh and pickle.loads(fresh) == used and pickle.loads(fresh).mask_id == 4


def test_special_tokens_in_a_text_are_text() -> None:
    assert UNCASED.tokenizer().encode("the [MASK]", add_special_tokens=False).tokens == ["the", "[", "[UNK]", "[UNK]"]


def test_lower_casing_strips_accents_and_cased_does_neither() -> None:
    assert UNCASED.tokenizer().encode("Thés", add_special_tokens=False).tokens == ["the", "##s"]
    assert CASED.tokenizer().encode("The Thés", add_special_tokens=False).tokens == ["The", "[UNK]"]


@pytest.mark.parametrize("vocabulary", [UNCASED, CASED, ACCENTED, UNSPLIT])
def test_what_is_saved_is_loaded(vocabulary: Vocabulary, tmp_path: Path) -> None:
    save_vocabulary(vocabulary, tmp_path, 128)
    for place in (tmp_path, tmp_path / "vocab.txt", tmp_path / "tokenizer.json"):
        assert load_vocabulary(str(place), None) == vocabulary
        assert load_vocabulary(str(place), vocabulary.lowercase) == vocabulary


def test_accents_and_chinese_characters_are_treated_as_the_vocabulary_says() -> None:
    assert ACCENTED.tokenizer().encode("THÉ the").tokens == ["thé", "the"]
    assert UNCASED.tokenizer().encode("THÉ").tokens == ["the"]
    assert UNSPLIT.tokenizer().encode("力加").tokens == ["力加"]
    assert replace(UNSPLIT, chinese_characters=True).tokenizer().encode("力加").tokens == ["[UNK]", "[UNK]"]


def test_a_config_beside_a_vocab_txt_is_honoured(tmp_path: Path) -> None:
    file = write(tmp_path, ENTRIES, {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False})
    assert load_vocabulary(file, None) == replace(UNCASED, strip_accents=False, chinese_characters=False)
    write(tmp_path, ENTRIES, {"do_lower_case": True, "strip_accents": True, "tokenize_chinese_chars": True})
    assert load_vocabulary(file, True) == UNCASED


@pytest.mark.parametrize("name", ["strip_accents", "chinese_characters"])
def test_settings_at_odds_with_the_file(name: str, tmp_path: Path) -> None:
    save_vocabulary(UNCASED, tmp_path, 128)
    with pytest.raises(
        ConfigError,
        match=rf"^vocabulary.{name} \(False\) differs from .*tokenizer.json \(True\): leave vocabulary.{name} out, or "
        rf"set it to True",
    ):
        load_vocabulary(str(tmp_path), None, **{name: False})


def test_a_few_odd_entries_do_not_make_an_uncased_vocabulary_cased(tmp_path: Path) -> None:
    words = tuple(f"w{number}" for number in range(200))
    assert load_vocabulary(write(tmp_path, (*SPECIALS, *words, "İ", "Ω")), True).size == 207
    with pytest.raises(
        ConfigError, match=r"^vocabulary.lowercase \(True\) does not fit .*: 3 of 208 entries have upper-case letters"
    ):
        load_vocabulary(write(tmp_path, (*SPECIALS, *words, "İ", "Ω", "É")), True)


def test_the_folders_tokenizer_json_comes_first(tmp_path: Path) -> None:
    save_vocabulary(CASED, tmp_path, 128)
    write(tmp_path, ENTRIES, {"do_lower_case": True})
    assert load_vocabulary(str(tmp_path), None) == CASED


def test_windows_line_ends_are_no_part_of_the_entries(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(ENTRIES).encode())
    assert load_vocabulary(str(tmp_path), True) == UNCASED


def test_lower_casing_must_be_said_where_nothing_tells_it(tmp_path: Path) -> None:
    file = write(tmp_path, ENTRIES)
    with pytest.raises(
        ConfigError,
        match=f"^vocabulary.lowercase must be set: {file} does not say whether text is lower-cased; pass True .* False",
    ):
        load_vocabulary(file, None)
    write(tmp_path, ENTRIES, {"model_max_length": 512})
    with pytest.raises(ConfigError, match="^vocabulary.lowercase must be set"):
        load_vocabulary(file, None)
    assert load_vocabulary(file, True) == UNCASED


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_lower_casing_at_odds_with_the_config(name: str, tmp_path: Path) -> None:
    save_vocabulary(UNCASED, tmp_path, 128)
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.lowercase \(False\) differs from (do_lower_case|normalizer.lowercase) in .*json \(True\)",
    ):
        load_vocabulary(str(tmp_path / name), False)


def test_lower_casing_at_odds_with_the_entries(tmp_path: Path) -> None:
    file = write(tmp_path, (*CASED.tokens, "[CLS2]", "##ER"))
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.lowercase \(True\) does not fit .*: 2 of 15 .* upper-case letters, such as 'The'; set "
        r"vocabulary.lowercase to False, because this vocabulary is cased",
    ):
        load_vocabulary(file, True)
    file = write(tmp_path, ENTRIES)
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.lowercase \(False\) does not fit .*: 0 of 12 .* 4 have lower-case ones, such as 'the'; "
        r"set vocabulary.lowercase to True, because this vocabulary is uncased",
    ):
        load_vocabulary(file, False)
    file = write(tmp_path, ENTRIES, {"do_lower_case": False})
    with pytest.raises(ConfigError, match=r"^do_lower_case in .*tokenizer_config.json \(False\) does not fit"):
        load_vocabulary(file, None)


def test_a_vocabulary_without_letters_that_have_a_case_fits_both(tmp_path: Path) -> None:
    file = write(tmp_path, (*SPECIALS, "力", "1"))
    assert load_vocabulary(file, True).tokens == load_vocabulary(file, False).tokens


@pytest.mark.parametrize("missing", SPECIALS)
def test_a_missing_special_is_named(missing: str, tmp_path: Path) -> None:
    file = write(tmp_path, tuple(token for token in ENTRIES if token != missing))
    with pytest.raises(DataError, match=rf"vocab.txt has no \[{missing[1:-1]}\] among its 11 entries"):
        load_vocabulary(file, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\nthe\n[PAD]\n", r"vocab.txt: entry 3 \('\[PAD\]'\) repeats entry 1"),
        (b"[PAD]\n\nthe\n", r"vocab.txt: entry 2 \(''\) is empty"),
        (b"[PAD]\n\xff\n", "vocab.txt is not UTF-8 at byte 6"),
        (b"", r"vocab.txt is empty: give a vocabulary with its entries"),
        (b"\xef\xbb\xbf\n", r"vocab.txt is empty: give a vocabulary with its entries"),
    ],
)
def test_a_broken_vocab_txt(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_vocabulary(str(tmp_path), True)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json"])
def test_an_empty_json_file_is_called_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=f"{name} is empty: give a vocabulary with its entries"):
        load_vocabulary(str(tmp_path), True)


def test_a_byte_order_mark_is_no_part_of_the_first_entry(tmp_path: Path) -> None:
    plain = load_vocabulary(write(tmp_path, ENTRIES, {"do_lower_case": True}), None)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    assert load_vocabulary(str(tmp_path), None) == plain


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "tokenizer_config.json cannot be read .*: correct it, or remove it and pass vocabulary.lowercase"),
        ("[]", "tokenizer_config.json is a list where a JSON object is needed: correct it"),
        ('{"do_lower_case": "yes"}', r"do_lower_case \('yes'\) must be true or false"),
        ('{"strip_accents": 1.5}', r"strip_accents \(1.5\) must be true or false"),
        ('{"tokenize_chinese_chars": "no"}', r"tokenize_chinese_chars \('no'\) must be true or false"),
    ],
)
def test_a_config_that_cannot_be_followed(config: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, ENTRIES)
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(DataError, match=message):
        load_vocabulary(str(tmp_path), None)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.path \(.*gone\) does not exist: give a vocab.txt, a tokenizer.json, a spiece",
    ):
        load_vocabulary(str(tmp_path / "gone"), True)
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.path \(.*\) has no vocab.txt, tokenizer.json, vocab.json, spiece.model or spm.model",
    ):
        load_vocabulary(str(tmp_path), True)
    (tmp_path / "vocab.txt").mkdir()
    with pytest.raises(ConfigError, match=r"^vocabulary.path \(.*\) cannot be read \(.*\): give a readable file"):
        load_vocabulary(str(tmp_path), True)


def test_a_tokenizer_json_of_another_kind(tmp_path: Path) -> None:
    Tokenizer(BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        DataError,
        match=r"tokenizer.json is a BPE tokenizer that splits by nothing: only WordPiece \(as in BERT\), BPE with "
        r"ByteLevel .* Unigram with Metaspace",
    ):
        load_vocabulary(str(tmp_path), True)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="tokenizer.json cannot be read as a tokenizer"):
        load_vocabulary(str(tmp_path), True)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("normalizer", "clean_text"), False, r"clean_text \(False\) must be True"),
        (("model", "max_input_chars_per_word"), 50, r"max_input_chars_per_word are \('\[UNK\]', '##', 50\): only"),
        (("pre_tokenizer",), {"type": "WhitespaceSplit"}, "has WhitespaceSplit where only BertPreTokenizer works"),
        (("normalizer",), None, "has NoneType where only BertNormalizer works"),
        (("model", "vocab", "a"), 40, "entry 'a' has id 40 instead of 11"),
        (("model", "vocab", "a"), 7, "has id .* instead of"),
    ],
)
def test_a_tokenizer_json_that_is_not_berts(path: tuple[str, ...], value: object, message: str, tmp_path: Path) -> None:
    save_vocabulary(UNCASED, tmp_path, 128)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    part = content
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load_vocabulary(str(tmp_path), None)


def test_words_are_counted_after_normalisation() -> None:
    assert word_counts(["The the, thé", "THE"], Splitting(lowercase=True)) == {"the": 4, ",": 1}
    assert word_counts(["The the, thé", "THE"], Splitting(lowercase=False)) == {
        "The": 1,
        "the": 1,
        ",": 1,
        "thé": 1,
        "THE": 1,
    }


def test_the_alphabet_is_bounded_by_count_then_code_point() -> None:
    assert alphabet(counts_table({"cab": 2, "b": 1, "dz": 2}), 3) == {"a", "b", "c"}


def test_words_are_repeated_as_often_as_counted_in_short_lines() -> None:
    lines = list(repeat_words([("a", 2_500), ("b", 1)]))
    assert [len(line.split()) for line in lines] == [1_000, 1_000, 500, 1]
    assert Counter(" ".join(lines).split()) == {"a": 2_500, "b": 1}


def test_a_trained_vocabulary_by_hand() -> None:
    """Pairs: a+b 3 times, then ab+c 2 times; nothing else occurs twice."""
    trained = train_vocabulary(["ab abc", "abc d"], size=100, lowercase=True)
    assert trained.tokens == (*SPECIALS, "a", "b", "c", "d", "##b", "##c", "ab", "abc")


def test_a_trained_vocabulary_covers_its_texts_and_is_no_larger_than_asked() -> None:
    trained = train_vocabulary(iter(TEXTS), size=100, lowercase=True)
    assert trained.tokens[:5] == SPECIALS and trained.size <= 100 and len(set(trained.tokens)) == trained.size
    assert {"the", "cats", "dogs", "uber"} <= set(trained.tokens)
    assert all(trained.unk_id not in trained.tokenizer().encode(text).ids for text in TEXTS)
    assert train_vocabulary(TEXTS, size=104, lowercase=False).ids.keys() >= {"The", "Über", "über"}


def test_the_size_bounds_the_alphabet_and_words_beyond_it_are_left_out() -> None:
    texts = ["abab " * 50 + "".join(map(chr, range(0x4E00, 0x4E00 + 500)))]
    trained = train_vocabulary(texts, size=100, lowercase=True)
    assert trained.size <= 100 and sum(len(token) == 1 for token in trained.tokens) == 25 and "abab" in trained.tokens


def test_special_tokens_of_the_text_are_no_learnt_entries() -> None:
    trained = train_vocabulary(["a[MASK]b c[MASK]d e[MASK]f"] * 9, size=60, lowercase=False, kind="unigram")
    assert trained.tokens[: len(SPECIALS)] == SPECIALS and trained.model.count("[MASK]") == 1


def test_words_too_long_to_be_encoded_teach_nothing() -> None:
    assert train_vocabulary(["b" * 101 + " cd"], size=100, lowercase=True).tokens == (*SPECIALS, "b", "c", "d", "##d")


def test_training_cased_without_upper_case_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^vocabulary.lowercase \(False\) does not fit the training texts"):
        train_vocabulary(["only small letters"], size=100, lowercase=False)


@pytest.mark.parametrize("vocabulary", [UNCASED, CASED])
def test_transformers_reads_what_is_saved(vocabulary: Vocabulary, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, tmp_path, 77)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    pair = theirs("The thés", "a a")
    ours = vocabulary.tokenizer()
    first, second = ours.encode("The thés").ids, ours.encode("a a").ids
    assert pair["input_ids"] == [2, *first, 3, *second, 3]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs("a")["input_ids"] == [2, 11, 3]
    assert (theirs.model_max_length, theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id) == (77, 0, 1, 4)
    assert theirs.decode([7, 10]) == "theing"


def test_the_saved_tokenizer_json_builds_pairs_by_itself(tmp_path: Path) -> None:
    save_vocabulary(UNCASED, tmp_path, 128)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    pair = tokenizer.encode("the thes", "a [MASK]")
    assert (pair.ids, pair.type_ids) == ([2, 7, 7, 8, 3, 11, 4, 3], [0, 0, 0, 0, 0, 1, 1, 1])
    assert tokenizer.decode([7, 8]) == "thes"


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_vocabulary(UNCASED, tmp_path / name, 128)
    for file in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()

"""Ids of Chinese, Japanese, Thai and other text as the tokenizers of mBERT and XLM-R in transformers give them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

transformers = pytest.importorskip("transformers")

SENTENCES = [
    "北京是中国的首都，人口2100万。",
    "東京タワーは、とても高いです。カタカナと漢字",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ กรุงเทพฯ",
    "Київ — столиця України.",
    "Die Straße in Köln: 24–10, ﬁne１２",
    "中文 and English混合text, の漢字",
    "한국어는 띄어 쓴다.",
]
CHARACTERS = sorted({character for text in SENTENCES for character in text if not character.isspace()})


def mbert() -> Vocabulary:
    """Cased, with an entry for each character and, except for Chinese ones, an entry that continues a word."""
    words = ("中国", "東京", "ภาษา", "##ไทย", "##ワー", "Straße", "##олиця", "##국어", "##混合")
    tokens = (*SPECIALS, *CHARACTERS, *(f"##{character}" for character in CHARACTERS), *words)
    return Vocabulary(tokens=tokens, lowercase=False)


MBERT = mbert()


@pytest.mark.parametrize("text", SENTENCES)
def test_words_of_mbert_are_cut_as_in_transformers(text: str, tmp_path: Path) -> None:
    save_vocabulary(MBERT, tmp_path, 512)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    basic = legacy.BertTokenizerLegacy(str(tmp_path / "vocab.txt"), do_lower_case=False)
    ids = CachedTokenizer(MBERT).encode([text])[0].tolist()
    assert ids == theirs(text, add_special_tokens=False)["input_ids"]
    assert ids == basic.convert_tokens_to_ids(basic.tokenize(text)) and MBERT.unk_id not in ids


def test_only_chinese_characters_are_words_of_their_own() -> None:
    def pieces(text: str) -> list[str]:
        return [MBERT.tokens[id] for id in CachedTokenizer(MBERT).encode([text])[0]]

    assert pieces("中国的") == ["中", "国", "的"]  # although 中国 is an entry
    assert pieces("東京タワー") == ["東", "京", "タ", "##ワー"]  # kanji are split, kana are not
    assert pieces("ภาษาไทย") == ["ภาษา", "##ไทย"] and pieces("한국어") == ["한", "##국어"]


def charsmap(changes: dict[str, str]) -> bytes:
    """SentencePiece's compiled normalisation of some strings: a double array of their bytes, and the new strings."""
    texts, starts = b"", {}
    for old, new in changes.items():
        starts[old.encode()] = len(texts)
        texts += new.encode() + b"\0"
    units, used, step = np.zeros(1 << 16, np.uint32), {0}, 256
    children: dict[bytes, set[int]] = {}
    for key in starts:
        for end in range(len(key)):
            children.setdefault(key[:end], set()).add(key[end])
    nodes = {b"": 0}
    for number, prefix in enumerate(sorted({*children, *starts}, key=len), start=1):
        node, base = nodes[prefix], number * step  # each node has a block of 256 places, so that no two collide
        units[node] |= np.uint32((node ^ base) << 10) | np.uint32((prefix in starts) << 8)
        for byte in children.get(prefix, ()):
            nodes[prefix + bytes([byte])] = base ^ byte
            units[base ^ byte] = byte
            assert (base ^ byte) not in used
            used.add(base ^ byte)
        if prefix in starts:
            units[base] = np.uint32(starts[prefix] | 1 << 31)
    size = 4 * step * (len(nodes) + 2)
    return size.to_bytes(4, "little") + units.tobytes()[:size] + texts


@pytest.fixture(scope="module")
def xlm_roberta(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """XLM-R's tokenizer with a tiny vocabulary, and the folder into which transformers saved it."""
    pieces = [
        "▁北京",
        "中国",
        "▁東京",
        "タワー",
        "▁ภาษา",
        "ไทย",
        "▁Die",
        "aße",
        "▁fine",
        "12",
        "▁and",
        "▁띄어",
        "столи",
    ]
    scored = [*((piece, -4.0 - i / 10) for i, piece in enumerate(pieces)), ("▁", -6.0)]
    letters = [(character, -9.0 - i / 100) for i, character in enumerate(CHARACTERS)]
    named = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    theirs = transformers.XLMRobertaTokenizer(
        vocab=[*named, *scored, *letters, ("<mask>", 0.0)],
        _spm_precompiled_charsmap=charsmap({"ﬁ": "fi", "１": "1", "２": "2"}),
    )
    folder = tmp_path_factory.mktemp("xlm-roberta")
    theirs.save_pretrained(folder)
    return theirs, folder


def test_a_published_xlm_roberta_gives_their_ids(xlm_roberta: tuple[Any, Path], tmp_path: Path) -> None:
    theirs, folder = xlm_roberta
    ours = load_vocabulary(str(folder), None)
    assert (ours.kind, ours.lowercase, ours.specials[:5]) == ("unigram", False, SPECIALS_OF_BYTES)
    assert (ours.cls_id, ours.pad_id, ours.sep_id, ours.unk_id, ours.mask_id) == (0, 1, 2, 3, ours.size - 1)
    save_vocabulary(ours, tmp_path, 512, segments=1)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert load_vocabulary(str(tmp_path), None) == ours
    texts = [*SENTENCES, "", "  two  spaces ", "unknown ☃ sign", "a <mask> b"]
    for text in texts[:-1]:
        ids = CachedTokenizer(ours).encode([text])[0].tolist()
        assert [0, *ids, 2] == theirs(text)["input_ids"] == again(text)["input_ids"], text
        pair = [0, *ids, 2, 2, *CachedTokenizer(ours).encode([SENTENCES[0]])[0].tolist(), 2]
        assert pair == theirs(text, SENTENCES[0])["input_ids"] == again(text, SENTENCES[0])["input_ids"]
    assert theirs(texts[-1])["input_ids"] == again(texts[-1])["input_ids"]
    assert theirs.convert_ids_to_tokens(theirs("ﬁne１２")["input_ids"]) == ["<s>", "▁fine", "12", "</s>"]


def test_the_file_of_sentencepiece_is_refused(xlm_roberta: tuple[Any, Path], tmp_path: Path) -> None:
    name = tmp_path / "sentencepiece.bpe.model"
    name.write_bytes(b"\x0a\x0e\x0a\x05<unk>")
    message = (
        f"vocabulary.path ({name}) has other ids than the XLM-R model: give the model's tokenizer.json, which "
        'transformers writes with AutoTokenizer.from_pretrained("FOLDER").save_pretrained("FOLDER")'
    )
    for path in (name, tmp_path):
        with pytest.raises(ConfigError) as error:
            load_vocabulary(str(path), None)
        assert str(error.value) == message
    (tmp_path / "tokenizer.json").write_bytes((xlm_roberta[1] / "tokenizer.json").read_bytes())
    assert load_vocabulary(str(tmp_path), None).mask_id == json.loads((tmp_path / "tokenizer.json").read_text())[
        "model"
    ]["vocab"].index(["<mask>", 0.0])

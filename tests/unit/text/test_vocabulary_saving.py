"""The JSON that we write for tokenizers, against what the library `tokenizers` writes for the same parts."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.processors import RobertaProcessing, TemplateProcessing

from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES, Splitting, decoder_of
from pipeline.text.template import ONE_SEPARATOR, TWO_SEPARATORS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import published_tokenizer, save_vocabulary

TEXTS = ["the cats sat on the mats", "The dogs sat, and the cats ran. über Über 力加"] * 5
UNCASED = Vocabulary(tokens=(*SPECIALS, "the", "##s", '"', "\\", "\x01", "\x7f", "é", "力", "🤖"), lowercase=True)
WORDPIECE = [
    UNCASED,
    replace(UNCASED, lowercase=False),
    replace(UNCASED, strip_accents=False),
    replace(UNCASED, lowercase=False, strip_accents=True),
    replace(UNCASED, chinese_characters=False),
]
BYTES = train_vocabulary(TEXTS, size=300, lowercase=False, kind="byte-bpe", unused=2)
UNIGRAM = train_vocabulary(TEXTS, size=200, lowercase=True, kind="unigram")
XLM_R = train_vocabulary(TEXTS, size=200, lowercase=False, kind="unigram", specials=SPECIALS_OF_BYTES)
KINDS = {"wordpiece": UNCASED, "byte-bpe": BYTES, "unigram": UNIGRAM, "xlm-r": XLM_R}


def text(value: Any) -> str:
    """JSON as the library writes it, so that two texts are equal only if their fields have the same order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("vocabulary", WORDPIECE)
def test_a_wordpiece_tokenizer_is_as_the_library_writes_it(vocabulary: Vocabulary) -> None:
    library = Tokenizer(
        WordPiece(vocabulary.ids, unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100)
    )
    splitting = Splitting(
        lowercase=vocabulary.lowercase,
        strip_accents=vocabulary.strip_accents,
        chinese_characters=vocabulary.chinese_characters,
    )
    library.normalizer, library.pre_tokenizer = splitting.normalizer(), splitting.pre_tokenizer()
    assert text(json.loads(vocabulary.tokenizer_json())) == library.to_str() == vocabulary.tokenizer().to_str()


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_added_as_the_library_writes_it(kind: str) -> None:
    for template, segments in itertools.product((ONE_SEPARATOR, TWO_SEPARATORS), (1, 2)):
        vocabulary = replace(KINDS[kind], template=template)
        first, separator = vocabulary.specials[2:4]
        named = [(first, vocabulary.cls_id), (separator, vocabulary.sep_id)]
        if kind == "byte-bpe" and template == TWO_SEPARATORS:
            library = RobertaProcessing(named[1], named[0], trim_offsets=True, add_prefix_space=False)
        else:
            second = ["$B:1", f"{separator}:1"] if template == ONE_SEPARATOR and segments == 2 else ["$B:0", separator]
            between = [separator] * (1 if template == ONE_SEPARATOR else 2)
            library = TemplateProcessing(
                single=[first, "$A", separator], pair=[first, "$A", *between, *second], special_tokens=named
            )
        written = published_tokenizer(vocabulary, segments)["post_processor"]
        assert text(written) == library.__getstate__().decode(), (template, segments)


def test_the_decoder_of_wordpiece_is_as_the_library_writes_it() -> None:
    decoder = published_tokenizer(UNCASED)["decoder"]
    assert text(decoder) == decoder_of("wordpiece").__getstate__().decode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_library_writes_the_published_file_as_it_is(kind: str, tmp_path: Path) -> None:
    save_vocabulary(KINDS[kind], tmp_path, 128)
    written = (tmp_path / "tokenizer.json").read_text()
    library = Tokenizer.from_str(written)
    assert library.to_str() == text(json.loads(written))
    assert library.to_str(pretty=True) == written

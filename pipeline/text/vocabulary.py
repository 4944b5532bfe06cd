"""Load, check, train, save and fingerprint a vocabulary."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.processors import TemplateProcessing

from pipeline import storage
from pipeline.errors import ConfigError
from pipeline.text.splitting import CONTINUATION, DECODERS, SPECIALS, Splitting, continues
from pipeline.text.training import LONGEST_WORD, counts_table, learn, word_counts
from pipeline.text.vocabulary_files import read_file, specials_of

ODD_SHARE = 0.01
"""Published uncased vocabularies have a few upper-case entries; with a larger share, a vocabulary is cased."""
BRACKETED = re.compile(r"\[.+\]", re.DOTALL)
UNUSED = re.compile(r"\[unused\d+\]|madeupword\d+")  # the free entries of BERT and RoBERTa


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The entries of a vocabulary in the order of their ids, and how text is normalised for them."""

    tokens: tuple[str, ...]
    lowercase: bool
    kind: str = "wordpiece"
    """wordpiece, byte-bpe or unigram."""
    strip_accents: bool | None = None
    """None: if text is lower-cased."""
    chinese_characters: bool = True
    """Whether each Chinese character is a word (WordPiece only)."""
    specials: tuple[str, ...] = SPECIALS
    """Names of the padding, unknown, first, separator and mask tokens, then of all others that are never text."""
    model: str | None = None
    """The tokenizer as JSON without added tokens: merges or scores, normalisation and splitting. None for WordPiece."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without cached properties

    @property
    def size(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Entry -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @property
    def pad_id(self) -> int:
        return self.ids[self.specials[0]]

    @property
    def unk_id(self) -> int:
        return self.ids[self.specials[1]]

    @property
    def cls_id(self) -> int:
        return self.ids[self.specials[2]]

    @property
    def sep_id(self) -> int:
        return self.ids[self.specials[3]]

    @property
    def mask_id(self) -> int:
        return self.ids[self.specials[4]]

    @cached_property
    def _textual(self) -> np.ndarray:
        """Whether each entry stands for text, bool (size,)."""
        reserved = set(self.specials)
        return np.array([token not in reserved and not UNUSED.fullmatch(token) for token in self.tokens])

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids that stand for text, int32: all but special tokens and [unusedN]. Random masks are drawn from these."""
        return np.flatnonzero(self._textual).astype(np.int32)

    @cached_property
    def continuation(self) -> np.ndarray:
        """Whether each id continues a word, bool (size,).

        In a published RoBERTa, the first piece of a text does too, because no space comes before it.
        """
        return self._textual & np.array([continues(self.kind, token) for token in self.tokens])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.__getstate__(), sort_keys=True).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """Return a new tokenizer that neither adds nor parses special tokens: "[MASK]" in a text is ordinary text."""
        if self.model is not None:
            return Tokenizer.from_str(
                self.model if self.kind == "byte-bpe" else _hide_reserved_entries(self.model, self._textual)
            )
        tokenizer = Tokenizer(
            WordPieceModel(
                self.ids,
                unk_token="[UNK]",
                continuing_subword_prefix=CONTINUATION,
                max_input_chars_per_word=LONGEST_WORD,
            )
        )
        splitting = Splitting(
            lowercase=self.lowercase, strip_accents=self.strip_accents, chinese_characters=self.chinese_characters
        )
        tokenizer.normalizer = splitting.normalizer()
        tokenizer.pre_tokenizer = splitting.pre_tokenizer()
        return tokenizer


def _hide_reserved_entries(model: str, textual: np.ndarray) -> str:
    """Return a unigram tokenizer whose special and unused entries match no text.

    Unigram searches the text for all its entries. Splitting replaces every space, so a space in an entry hides it.
    """
    tokenizer = json.loads(model)
    entries = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = [
        [piece if textual[i] else f" {piece}", score] for i, (piece, score) in enumerate(entries)
    ]
    return json.dumps(tokenizer, ensure_ascii=False)


def load_vocabulary(
    path: str, lowercase: bool | None, *, strip_accents: bool | None = None, chinese_characters: bool = True
) -> Vocabulary:
    """Load a vocabulary from a vocab.txt, tokenizer.json, vocab.json, or a folder with one (tokenizer.json first).

    `path` is a local path or URL; `lowercase` and `strip_accents` None: as the tokenizer's own config says. Raises
    ConfigError if there is no such file, if lower-casing is neither set nor configured, or if a setting contradicts the
    config or the entries; DataError for a file that is not such a vocabulary. A published tokenizer other than
    WordPiece is used as it is: RoBERTa's puts no space before a text.
    """
    file, found = read_file(path)
    specials = specials_of(found, file)
    chosen = _merge_setting("lowercase", lowercase, found.lowercase, found.source)
    if chosen is None:
        raise ConfigError(
            f"vocabulary.lowercase must be said: {file} does not tell whether text is lower-cased; "
            "pass True for an uncased vocabulary or False for a cased one"
        )
    said = f"vocabulary.lowercase ({lowercase})" if lowercase is not None else f"{found.source} ({found.lowercase})"
    if found.kind == "wordpiece":
        _require_fitting_case(found.tokens, chosen, said, file)
    stripping = chosen if found.strip_accents is None and found.lowercase is not None else found.strip_accents
    stripped = _merge_setting("strip_accents", strip_accents, stripping, file)
    splits = found.chinese_characters
    if not chinese_characters:
        splits = _merge_setting("chinese_characters", False, splits, file)
    return Vocabulary(
        tokens=found.tokens,
        lowercase=chosen,
        kind=found.kind,
        strip_accents=None if stripped == chosen else stripped,
        chinese_characters=splits is not False,
        specials=specials,
        model=found.model,
    )


def load_vocabulary_as_published(path: str) -> Vocabulary:
    """Load the vocabulary of a published model, as load_vocabulary.

    If its files do not state whether text is lower-cased, it is, as in transformers, unless the entries have capitals,
    which would never occur.
    """
    _, found = read_file(path)
    return load_vocabulary(path, None if found.lowercase is not None else not has_capitals(found.tokens))


def has_capitals(tokens: tuple[str, ...]) -> bool:
    """Whether more entries have upper-case letters than the few of a published uncased vocabulary."""
    return len(_upper_case(tokens)) > ODD_SHARE * len(tokens)


def _upper_case(tokens: tuple[str, ...]) -> list[str]:
    """Return the entries that lower-casing changes, except special tokens."""
    return [token for token in tokens if not BRACKETED.fullmatch(token) and token != token.lower()]


def _merge_setting(name: str, wanted: bool | None, configured: bool | None, source: str) -> bool | None:
    """Return the requested or configured value of a setting. Raises ConfigError if they differ."""
    if wanted is not None and configured is not None and wanted != configured:
        raise ConfigError(
            f"vocabulary.{name} ({wanted}) differs from {source} ({configured}): leave it out, or pass {configured}"
        )
    return configured if wanted is None else wanted


def _require_fitting_case(tokens: tuple[str, ...], lowercase: bool, said: str, file: str) -> None:
    """Raise ConfigError if lower-casing and the entries contradict; `said` names the setting and its value."""
    words = [token for token in tokens if not BRACKETED.fullmatch(token)]
    upper = _upper_case(tokens)
    lower = [word for word in words if word != word.upper()]
    if lowercase and len(upper) > ODD_SHARE * len(words):
        raise ConfigError(
            f"{said} does not fit {file}: {len(upper)} of {len(tokens)} entries have upper-case letters, "
            f"such as {upper[0]!r}; make it False for this cased vocabulary"
        )
    if not lowercase and lower and not upper:
        raise ConfigError(
            f"{said} does not fit {file}: 0 of {len(tokens)} entries have upper-case letters "
            f"and {len(lower)} have lower-case ones, "
            f"such as {lower[0]!r}; make it True for this uncased vocabulary"
        )


def train_vocabulary(
    texts: Iterable[str],
    *,
    size: int,
    lowercase: bool,
    kind: str = "wordpiece",
    strip_accents: bool | None = None,
    chinese_characters: bool = True,
    unused: int = 0,
) -> Vocabulary:
    """Train a vocabulary of at most `size` entries on `texts`, in one pass; memory is that of the distinct words.

    Raises ConfigError as vocabulary_of_counts does.
    """
    splitting = Splitting(
        kind=kind, lowercase=lowercase, strip_accents=strip_accents, chinese_characters=chinese_characters
    )
    return vocabulary_of_counts(counts_table(word_counts(texts, splitting)), splitting, size=size, unused=unused)


def vocabulary_of_counts(counts: pa.Table, splitting: Splitting, *, size: int, unused: int) -> Vocabulary:
    """Train a vocabulary of at most `size` entries on word counts (schema COUNTS); too few words give fewer entries.

    Raises ConfigError if a cased WordPiece vocabulary is requested and no word has an upper-case letter.
    """
    tokens, model = learn(counts, splitting, size=size, unused=unused)
    if splitting.kind == "wordpiece":
        _require_fitting_case(
            tokens, splitting.lowercase, f"vocabulary.lowercase ({splitting.lowercase})", "the training texts"
        )
    return Vocabulary(
        tokens=tokens,
        lowercase=splitting.lowercase,
        kind=splitting.kind,
        strip_accents=None if splitting.strip_accents == splitting.lowercase else splitting.strip_accents,
        chinese_characters=splitting.kind == "wordpiece" and splitting.chinese_characters,
        model=model,
    )


def save_vocabulary(vocabulary: Vocabulary, folder: Path, maximum_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and the kind's own files, readable by transformers' AutoTokenizer.

    `maximum_length` is the longest sequence of the model in tokens. The tokenizer builds [CLS] A [SEP] B [SEP] with
    segment ids.
    """
    whole = published_tokenizer(vocabulary)
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": maximum_length}
    if vocabulary.kind == "wordpiece":
        config |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": vocabulary.lowercase,
            "strip_accents": vocabulary.strip_accents,
            "tokenize_chinese_chars": vocabulary.chinese_characters,
        }
    config |= {f"{special.strip('[]').lower()}_token": name for special, name in zip(SPECIALS, vocabulary.specials)}
    for name, content in _files_of_kind(vocabulary, whole["model"]).items():
        storage.write_bytes(str(folder / name), content.encode())
    storage.write_bytes(str(folder / "tokenizer.json"), json.dumps(whole, indent=2, ensure_ascii=False).encode())
    storage.write_json(str(folder / "tokenizer_config.json"), config)


def published_tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of tokenizer.json; special tokens in a text are parsed, and are added to texts and pairs."""
    whole = json.loads(vocabulary.model or vocabulary.tokenizer().to_str())
    whole |= {"added_tokens": _added_tokens(vocabulary), "post_processor": _pair_template(vocabulary)}
    if vocabulary.kind == "wordpiece":
        whole["decoder"] = json.loads(DECODERS["wordpiece"].__getstate__())
    return whole


def _files_of_kind(vocabulary: Vocabulary, model: dict[str, Any]) -> dict[str, str]:
    """Return {name: content} of the files that published vocabularies of this kind have besides tokenizer.json."""
    if vocabulary.kind == "wordpiece":
        return {"vocab.txt": "".join(f"{token}\n" for token in vocabulary.tokens)}
    if vocabulary.kind == "unigram":
        return {}
    merges = (
        merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
    )  # strings in files from before 2024
    return {
        "vocab.json": json.dumps(vocabulary.ids, ensure_ascii=False),
        "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *merges)),
    }


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the special tokens as marked in a tokenizer.json, by id."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [
        {"id": vocabulary.ids[name], "content": name} | plain
        for name in sorted(vocabulary.specials, key=vocabulary.ids.__getitem__)
    ]


def _pair_template(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the template [CLS] A [SEP] B [SEP], with segments 0 and 1, as in a tokenizer.json."""
    first, separator = vocabulary.specials[2:4]
    template = TemplateProcessing(
        single=[first, "$A", separator],
        pair=[first, "$A", separator, "$B:1", f"{separator}:1"],
        special_tokens=[(first, vocabulary.cls_id), (separator, vocabulary.sep_id)],
    )
    return json.loads(template.__getstate__())

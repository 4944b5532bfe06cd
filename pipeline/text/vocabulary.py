"""A vocabulary: its entries by id, its tokenizer and its fingerprint."""

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline.text.added_tokens import AddedToken, as_listed
from pipeline.text.splitting import CONTINUATION, LONGEST_WORD, SPECIALS, continues
from pipeline.text.template import ONE_SEPARATOR, Template

SENTENCES_WITH_SPACES = 1
"""Version of the code that encodes sentences in byte-level BPE; part of the fingerprint.

Increase this number when a code change gives the same sentences different ids. The change of the fingerprint then keeps
old runs from continuing with different rows.
"""
UNUSED = re.compile(r"\[unused\d+\]|madeupword\d+")  # the unused entries of BERT and RoBERTa


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The entries of a vocabulary in the order of their ids, and how text is normalised before it is encoded."""

    tokens: tuple[str, ...]
    lowercase: bool
    kind: str = "wordpiece"
    """wordpiece, byte-bpe or unigram."""
    strip_accents: bool | None = None
    """Whether accents are removed. None: they are removed if text is lower-cased."""
    chinese_characters: bool = True
    """Whether each Chinese character is a word (WordPiece only)."""
    specials: tuple[str, ...] = SPECIALS
    """Names of the padding, unknown, first, separator and mask tokens, then of all other special tokens."""
    template: Template = ONE_SEPARATOR
    """Special tokens around texts and pairs."""
    model: str | None = None
    """The tokenizer as JSON without added tokens: merges or scores, normalisation and splitting. None for WordPiece."""
    added: tuple[AddedToken, ...] = ()
    """Added tokens in the order of their ids, without the five special tokens that every vocabulary has."""
    model_entries: int | None = None
    """Number of entries that WordPiece knows; all later ones are added tokens only. None: all entries."""

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

    @property
    def keeps_spaces(self) -> bool:
        """Whether a word's ids depend on the space before the word.

        If so, a sentence inside a paragraph keeps the space that separates it from the sentence before it. True for
        byte-level BPE only: unigram puts a space before every sentence, and WordPiece ignores spaces.
        """
        return self.kind == "byte-bpe"

    @cached_property
    def continuation(self) -> np.ndarray:
        """Whether each entry continues a word, bool (size,).

        In byte-level BPE, the first piece of a paragraph also looks like a continuation, because it has no space before
        it.
        """
        return self._textual & ~self.whole & np.array([continues(self.kind, token) for token in self.tokens])

    @cached_property
    def whole(self) -> np.ndarray:
        """Whether each entry is an added token, bool (size,). An added token is a word of its own."""
        contents = {token.content for token in self.added}
        return np.array([token in contents for token in self.tokens])

    def matching(self, *, special: bool) -> tuple[AddedToken, ...]:
        """Return the added tokens that match in a text; without `special`, those that are not marked as special."""
        return tuple(token for token in self.added if special or not token.special)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all fields that change the ids of a corpus, in hexadecimal."""
        about = self.__getstate__()
        about.pop("template")
        about["added"] = [asdict(token) for token in self.matching(special=False)]
        for name in ("added", "model_entries"):
            if not about[name]:  # left out, so that earlier runs of vocabularies without added tokens continue
                about.pop(name)
        if self.template != ONE_SEPARATOR:
            about["pair_separators"] = self.template.pair_separators
        if self.keeps_spaces:
            about["sentences"] = SENTENCES_WITH_SPACES
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def tokenizer_json(self) -> str:
        """Return the tokenizer as JSON without added tokens, in the format of tokenizer.json."""
        return self.model if self.model is not None else self._wordpiece_json()

    def _wordpiece_json(self) -> str:
        """Return the tokenizer of a WordPiece vocabulary as JSON: BERT's normalisation, splitting and model."""
        normalizer = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": self.chinese_characters,
            "strip_accents": self.strip_accents,
            "lowercase": self.lowercase,
        }
        model = {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": {token: i for i, token in enumerate(self.tokens[: self.model_entries])},
        }
        whole = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": None,
            "model": model,
        }
        return json.dumps(whole, ensure_ascii=False)

    def tokenizer(self, matching: Collection[AddedToken] = ()) -> Tokenizer:
        """Return a new tokenizer that neither adds nor parses special tokens: "[MASK]" in a text is ordinary text.

        Of the added tokens, those in `matching` match in a text.
        """
        if not matching:
            return self.model_tokenizer()
        whole = json.loads(self._model_for(matching))
        hidden = {entry[0] for entry in whole["model"]["vocab"]} if self.kind == "unigram" else set()
        listed = {name: AddedToken(content=name, normalized=False, special=True) for name in self.specials}
        listed |= {token.content: replace(token, special=token not in matching) for token in self.added}
        whole["added_tokens"] = [
            as_listed(listed[name], self.ids[name])
            for name in sorted(listed, key=self.ids.__getitem__)
            if f" {name}" not in hidden  # a hidden entry would get a new id
        ]
        tokenizer = Tokenizer.from_str(json.dumps(whole, ensure_ascii=False))
        # Tokens that do not match are listed all the same, because ids are given in the order of the list.
        tokenizer.encode_special_tokens = True
        return tokenizer

    def model_tokenizer(self, matching: Collection[AddedToken] = ()) -> Tokenizer:
        """Return a new tokenizer for texts without any of the added tokens `matching`; it matches no added token."""
        return Tokenizer.from_str(self._model_for(matching))

    def _model_for(self, matching: Collection[AddedToken]) -> str:
        """Return the JSON of a tokenizer without added tokens, whose reserved entries match no text."""
        if self.kind != "unigram":
            return self.tokenizer_json()
        contents = {token.content for token in matching}
        matched = np.array([token in contents for token in self.tokens])
        return _hide_reserved_entries(self.tokenizer_json(), self._textual | matched)


def _hide_reserved_entries(model: str, textual: np.ndarray) -> str:
    """Return the JSON of a unigram tokenizer, changed so that special and unused entries match no text.

    A unigram tokenizer searches the text for all of its entries. Splitting replaces every space of the text, so an
    entry that begins with a space is never found.
    """
    tokenizer = json.loads(model)
    entries = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = [
        [piece if textual[i] else f" {piece}", score] for i, (piece, score) in enumerate(entries)
    ]
    return json.dumps(tokenizer, ensure_ascii=False)

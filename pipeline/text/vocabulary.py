"""A WordPiece vocabulary: load, check, train, save and fingerprint it."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import fs
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece as WordPieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from pipeline import storage
from pipeline.errors import ConfigError, DataError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; longer words are [UNK], as in Hugging Face's published tokenizers (google-research/bert: 200)
ALPHABET = 1_000  # characters of a trained vocabulary at most (Hugging Face's BertWordPieceTokenizer)
BRACKETED = re.compile(r"\[.+\]", re.DOTALL)
UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The entries of a BERT WordPiece vocabulary, in the order of their ids, and how text is normalised for them.

    Accents are stripped where text is lower-cased; Chinese characters are words of their own (Devlin et al. 2019's tokenizer).
    """

    tokens: tuple[str, ...]
    lowercase: bool

    def __getstate__(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "lowercase": self.lowercase}  # what is cached is not shipped

    @property
    def size(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Entry -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @property
    def pad_id(self) -> int:
        return self.ids["[PAD]"]

    @property
    def unk_id(self) -> int:
        return self.ids["[UNK]"]

    @property
    def cls_id(self) -> int:
        return self.ids["[CLS]"]

    @property
    def sep_id(self) -> int:
        return self.ids["[SEP]"]

    @property
    def mask_id(self) -> int:
        return self.ids["[MASK]"]

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """Ids that stand for text, int32: all but the five specials and [unusedN]. Random masks are drawn from these."""
        ordinary = (i for i, token in enumerate(self.tokens) if token not in SPECIALS and not UNUSED.fullmatch(token))
        return np.fromiter(ordinary, np.int32)

    @cached_property
    def continuation(self) -> np.ndarray:
        """Whether each id continues a word, bool (size,)."""
        return np.array([token.startswith(CONTINUATION) for token in self.tokens])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the entries and the normalisation, in hexadecimal."""
        return hashlib.sha256(json.dumps([self.tokens, self.lowercase]).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """A new tokenizer that adds no special tokens and knows none: "[MASK]" in a text is three pieces of text."""
        tokenizer = Tokenizer(
            WordPieceModel(self.ids, unk_token="[UNK]", continuing_subword_prefix=CONTINUATION, max_input_chars_per_word=LONGEST_WORD)
        )
        tokenizer.normalizer = BertNormalizer(lowercase=self.lowercase)
        tokenizer.pre_tokenizer = BertPreTokenizer()
        return tokenizer


def load_vocabulary(path: str, lowercase: bool | None) -> Vocabulary:
    """The vocabulary of a vocab.txt, a tokenizer.json or a folder with one (tokenizer.json first), at a local path or URL.

    `lowercase` None: as the tokenizer's own config says. Raises ConfigError where there is no such file, where lower-casing is neither
    said nor configured, or where it is at odds with the config or the entries; DataError where the file is no BERT vocabulary.
    """
    file = vocabulary_file(path)
    content = read_setting(path, file)
    tokens, configured, source = (tokenizer_json if file.endswith(".json") else vocab_txt)(file, content)
    require_sound(tokens, file)
    if lowercase is None and configured is None:
        raise ConfigError(
            f"vocabulary.lowercase must be said: {file} does not tell whether text is lower-cased; "
            "pass True for an uncased vocabulary or False for a cased one"
        )
    if lowercase is not None and configured is not None and lowercase != configured:
        raise ConfigError(f"vocabulary.lowercase ({lowercase}) differs from {source} ({configured}): leave it out, or pass {configured}")
    chosen = configured if lowercase is None else lowercase
    require_fitting_case(tokens, chosen, f"vocabulary.lowercase ({lowercase})" if lowercase is not None else f"{source} ({configured})", file)
    return Vocabulary(tokens=tokens, lowercase=chosen)


def vocabulary_file(path: str) -> str:
    """Absolute location of the vocabulary's file that `path` names or holds."""
    location = storage.absolute(path)
    system, place = storage.filesystem(location)
    kind = system.get_file_info(place).type
    if kind == fs.FileType.File:
        return location
    if kind == fs.FileType.NotFound:
        raise ConfigError(f"vocabulary.path ({path}) does not exist: give a vocab.txt, a tokenizer.json or a folder with one")
    names = storage.children(location)
    for name in ("tokenizer.json", "vocab.txt"):
        if name in names:
            return storage.join(location, name)
    raise ConfigError(f"vocabulary.path ({path}) has no vocab.txt or tokenizer.json: give a folder with one, or the file")


def read_setting(path: str, file: str) -> str:
    """The text of the vocabulary's file."""
    try:
        return storage.read_bytes(file).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"vocabulary.path ({path}) cannot be read ({storage.first_line(error)}): give a file that can") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def vocab_txt(file: str, content: str) -> tuple[tuple[str, ...], bool | None, str]:
    """Entries of a vocab.txt, one a line, and do_lower_case of the tokenizer_config.json beside it, with where that stands."""
    lines = content.removesuffix("\n").split("\n")
    tokens = tuple(line.removesuffix("\r") for line in lines)
    config = storage.join(file.rsplit("/", 1)[0], "tokenizer_config.json")
    settings = tokenizer_config(config)
    lowercase, strip_accents = settings.get("do_lower_case"), settings.get("strip_accents")
    if lowercase not in (None, True, False) or (lowercase is None and strip_accents is not None):
        raise DataError(f"{config}: do_lower_case ({lowercase!r}) must be true or false (strip_accents is {strip_accents!r})")
    require_usual(config, {"strip_accents": strip_accents, "tokenize_chinese_chars": settings.get("tokenize_chinese_chars")}, lowercase)
    return tokens, lowercase, f"do_lower_case in {config}"


def tokenizer_config(location: str) -> dict[str, Any]:
    """The settings of a tokenizer_config.json; none where there is no such file."""
    try:
        settings = storage.read_json(location)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{location} cannot be read ({storage.first_line(error)}): mend it, or remove it and pass vocabulary.lowercase") from error
    if not isinstance(settings, dict):
        raise DataError(f"{location} is a {type(settings).__name__} where a JSON object is wanted: mend it, or remove it and pass vocabulary.lowercase")
    return settings


def tokenizer_json(file: str, content: str) -> tuple[tuple[str, ...], bool | None, str]:
    """Entries of a tokenizer.json and its normalizer's lower-casing, with where that stands."""
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # tokenizers raises nothing narrower
        raise DataError(f"{file} is no tokenizer that can be read ({storage.first_line(error)}): use a vocab.txt") from error
    model, normalizer = tokenizer.model, tokenizer.normalizer
    if not isinstance(model, WordPieceModel):
        raise DataError(f"{file} is a {type(model).__name__} tokenizer: only WordPiece works, as BERT's")
    found = (model.unk_token, model.continuing_subword_prefix, model.max_input_chars_per_word)
    usual = ("[UNK]", CONTINUATION, LONGEST_WORD)
    if found != usual:
        raise DataError(f"{file}: unk_token, continuing_subword_prefix, max_input_chars_per_word are {found}: only {usual} work")
    for part, expected in ((normalizer, BertNormalizer), (tokenizer.pre_tokenizer, BertPreTokenizer)):
        if not isinstance(part, expected):
            raise DataError(f"{file} has {type(part).__name__} where only {expected.__name__} works, as BERT's")
    require_usual(
        file,
        {"strip_accents": normalizer.strip_accents, "tokenize_chinese_chars": normalizer.handle_chinese_chars, "clean_text": normalizer.clean_text},
        normalizer.lowercase,
    )
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = tuple(sorted(ids, key=ids.__getitem__))
    for place, token in enumerate(tokens):
        if ids[token] != place:
            raise DataError(f"{file}: entry {token!r} has id {ids[token]} where {place} is next: ids must run from 0 without gaps or doubles")
    return tokens, normalizer.lowercase, f"normalizer.lowercase in {file}"


def require_usual(file: str, settings: dict[str, bool | None], lowercase: bool | None) -> None:
    """Raise DataError where the text would be normalised in another way than BERT's; None for strip_accents is BERT's own default."""
    for name, value in settings.items():
        usual = lowercase if name == "strip_accents" else True
        if value is not None and value != usual:
            raise DataError(f"{file}: {name} ({value}) must be {usual} where text is {'' if lowercase else 'not '}lower-cased, as BERT's")


def require_sound(tokens: tuple[str, ...], file: str) -> None:
    """Raise DataError where an entry is empty, broken over lines or there twice, or a special token is missing."""
    seen: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if token == "" or "\n" in token or "\r" in token:
            raise DataError(f"{file}: entry {line} ({token!r}) is empty or holds a line break: one entry a line")
        if token in seen:
            raise DataError(f"{file}: entry {line} ({token!r}) is entry {seen[token]} again: every entry must be there once")
        seen[token] = line
    missing = [special for special in SPECIALS if special not in seen]
    if missing:
        raise DataError(f"{file} has no {', '.join(missing)} among its {len(tokens)} entries: a BERT vocabulary has {', '.join(SPECIALS)}")


def require_fitting_case(tokens: tuple[str, ...], lowercase: bool, said: str, file: str) -> None:
    """Raise ConfigError where lower-casing and the entries are at odds; `said` names the setting and its value."""
    words = [token for token in tokens if not BRACKETED.fullmatch(token)]
    upper = [word for word in words if word != word.lower()]
    lower = [word for word in words if word != word.upper()]
    if lowercase and upper:
        raise ConfigError(
            f"{said} does not fit {file}: {len(upper)} of {len(tokens)} entries have upper-case letters, "
            f"such as {upper[0]!r}; make it False for this cased vocabulary"
        )
    if not lowercase and lower and not upper:
        raise ConfigError(
            f"{said} does not fit {file}: 0 of {len(tokens)} entries have upper-case letters and {len(lower)} have lower-case ones, "
            f"such as {lower[0]!r}; make it True for this uncased vocabulary"
        )


def train_vocabulary(texts: Iterable[str], *, size: int, lowercase: bool) -> Vocabulary:
    """A vocabulary of at most `size` entries learnt from `texts`, which are gone through once.

    Memory is that of the distinct words. The same words in the same numbers give the same entries in the same order, in every process.
    [PAD] [UNK] [CLS] [SEP] [MASK] come first, then the alphabet, then what was learnt from it. Words with characters beyond the
    alphabet (the most frequent, at most 1,000 and a quarter of `size`) are left out. Texts that are too few give fewer entries.
    Raises ConfigError where a cased vocabulary is asked for and no text has an upper-case letter.
    """
    counts = word_counts(texts, lowercase)
    characters = alphabet(counts, min(ALPHABET, size // 4))
    words = {word: count for word, count in counts.items() if len(word) <= LONGEST_WORD and characters.issuperset(word)}
    inside = {character for word in words for character in word[1:]}
    # The trainer numbers the alphabet in the order of a hash table, and breaks ties between merges by those numbers:
    # as special tokens the alphabet has its numbers before training starts.
    fixed = [*SPECIALS, *sorted(characters), *(CONTINUATION + character for character in sorted(inside))]
    trainer = WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=fixed, continuing_subword_prefix=CONTINUATION, show_progress=False
    )
    tokenizer = Tokenizer(WordPieceModel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.train_from_iterator(repeated(words), trainer)
    ids = tokenizer.get_vocab()
    tokens = tuple(sorted(ids, key=ids.__getitem__))
    require_fitting_case(tokens, lowercase, f"vocabulary.lowercase ({lowercase})", "the training texts")
    return Vocabulary(tokens=tokens, lowercase=lowercase)


def word_counts(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """How often each word occurs, after BERT's normalisation and splitting at white space and punctuation."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk)):
            words[word] += count
    return words


def alphabet(counts: Counter[str], limit: int) -> set[str]:
    """The `limit` most frequent characters; of equally frequent ones those with the lower code point."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    return set(sorted(characters, key=lambda character: (-characters[character], character))[:limit])


def repeated(counts: dict[str, int]) -> Iterator[str]:
    """Lines in which each word stands as often as its count says, in short lines: the trainer counts for itself."""
    for word, count in counts.items():
        for start in range(0, count, 1_000):
            yield " ".join([word] * min(1_000, count - start))


def save_vocabulary(vocabulary: Vocabulary, folder: Path, maximum_length: int) -> None:
    """Write vocab.txt, tokenizer.json and tokenizer_config.json, as transformers' AutoTokenizer reads them.

    `maximum_length` is the longest sequence of the model in tokens. The tokenizer builds [CLS] A [SEP] B [SEP] with segment ids.
    """
    tokenizer = vocabulary.tokenizer()
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary.cls_id), ("[SEP]", vocabulary.sep_id)],
    )
    tokenizer.decoder = WordPieceDecoder(prefix=CONTINUATION)
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": vocabulary.lowercase,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": maximum_length,
    } | {f"{special.strip('[]').lower()}_token": special for special in SPECIALS}
    storage.write_bytes(str(folder / "vocab.txt"), "".join(f"{token}\n" for token in vocabulary.tokens).encode())
    storage.write_bytes(str(folder / "tokenizer.json"), tokenizer.to_str(pretty=True).encode())
    storage.write_json(str(folder / "tokenizer_config.json"), config)

"""Read published vocabulary files: vocab.txt, tokenizer.json, vocab.json with merges.txt, spiece.model, spm.model."""

import json
from dataclasses import dataclass, replace
from typing import Any

from pyarrow import fs
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel

from pipeline.errors import ConfigError, DataError, listed, shown
from pipeline.files import storage
from pipeline.files.encoder_folder import encoder_folder
from pipeline.text import sentencepiece_model
from pipeline.text.added_token_files import added_tokens_beside
from pipeline.text.added_tokens import AddedToken, added_tokens_of
from pipeline.text.letter_case import has_capitals
from pipeline.text.splitting import CONTINUATION, LONGEST_WORD, SPECIALS, SPECIALS_OF_BYTES, parts_of

NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model")
SENTENCEPIECE = ".model"
"""File name extension of SentencePiece models."""
DEBERTA = "spm.model"
"""Name of DeBERTa's SentencePiece model; all others are normalised as ALBERT's."""
XLM_ROBERTA = "sentencepiece.bpe.model"
BYTE_ORDER_MARK = "\ufeff"
MOST_VOCABULARY, MOST_CONFIG = 1 << 28, 1 << 24
"""Maximum bytes of a vocabulary file, and of a tokenizer_config.json."""
MASK = SPECIALS[4]
ROLES = tuple(zip(SPECIALS, SPECIALS_OF_BYTES, strict=True))
"""Names of each special token, in the order of SPECIALS: (name in BERT, ALBERT and DeBERTa, name in RoBERTa)."""


@dataclass(frozen=True, kw_only=True)
class StatedNormalization:
    """Settings of the normalisation of text; None if the files of a vocabulary do not state one."""

    source: str
    """File and setting from which `lowercase` was read, for error messages."""
    lowercase: bool | None
    strip_accents: bool | None
    chinese_characters: bool | None


@dataclass(frozen=True, kw_only=True)
class VocabularyFile:
    """Content of a vocabulary file."""

    tokens: tuple[str, ...]
    normalization: StatedNormalization
    kind: str = "wordpiece"
    model: str | None = None
    """The tokenizer as JSON, without added tokens and without post-processor; None for WordPiece."""
    marked: tuple[str, ...] = ()
    """Entries that the file marks as special tokens."""
    pair_separators: int | None = None
    """Number of separators between the texts of a pair; None if the file does not state it."""
    added: tuple[AddedToken, ...] = ()
    """Added tokens, with the five special tokens if the file lists them."""
    model_entries: int | None = None
    """Number of entries that are in the model of WordPiece; all later ones are added tokens only."""


def read_file(path: str) -> tuple[str, VocabularyFile]:
    """Return the location of the vocabulary file and its content.

    Raises ConfigError if there is no readable vocabulary file at `path`, and DataError if the file is not a supported
    vocabulary.
    """
    file = _vocabulary_file(path)
    published = _read_vocabulary_file(path, file)
    if file == path or file.endswith("/tokenizer.json"):
        return file, published
    added = added_tokens_beside(file, published.tokens)
    new = [token.content for token in added if token.content not in published.tokens]
    return file, replace(
        published,
        tokens=(*published.tokens, *new),
        added=(*published.added, *(token for token in added if token not in published.added)),
        marked=(*published.marked, *(token.content for token in added if token.special)),
        model_entries=len(published.tokens),
    )


def _read_vocabulary_file(path: str, file: str) -> VocabularyFile:
    """Return the content of a vocabulary file; `path` is vocabulary.path, for messages."""
    if file.endswith(SENTENCEPIECE):
        return _sentencepiece(file, _read_bytes(path, file))
    content = _read_setting(path, file)
    if not content.strip():
        raise DataError(f"{file} is empty: give a vocabulary with its entries")
    name = file.rsplit("/", 1)[-1]
    if not name.endswith(".json"):
        return _vocab_txt(file, content)
    return _vocab_json(file, content) if name == "vocab.json" else _tokenizer_json(file, content)


def _vocabulary_file(path: str) -> str:
    """Return the location of the vocabulary file: `path` itself, or a file in the folder `path`."""
    system, internal_path = storage.filesystem(path)
    kind = system.get_file_info(internal_path).type
    if kind in (fs.FileType.File, fs.FileType.Unknown):  # unknown: a pipe or device; reading it raises an error
        if path.rsplit("/", 1)[-1] == XLM_ROBERTA:
            raise _sentencepiece_of_xlm_roberta(path)
        return path
    if kind == fs.FileType.NotFound:
        raise ConfigError(
            f"vocabulary.path ({path}) does not exist: give a vocab.txt, a tokenizer.json, a spiece.model, an "
            "spm.model or a folder with one"
        )
    names = storage.children(path)
    for name in NAMES:
        if name in names:
            return storage.join(path, name)
    if (inner := encoder_folder(path)) != path:
        return _vocabulary_file(inner)
    if XLM_ROBERTA in names:
        raise _sentencepiece_of_xlm_roberta(storage.join(path, XLM_ROBERTA))
    raise ConfigError(
        f"vocabulary.path ({path}) has no vocab.txt, tokenizer.json, vocab.json, spiece.model or spm.model: give a "
        "folder with one, or the file"
    )


def _sentencepiece_of_xlm_roberta(file: str) -> ConfigError:
    """Return the error for XLM-R's SentencePiece file, whose ids are not those of the model's embeddings."""
    return ConfigError(
        f"vocabulary.path ({file}) has other ids than the XLM-R model: give the model's tokenizer.json, which "
        'transformers writes with AutoTokenizer.from_pretrained("FOLDER").save_pretrained("FOLDER")'
    )


def _read_setting(path: str, file: str) -> str:
    """Return the text of a vocabulary file without a byte-order mark; `path` is vocabulary.path, for the message."""
    try:
        return _read_bytes(path, file).decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def _read_bytes(path: str, file: str) -> bytes:
    """Return the content of a vocabulary file; `path` is vocabulary.path, for the message."""
    try:
        return storage.read_at_most(file, MOST_VOCABULARY)
    except OSError as error:
        raise ConfigError(
            f"vocabulary.path ({path}) cannot be read ({storage.first_line(error)}): give a readable file"
        ) from error


def _vocab_txt(file: str, content: str) -> VocabularyFile:
    """Read a WordPiece vocab.txt, one entry per line, and the tokenizer_config.json next to it."""
    lines = content.removesuffix("\n").split("\n")
    config, settings = _switches(file, "do_lower_case", "strip_accents", "tokenize_chinese_chars")
    lowercase, strip_accents, chinese_characters = settings
    return VocabularyFile(
        tokens=tuple(line.removesuffix("\r") for line in lines),
        normalization=StatedNormalization(
            source=f"do_lower_case in {config}",
            lowercase=lowercase,
            strip_accents=strip_accents,
            chinese_characters=chinese_characters,
        ),
    )


def _switches(file: str, *names: str) -> tuple[str, list[bool | None]]:
    """Return the location of the tokenizer_config.json next to a file, and the value of each setting in `names`.

    A value is None if the config does not state the setting, or if there is no config. Raises DataError for a value
    that is neither true nor false.
    """
    config = storage.join(file.rsplit("/", 1)[0], "tokenizer_config.json")
    settings = tokenizer_config(config)
    for name in names:
        if settings.get(name) not in (None, True, False):
            raise DataError(f"{config}: {name} ({settings[name]!r}) must be true or false")
    return config, [settings.get(name) for name in names]


def _sentencepiece(file: str, content: bytes) -> VocabularyFile:
    """Read a SentencePiece model, and the tokenizer_config.json next to it.

    If the config does not state do_lower_case, text is lower-cased unless many entries have capitals. DeBERTa's model
    gets [MASK] as one more entry if it has none, as published.
    """
    config, (lowercase, keep_accents, parts_signs) = _switches(file, "do_lower_case", "keep_accents", "split_by_punct")
    if parts_signs:
        raise DataError(f"{config}: split_by_punct (True) must be False: use a tokenizer.json")
    deberta = file.rsplit("/", 1)[-1] == DEBERTA
    try:
        model = sentencepiece_model.parse(content, parts_commas=not deberta)
        if lowercase is None:
            lowercase = not has_capitals(tuple(text for text, _ in model.pieces))
        tokenizer = (
            sentencepiece_model.tokenizer_of_deberta(model, lowercase=lowercase)
            if deberta
            else sentencepiece_model.tokenizer_of(model, lowercase=lowercase, strip_accents=not keep_accents)
        )
    except Exception as error:  # tokenizers has no narrower class of errors
        raise DataError(
            f"{file} cannot be read as a unigram SentencePiece model ({storage.first_line(error)}): use a "
            "tokenizer.json"
        ) from error
    tokenizer.add_special_tokens([*model.special, *[MASK] * deberta])
    return _split_tokenizer(file, tokenizer)


def tokenizer_config(location: str) -> dict[str, Any]:
    """Return the settings of a tokenizer_config.json; empty if there is no such file."""
    try:
        settings = storage.parse_json(storage.read_at_most(location, MOST_CONFIG))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): correct it, or remove it and pass "
            "vocabulary.lowercase"
        ) from error
    if not isinstance(settings, dict):
        raise DataError(
            f"{location} is a {type(settings).__name__} where a JSON object is needed: correct it, or remove it and "
            "pass vocabulary.lowercase"
        )
    return settings


def _vocab_json(file: str, content: str) -> VocabularyFile:
    """Read byte-level BPE as published for RoBERTa: ids in vocab.json, merges in the merges.txt next to it."""
    merges = storage.join(file.rsplit("/", 1)[0], "merges.txt")
    lines = [line for line in _read_setting(merges, merges).splitlines() if line and not line.startswith("#version")]
    pairs: Any = [tuple(line.split(" ", 1)) for line in lines]  # BPE refuses a line without two parts
    try:
        tokenizer = Tokenizer(BPE(json.loads(content), pairs))
    except Exception as error:  # tokenizers has no narrower class of errors
        raise DataError(
            f"{file} and {merges} cannot be read as byte-level BPE ({storage.first_line(error)}): use a tokenizer.json"
        ) from error
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # as in RoBERTa's published tokenizer
    tokenizer.decoder = ByteLevelDecoder()
    return _split_tokenizer(file, tokenizer)


def _tokenizer_json(file: str, content: str) -> VocabularyFile:
    """Read a tokenizer.json of any kind."""
    try:
        tokenizer = Tokenizer.from_str(content)
        tokenizer.encode("a")  # a broken normalizer may fail only when text is encoded
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic inside tokenizers is a BaseException, not an Exception
        raise DataError(
            f"{file} cannot be read as a tokenizer ({storage.first_line(error)}): use a vocab.txt"
        ) from error
    if isinstance(tokenizer.model, WordPiece):
        return _wordpiece_json(file, tokenizer, json.loads(content))
    return _split_tokenizer(file, tokenizer, json.loads(content))


def _wordpiece_json(file: str, tokenizer: Tokenizer, whole: dict[str, Any]) -> VocabularyFile:
    """Read a WordPiece tokenizer.json. Raises DataError if its normalisation or splitting is not that of BERT."""
    model, normalizer = tokenizer.model, tokenizer.normalizer
    model_settings = (model.unk_token, model.continuing_subword_prefix, model.max_input_chars_per_word)
    usual = ("[UNK]", CONTINUATION, LONGEST_WORD)
    if model_settings != usual:
        raise DataError(
            f"{file}: unk_token, continuing_subword_prefix, max_input_chars_per_word are {model_settings}: "
            f"only {usual} work"
        )
    for part, expected in ((normalizer, BertNormalizer), (tokenizer.pre_tokenizer, BertPreTokenizer)):
        if not isinstance(part, expected):
            raise DataError(f"{file} has {type(part).__name__} where only {expected.__name__} works, as in BERT")
    if not normalizer.clean_text:
        raise DataError(f"{file}: clean_text (False) must be True, as in BERT")
    return VocabularyFile(
        tokens=_tokens_of(file, tokenizer),
        normalization=StatedNormalization(
            source=f"normalizer.lowercase in {file}",
            lowercase=normalizer.lowercase,
            strip_accents=normalizer.strip_accents,
            chinese_characters=normalizer.handle_chinese_chars,
        ),
        marked=_marked(whole),
        pair_separators=_pair_separators(file, whole),
        added=added_tokens_of(whole),
        model_entries=len(whole["model"]["vocab"]),
    )


def _split_tokenizer(file: str, tokenizer: Tokenizer, content: dict[str, Any] | None = None) -> VocabularyFile:
    """Read a byte-level BPE or unigram tokenizer; the parts that split and encode text are kept unchanged.

    `content` is the tokenizer.json that the tokenizer was read from; None if it was read from other files.
    """
    whole = content if content is not None else json.loads(tokenizer.to_str())
    kind = _kind_of(file, whole)
    lowercase = any(part["type"] == "Lowercase" or part.get("lowercase") for part in parts_of(whole["normalizer"]))
    stripping = [part.get("strip_accents", part["type"] == "StripAccents") for part in parts_of(whole["normalizer"])]
    bare = whole | {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return VocabularyFile(
        tokens=_tokens_of(file, tokenizer),
        normalization=StatedNormalization(
            source=f"normalizer in {file}",
            lowercase=lowercase,
            strip_accents=any(lowercase if strips is None else strips for strips in stripping),
            chinese_characters=False,
        ),
        kind=kind,
        model=json.dumps(bare, ensure_ascii=False),
        marked=_marked(whole),
        pair_separators=_pair_separators(file, whole),
        added=added_tokens_of(whole),
    )


def _marked(whole: dict[str, Any]) -> tuple[str, ...]:
    """Return the entries that a tokenizer.json marks as special."""
    return tuple(token["content"] for token in whole["added_tokens"] if token["special"])


def _kind_of(file: str, whole: dict[str, Any]) -> str:
    """Return the kind of a tokenizer.json that is not WordPiece. Raises DataError if the kind is not supported."""
    model, splits = whole["model"]["type"], {part["type"] for part in parts_of(whole["pre_tokenizer"])}
    if model == "BPE" and "ByteLevel" in splits:
        return "byte-bpe"
    if model == "Unigram" and "Metaspace" in splits:
        return "unigram"
    raise DataError(
        f"{file} is a {model} tokenizer that splits by {listed(sorted(splits)) if splits else 'nothing'}: "
        "only WordPiece (as in BERT), BPE with ByteLevel (as in RoBERTa) and Unigram with Metaspace (as in ALBERT) work"
    )


def _pair_separators(file: str, whole: dict[str, Any]) -> int | None:
    """Return the number of separators between the texts of a pair in a tokenizer.json; None if not stated.

    Raises DataError for a number other than 1 and 2.
    """
    separators = {"BertProcessing": 1, "RobertaProcessing": 2}
    for part in parts_of(whole["post_processor"]):
        if part["type"] in separators:
            return separators[part["type"]]
        if part["type"] == "TemplateProcessing":
            texts = [index for index, piece in enumerate(part["pair"]) if "Sequence" in piece]
            number = texts[1] - texts[0] - 1 if len(texts) == 2 else None
            if number not in (None, 1, 2):
                raise DataError(
                    f"{file}: post_processor puts {number} special tokens between the texts of a pair: only 1 (BERT's "
                    "[SEP]) and 2 (RoBERTa's </s></s>) work"
                )
            return number
    return None


def _tokens_of(file: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the entries by id. Raises DataError if ids have gaps or duplicates."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = tuple(sorted(ids, key=ids.__getitem__))
    for expected, token in enumerate(tokens):
        if ids[token] != expected:
            raise DataError(
                f"{file}: entry {token!r} has id {ids[token]} instead of {expected}: "
                f"ids must run from 0 without gaps or duplicates"
            )
    return tokens


def specials_of(published: VocabularyFile, file: str) -> tuple[str, ...]:
    """Return the special tokens: pad, unk, cls, sep and mask, then the other entries that the file marks as special.

    Raises DataError if an entry is empty or duplicated, if an entry of WordPiece contains a line break, or if a special
    token is missing.
    """
    seen: dict[str, int] = {}
    for line, token in enumerate(published.tokens, start=1):
        if token == "" or (published.kind == "wordpiece" and ("\n" in token or "\r" in token)):
            raise DataError(
                f"{file}: entry {line} ({shown(token)}) is empty or has a line break: write one entry per line"
            )
        if token in seen:
            raise DataError(
                f"{file}: entry {line} ({shown(token)}) repeats entry {seen[token]}: every entry must occur once"
            )
        seen[token] = line
    roles = [names[:1] if published.kind == "wordpiece" else names for names in ROLES]
    missing = [" or ".join(names) for names in roles if not seen.keys() & set(names)]
    if missing:
        usual = ", ".join(" or ".join(names) for names in roles)
        raise DataError(
            f"{file} has no {', '.join(missing)} among its {len(published.tokens)} entries: a vocabulary needs {usual}"
        )
    five = [next(name for name in names if name in seen) for names in roles]
    return (*five, *sorted(set(published.marked) - set(five)))

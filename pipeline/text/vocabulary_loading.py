"""Load a vocabulary from its published files, and check the settings that say how text is normalised for it."""

from pipeline.errors import ConfigError, DataError, shown
from pipeline.text.added_tokens import AddedToken
from pipeline.text.letter_case import BRACKETED, ODD_SHARE, has_capitals, upper_case
from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES
from pipeline.text.template import Template
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_files import VocabularyFile, read_file, specials_of


def load_vocabulary(
    path: str, lowercase: bool | None, *, strip_accents: bool | None = None, chinese_characters: bool = True
) -> Vocabulary:
    """Load a vocabulary from a tokenizer.json, vocab.txt, vocab.json, spiece.model or spm.model.

    `path` is the local path or URL of such a file, or of a folder that contains one. If a folder has several of these
    files, the first in this order is read. If `lowercase` or `strip_accents` is None, the tokenizer's own config
    decides. A published byte-level BPE or unigram tokenizer is used unchanged; for example, RoBERTa's tokenizer puts no
    space before a text.

    Raises ConfigError if no such file exists, if neither `lowercase` nor the config states whether text is lower-cased,
    or if a setting contradicts the config or the entries. Raises DataError if the file is not a supported vocabulary.
    """
    file, published = read_file(path)
    specials, stated = specials_of(published, file), published.normalization
    lower_casing = _merge_setting("lowercase", lowercase, stated.lowercase, stated.source)
    if lower_casing is None:
        raise ConfigError(
            f"vocabulary.lowercase must be set: {file} does not say whether text is lower-cased; "
            "pass True for an uncased vocabulary or False for a cased one"
        )
    if published.kind == "wordpiece":
        setting = f"{stated.source} ({lower_casing})" if lowercase is None else f"vocabulary.lowercase ({lowercase})"
        require_fitting_case(published.tokens[: published.model_entries], lower_casing, setting, file)
    stripping = stated.strip_accents
    if stripping is None and stated.lowercase is not None:
        stripping = lower_casing
    stripped = _merge_setting("strip_accents", strip_accents, stripping, file)
    splits = stated.chinese_characters
    if not chinese_characters:
        splits = _merge_setting("chinese_characters", False, splits, file)
    added = _added_tokens(published, specials)
    vocabulary = Vocabulary(
        tokens=published.tokens,
        lowercase=lower_casing,
        kind=published.kind,
        strip_accents=None if stripped == lower_casing else stripped,
        chinese_characters=splits is not False,
        specials=specials,
        template=Template(pair_separators=published.pair_separators or _usual_separators(specials)),
        model=published.model,
        added=added,
        # Without added tokens, all entries may match, as in earlier versions.
        model_entries=published.model_entries if added and published.kind == "wordpiece" else None,
    )
    _require_contents(vocabulary, file)
    return vocabulary


def _require_contents(vocabulary: Vocabulary, file: str) -> None:
    """Raise DataError if nothing is left of an added token after normalisation."""
    compared = [token.content for token in vocabulary.added if token.normalized]
    normalizer = vocabulary.model_tokenizer().normalizer if compared else None
    if normalizer and (empty := [content for content in compared if normalizer.normalize_str(content) == ""]):
        raise DataError(
            f"{file}: nothing is left of the added token {shown(empty[0])} after normalisation, so it would match "
            "everywhere: set its normalized to false, or remove it"
        )


def _added_tokens(published: VocabularyFile, specials: tuple[str, ...]) -> tuple[AddedToken, ...]:
    """Return the added tokens without the five special tokens, in the order of their ids."""
    by_content = {token.content: token for token in published.added if token.content not in specials[: len(SPECIALS)]}
    return tuple(by_content[entry] for entry in published.tokens if entry in by_content)


def _usual_separators(specials: tuple[str, ...]) -> int:
    """Return the number of separators in a pair: 2 if [CLS] has RoBERTa's name (<s>), else 1 as in BERT."""
    return 2 if specials[2] == SPECIALS_OF_BYTES[2] else 1


def load_vocabulary_as_published(path: str) -> Vocabulary:
    """Load the vocabulary of a published model, as load_vocabulary does.

    If the files do not state whether text is lower-cased, the entries decide. Text is lower-cased, as in transformers,
    unless many entries have capitals (has_capitals): such entries would never occur in lower-cased text.
    """
    _, published = read_file(path)
    stated = published.normalization.lowercase is not None
    return load_vocabulary(path, None if stated else not has_capitals(published.tokens[: published.model_entries]))


def _merge_setting(name: str, wanted: bool | None, configured: bool | None, source: str) -> bool | None:
    """Return the value of a setting: `wanted`, or `configured` if `wanted` is None.

    Raises ConfigError if both are set and differ.
    """
    if wanted is not None and configured is not None and wanted != configured:
        raise ConfigError(
            f"vocabulary.{name} ({wanted}) differs from {source} ({configured}): leave vocabulary.{name} out, or set "
            f"it to {configured}"
        )
    return configured if wanted is None else wanted


def require_fitting_case(tokens: tuple[str, ...], lowercase: bool, setting: str, file: str) -> None:
    """Raise ConfigError if the entries contradict `lowercase`.

    `setting` (name and value) and `file` are for the message.
    """
    words = [token for token in tokens if not BRACKETED.fullmatch(token)]
    upper = upper_case(tokens)
    lower = [word for word in words if word != word.upper()]
    if lowercase and len(upper) > ODD_SHARE * len(words):
        raise ConfigError(
            f"{setting} does not fit {file}: {len(upper)} of {len(tokens)} entries have upper-case letters, "
            f"such as {upper[0]!r}; set {setting.rpartition(' (')[0]} to False, because this vocabulary is cased"
        )
    if not lowercase and lower and not upper:
        raise ConfigError(
            f"{setting} does not fit {file}: 0 of {len(tokens)} entries have upper-case letters "
            f"and {len(lower)} have lower-case ones, "
            f"such as {lower[0]!r}; set {setting.rpartition(' (')[0]} to True, because this vocabulary is uncased"
        )

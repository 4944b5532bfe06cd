"""Normalisation and word splitting of each kind of vocabulary, before words become pieces."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIALS_OF_BYTES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""Names of the same tokens in RoBERTa (byte-level BPE) and XLM-R (unigram)."""
LONGEST_WORD = 100
"""Maximum characters; longer words are [UNK], as in Hugging Face's published tokenizers (google-research/bert: 200)."""
CONTINUATION = "##"
BYTE_SPACE = "Ġ"  # how byte-level BPE writes the space before a word
META_SPACE = "▁"  # how SentencePiece writes the space before a word


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """Splitting of text into words, for training and using a vocabulary of the kind `kind`.

    WordPiece splits at white space and punctuation (Devlin et al. 2019). Byte-level BPE writes bytes as printable
    characters, including the space before a word, and splits as GPT-2 does (Radford et al. 2019). Unigram normalises to
    NFKC and splits at white space, as SentencePiece does. Unigram also puts a space before every text, so that the
    first word looks like any other word. Byte-level BPE puts no space before a text, as in the published RoBERTa.
    """

    kind: str = "wordpiece"
    lowercase: bool
    strip_accents: bool | None = None
    """Whether accents are removed. None: they are removed if text is lower-cased."""
    chinese_characters: bool = True
    """Whether each Chinese character is a word; WordPiece only."""

    @property
    def removes_accents(self) -> bool:
        """Whether accents go because text is lower-cased, and nobody has asked for it or against it."""
        return self.lowercase and self.strip_accents is None

    def normalizer(self) -> normalizers.Normalizer | None:
        """Return a new normalizer; None if text is not changed."""
        wordpiece = self.kind == "wordpiece"
        letters = normalizers.BertNormalizer(
            clean_text=wordpiece,
            handle_chinese_chars=wordpiece and self.chinese_characters,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )
        changed = wordpiece or self.lowercase or bool(self.strip_accents)
        if self.kind != "unigram":
            return letters if changed else None
        spaces = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        return normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), *[letters] * changed, *spaces])

    def pre_tokenizer(self, *, after_space: bool = False) -> pre_tokenizers.PreTokenizer:
        """Return a new splitter of normalised text.

        `after_space` is for single words that followed a space: byte-level BPE then puts the space before them again.
        """
        if self.kind == "wordpiece":
            return pre_tokenizers.BertPreTokenizer()
        if self.kind == "byte-bpe":
            return pre_tokenizers.ByteLevel(add_prefix_space=after_space)
        return pre_tokenizers.Metaspace(replacement=META_SPACE, prepend_scheme="always")


def decoder_of(kind: str) -> decoders.Decoder:
    """Return a new decoder, which joins the pieces of a kind of vocabulary to text."""
    return {
        "wordpiece": decoders.WordPiece(prefix=CONTINUATION),
        "byte-bpe": decoders.ByteLevel(),
        "unigram": decoders.Metaspace(replacement=META_SPACE, prepend_scheme="always"),
    }[kind]


def continues(kind: str, piece: str) -> bool:
    """Whether a piece continues a word.

    In byte-level BPE and unigram, punctuation without a space before it also counts as continuing a word.
    """
    if kind == "wordpiece":
        return piece.startswith(CONTINUATION)
    return not piece.startswith(BYTE_SPACE if kind == "byte-bpe" else META_SPACE)


def parts_of(component: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the parts of a component of a tokenizer.json. A sequence is flattened; None has no parts."""
    if component is None:
        return []
    inner = component.get("normalizers") or component.get("pretokenizers") or component.get("processors")
    return [part for each in inner for part in parts_of(each)] if inner else [component]

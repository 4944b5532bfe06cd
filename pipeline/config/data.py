"""Settings for turning text into examples."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least, require_share
from pipeline.config.locations import Location, SourceText

PASSING = frozenset({"prepare.web_timeout"})
"""Settings that do not affect the content of a prepared corpus."""
PRESET_KINDS = ("wordpiece", "byte-bpe")
PRESET_SIZES = (30_522, 8_192, 50_265)
"""Kinds and sizes of the presets' vocabularies: they do not count where a vocabulary is given."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Settings of the text that a job reads."""

    corpus: tuple[SourceText, ...] = ()
    """A file, folder, glob or URL (https://, s3://, gs://, hf://); for pretraining also a folder prepared by
    jobs/prepare.py.

    Default: the built-in corpus. Options follow it: PATH::format=NAME (wikipedia-dump, wikiextractor, gutenberg,
    bookscorpus, jsonl, parquet and text are recognised; sentences and parquet-sentences must be named), ::column=NAME
    of the text in JSON lines and Parquet, ::language=CODE (default: what the files say, or en), and ::weight=TIMES that
    a document occurs per epoch (default: 1).
    """


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Settings for preparing sources as document shards."""

    heldout_share: float = 0.01
    """Share of parents (whole books, articles) set aside for evaluation, chosen by a hash; above 0, at least four of
    forty or more, and a tenth of fewer, as a next-sentence pair needs two parents.
    """
    window_characters: int = 2_000_000
    """Text of one window (a Parquet row group): the unit of reading, shuffling and resuming."""
    windows_per_shard: int = 32
    """Windows of one Parquet shard, about."""
    piece_characters: int = 32_000
    """Longer documents are cut at paragraph bounds into pieces of at most about this length."""
    minimum_characters: int = 100
    """Shorter documents are dropped (reason: too short).

    A Chinese character, kana or Hangul syllable counts as three, as it says what three letters do.
    """
    minimum_letters: float = 0.5
    """Documents with a smaller share of letters among their characters, white space apart, are dropped (reason: not
    language).
    """
    near_duplicates: float | None = 0.8
    """Documents are dropped when this share of their sequences of eight words stands in others (reason:
    near-duplicate), and held-out ones when a twentieth is in training documents. None: only equal texts are
    dropped.
    """
    error_limit: float = 0.05
    """Share of broken files or records that is counted and skipped; above it preparation stops."""
    expansion_limit: int = 200
    """A compressed file is cut where more than this many times its size, and more than 64 MB, has come out; text gives
    3 to 20 times.
    """
    web_timeout: float = 180.0
    """Seconds without a byte after which a web server is given up; three connections are tried in them, and after ten
    seconds a line says so.
    """

    def __post_init__(self) -> None:
        require_share("prepare.heldout_share", self.heldout_share)
        require(self.heldout_share < 1, f"prepare.heldout_share ({self.heldout_share}) leaves nothing to train on")
        require_at_least("prepare.window_characters", self.window_characters, 1_000)
        require_at_least("prepare.windows_per_shard", self.windows_per_shard, 1)
        require_at_least("prepare.piece_characters", self.piece_characters, 100)
        require_at_least("prepare.minimum_characters", self.minimum_characters, 1)
        require_share("prepare.minimum_letters", self.minimum_letters)
        require(
            self.near_duplicates is None or 0 < self.near_duplicates <= 1,
            f"prepare.near_duplicates ({self.near_duplicates}) must lie above 0 and be at most 1, or be None",
        )
        require_share("prepare.error_limit", self.error_limit)
        require_at_least("prepare.expansion_limit", self.expansion_limit, 2)
        require_at_least("prepare.web_timeout", self.web_timeout, 1)
        require(
            self.minimum_characters <= self.piece_characters,
            f"prepare.minimum_characters ({self.minimum_characters}) must be at most prepare.piece_characters "
            f"({self.piece_characters})",
        )
        require(
            self.piece_characters * 2 <= self.window_characters,
            f"prepare.piece_characters ({self.piece_characters}) must be at most half of "
            f"prepare.window_characters ({self.window_characters}): a window needs several documents",
        )


@dataclass(frozen=True, kw_only=True)
class VocabularySettings:
    """Which vocabulary to use: a given one, or one trained on the prepared corpus."""

    path: Location | None = None
    """A vocab.txt, tokenizer.json, vocab.json with its merges.txt, or a folder with one; default: train one on the
    prepared corpus.
    """
    kind: Literal["wordpiece", "byte-bpe", "unigram"] = "wordpiece"
    """Kind of a trained vocabulary: WordPiece as BERT's, byte-level BPE as RoBERTa's, or unigram as ALBERT's and
    DeBERTa-v3's.
    """
    size: int = 30_522
    """Entries of a trained one, special and unused ones counted (Devlin et al. 2019: 30,522)."""
    lowercase: bool | None = None
    """Lower-case text.

    Default: as the given tokenizer's config says (a bare vocab.txt does not, so set it); yes for a trained WordPiece,
    no for other trained kinds.
    """
    strip_accents: bool | None = None
    """Remove accents. Default: as the given tokenizer's config says, else where text is lower-cased (BERT's rule)."""
    chinese_characters: bool = True
    """WordPiece: every Chinese character is a word of its own; the other kinds never split them."""
    unused: int = 0
    """Entries [unused0], [unused1], … of a trained one, kept free for words of a later task; their ids follow those of
    the special tokens at the beginning.
    """
    training_characters: int | None = 100_000_000
    """Maximum text that one is trained on: the first windows of the shuffled corpus, about 20 million English words,
    counted in seconds. None: all of it.
    """
    extend: int = 0
    """With init: so many words of the corpus become entries of the vocabulary, the most frequent of those that it
    splits into three pieces or more, counted in training_characters; they take the places of [unused] entries first.
    WordPiece only.
    """

    def __post_init__(self) -> None:
        require_at_least("vocabulary.size", self.size, 100)
        require_at_least("vocabulary.unused", self.unused, 0)
        require_at_least("vocabulary.extend", self.extend, 0)
        least = 5 + (256 if self.kind == "byte-bpe" else 50)
        require(
            self.size - self.unused >= least,
            f"vocabulary.size ({self.size}) less vocabulary.unused ({self.unused}) must be at least {least}: the 5 "
            "special tokens and "
            f"{'the 256 bytes' if self.kind == 'byte-bpe' else '50 more'} need room",
        )
        require(
            self.kind == "wordpiece" or self.chinese_characters,
            f"vocabulary.chinese_characters (False) is for vocabulary.kind wordpiece: {self.kind} never splits "
            "Chinese characters, leave it out",
        )
        if self.training_characters is not None:
            require_at_least("vocabulary.training_characters", self.training_characters, 1_000)


@dataclass(frozen=True, kw_only=True)
class NextSentence:
    """Segment pairs for next-sentence prediction (Devlin et al. 2019, A.2; google-research/bert)."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class SentenceOrder:
    """Consecutive segments of one document, swapped by a fair coin, for sentence-order prediction (Lan et al. 2020,
    3.1).
    """

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class FullSentences:
    """Full sentences in order, as many as have room, without a pair task (Liu et al. 2019, 4.2)."""

    across_documents: bool = True
    """Go on into the next document after a [SEP] (FULL-SENTENCES); False: a sequence ends with its document
    (DOC-SENTENCES).
    """


@dataclass(frozen=True, kw_only=True)
class SingleSegment:
    """Contiguous text of one document, cut at the target length, without a pair task."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum."""

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class TokenMasking:
    """Masked positions are drawn token by token (Devlin et al. 2019, 3.1)."""

    share: float = 0.15
    """Share of a sequence's length that is masked: max(1, round(share * length)) positions."""
    mask_share: float = 0.8
    """Share of masked positions replaced by [MASK]."""
    random_share: float = 0.1
    """Share of masked positions replaced by a random ordinary entry; the rest stay."""

    def __post_init__(self) -> None:
        require_share("sampling.masking.share", self.share)
        require_share("sampling.masking.mask_share", self.mask_share)
        require_share("sampling.masking.random_share", self.random_share)
        require(
            self.mask_share + self.random_share <= 1 + 1e-9,
            f"sampling.masking.mask_share ({self.mask_share}) and sampling.masking.random_share ({self.random_share}) "
            "must add up to at most 1",
        )


@dataclass(frozen=True, kw_only=True)
class WholeWordMasking(TokenMasking):
    """Words are drawn, and all pieces of a drawn word are masked (google-research/bert, May 2019), up to the same
    count.
    """


@dataclass(frozen=True, kw_only=True)
class SpanMasking(TokenMasking):
    """Spans of whole words are masked up to the same count, and each is replaced as one (Joshi et al. 2020, 3.1)."""

    stop_probability: float = 0.2
    """Parameter of the geometric distribution of a span's words: the larger, the shorter the spans."""
    longest: int = 10
    """Words of a span at most; longer ones are drawn again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.stop_probability <= 1,
            f"sampling.masking.stop_probability ({self.stop_probability}) must be above 0 and at most 1",
        )
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class NgramMasking(TokenMasking):
    """Runs of n whole words are masked, n with a probability in proportion to 1/n (Lan et al. 2020, 4.2), up to the
    same count.
    """

    longest: int = 3
    """Words of a run at most."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings for turning documents into examples."""

    maximum_length: int = 128
    """Longest sequence in tokens, [CLS] and [SEP] included."""
    pairs: NextSentence | SentenceOrder | FullSentences | SingleSegment = NextSentence()
    masking: TokenMasking | WholeWordMasking | SpanMasking | NgramMasking = TokenMasking()

    def __post_init__(self) -> None:
        require_at_least("sampling.maximum_length", self.maximum_length, 8)

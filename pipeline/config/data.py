"""Settings for turning text into examples."""

from dataclasses import dataclass, replace
from typing import Literal

from pipeline.config.checks import require, require_at_least, require_share
from pipeline.config.locations import Location, SourceText
from pipeline.config.needs import (
    COMPARES_PAIRS,
    LEARNS_TEXTS,
    MASKED_TOKENS,
    PAIR_HEAD,
    PAIRS_OF_TEXTS,
    SINGLE_TEXTS,
    Choice,
)

PASSING = frozenset({"prepare.web_timeout"})
"""Settings that do not affect the content of a prepared corpus."""
PAIRS = "pairs"
"""Format of a source of given pairs: a table with two texts per row, and perhaps hard negatives."""
PRESET_KINDS = ("wordpiece", "byte-bpe", "unigram")
PRESET_SIZES = (30_522, 8_192, 50_265, 30_000, 119_547, 250_002, 50_368, 128_100, 50_358, "auto")
"""Kinds and sizes that presets set for a trained vocabulary.

With vocabulary.path, a kind or size in these lists is ignored, because a preset may have set it. Any other size is
refused.
"""
SIZES_BY_WORDS = ((20_000_000, 8_192), (200_000_000, 16_384))
"""Most words of a corpus, and the entries that vocabulary.size auto gives it; the sizes are those of GPT-BERT."""
MOST_ENTRIES = 50_368
"""Entries that vocabulary.size auto gives to larger corpora: those of ModernBERT."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Settings of the text that a job reads."""

    corpus: tuple[SourceText, ...] = ()
    """A file, folder, glob or URL (https://, s3://, gs://, hf://); for pretraining also a folder prepared by
    jobs/prepare.py. Default: the built-in corpus.

    Options may follow the location. ::format=NAME names the format. It must be given for pairs, sentences and
    parquet-sentences; wikipedia-dump, wikiextractor, gutenberg, bookscorpus, jsonl, parquet, warc and text are
    recognised.
    ::column=NAME names the column of the text in JSON lines and Parquet, or the columns of pairs. ::language=CODE sets
    the language (default: what the files say, or en). ::weight=TIMES sets how often a document occurs per epoch
    (default: 1).
    """


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Settings for turning sources into document shards."""

    heldout_share: float = 0.01
    """Share of parents (whole books, articles) that are held out for evaluation, chosen by a hash. If the share is
    above 0, at least four parents are held out, because a next-sentence pair needs text of two parents. For a corpus of
    fewer than forty parents, the minimum is a tenth of the parents, rounded down.
    """
    window_characters: int = 2_000_000
    """Characters of text per window (a Parquet row group): the unit of reading, shuffling and resuming."""
    windows_per_shard: int = 32
    """Approximate number of windows per Parquet shard."""
    piece_characters: int = 32_000
    """Longer documents are cut into pieces of about this length, between paragraphs if possible."""
    minimum_characters: int = 100
    """Shorter documents are dropped (reason: too short).

    A Chinese character, kana or Hangul syllable counts as three characters, because its content is about that of three
    letters.
    """
    minimum_letters: float = 0.5
    """Minimum share of letters among the characters that are not white space. Documents with a smaller share are
    dropped (reason: not language).
    """
    near_duplicates: float | None = 0.8
    """A document is dropped if at least this share of its sequences of eight words also occurs in other documents
    (reason: near-duplicate). A held-out document is dropped if at least a twentieth of its sequences occurs in training
    documents. None: only documents with the same text are dropped.
    """
    error_limit: float = 0.05
    """Maximum share of broken files or records. Broken files and records are counted and skipped; if their share is
    larger than this, preparation stops with an error.
    """
    expansion_limit: int = 200
    """Maximum ratio of decompressed to compressed bytes; usual for text: 3 to 20. If a file exceeds the limit after 64
    MB of decompressed text, the rest of the file is left out.
    """
    web_timeout: float = 180.0
    """Seconds without any byte from a web server after which reading fails. In this time, up to three connections are
    tried. After ten seconds without a byte, the job prints a line about the wait.
    """

    def __post_init__(self) -> None:
        require_share("prepare.heldout_share", self.heldout_share)
        require(
            self.heldout_share < 1,
            f"prepare.heldout_share ({self.heldout_share}) must be below 1: otherwise no text is left for training",
        )
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
    """The vocabulary: a given one, or one trained on the prepared corpus."""

    path: Location | None = None
    """A given vocabulary: vocab.txt, tokenizer.json, vocab.json with its merges.txt, spiece.model (ALBERT), spm.model
    (DeBERTa), or a folder with one of these files. Default: train a vocabulary on the prepared corpus.
    """
    kind: Literal["wordpiece", "byte-bpe", "unigram"] = "wordpiece"
    """Kind of a trained vocabulary: WordPiece as in BERT, byte-level BPE as in RoBERTa, or unigram as in ALBERT and
    DeBERTa-v3.
    """
    size: int | Literal["auto"] = 30_522
    """Number of entries of a trained vocabulary, including special and unused entries (Devlin et al. 2019: 30,522).
    auto: 8,192 for a corpus of up to 20 million words, of six characters each, 16,384 up to 200 million, 50,368 above.
    """
    lowercase: bool | None = None
    """Lower-case the text.

    Default: for a given vocabulary, the value in its tokenizer's config (set this option for a vocab.txt without a
    config); for a trained vocabulary, yes for WordPiece and no for other kinds. A trained WordPiece vocabulary is cased
    if lower-casing would remove the accents of 0.5% of the letters or more, as in German, French or Hindi.
    """
    strip_accents: bool | None = None
    """Remove accents. Default: the value in the given tokenizer's config, else yes if text is lower-cased (BERT's
    rule).
    """
    chinese_characters: bool = True
    """Make every Chinese character a separate word. For WordPiece only; the other kinds never do this."""
    special_tokens: Literal["bert", "roberta"] | None = None
    """Special tokens of a trained unigram vocabulary. bert: [PAD] [UNK] [CLS] [SEP] [MASK]; roberta: <s> <pad> </s>
    <unk> <mask>, as in XLM-R. Default: bert. For the other kinds they are fixed: wordpiece has BERT's special tokens,
    and byte-bpe has RoBERTa's.
    """
    characters: int = 1_000
    """Maximum characters in the alphabet of a trained WordPiece vocabulary; the alphabet never has more than a quarter
    of the entries. Rarer characters are [UNK]. Chinese and Japanese text needs several thousand.
    """
    unused: int = 0
    """Number of entries [unused0], [unused1], … of a trained vocabulary, kept free for words of a later task. Their ids
    come after the ids of the special tokens.
    """
    training_characters: int | None = 100_000_000
    """Maximum characters of text that a vocabulary is trained on, from the first windows of the shuffled corpus. 100
    million characters are about 20 million English words; counting them takes seconds. None: the whole corpus.
    """
    extend: int = 0
    """Number of words of the corpus to add to the vocabulary of the model at --init; for WordPiece only. The added
    words are the most frequent words that the vocabulary splits into three pieces or more, counted in the first
    training_characters of the corpus. Added words replace [unused] entries first; then new entries are appended.
    """

    def __post_init__(self) -> None:
        require_at_least("vocabulary.unused", self.unused, 0)
        require_at_least("vocabulary.extend", self.extend, 0)
        require_at_least("vocabulary.characters", self.characters, 1)
        if self.size != "auto":
            self._require_size(self.size)
        require(
            self.kind == "wordpiece" or self.chinese_characters,
            f"vocabulary.chinese_characters (False) is for vocabulary.kind wordpiece: leave the option out, because "
            f"{self.kind} never makes each Chinese character a word of its own",
        )
        require(
            self.kind == "unigram" or self.special_tokens is None,
            f"vocabulary.special_tokens ({self.special_tokens}) is for vocabulary.kind unigram: pass None, because "
            f"{self.kind} has one set of special tokens",
        )
        if self.training_characters is not None:
            require_at_least("vocabulary.training_characters", self.training_characters, 1_000)

    def _require_size(self, size: int) -> None:
        """Raise ConfigError if `size` entries are too few."""
        require_at_least("vocabulary.size", size, 100)
        least = 5 + (256 if self.kind == "byte-bpe" else 50)
        require(
            size - self.unused >= least,
            f"vocabulary.size ({size}) minus vocabulary.unused ({self.unused}) must be at least {least}, for "
            f"the 5 special tokens and {'the 256 bytes' if self.kind == 'byte-bpe' else '50 other entries'}",
        )

    @property
    def most_entries(self) -> int:
        """Number of entries of a trained vocabulary; for `auto`, the most that it may mean."""
        return MOST_ENTRIES if self.size == "auto" else self.size

    def sized(self, words: float) -> "VocabularySettings":
        """Return the settings with a number of entries in place of `auto`, for a corpus of so many words."""
        if self.size != "auto":
            return self
        return replace(self, size=next((size for most, size in SIZES_BY_WORDS if words <= most), MOST_ENTRIES))


class AnyPairs(Choice):
    """Base of the kinds of sampling.pairs."""

    in_words = ""
    """The two texts of a row, for model cards; empty for rows that are not two texts."""


class LabelledPairs(AnyPairs):
    """Base of the kinds of sampling.pairs whose rows are two labelled segments with masked tokens."""

    needs = (PAIR_HEAD,)
    offers = (MASKED_TOKENS,)


class MaskedText(AnyPairs):
    """Base of the kinds of sampling.pairs whose rows are text with masked tokens, without a label."""

    offers = (MASKED_TOKENS,)


class TwoTexts(AnyPairs):
    """Base of the kinds of sampling.pairs whose rows hold two texts. The encoder reads each text as a sequence of its
    own.
    """

    needs = (COMPARES_PAIRS,)
    offers = (PAIRS_OF_TEXTS,)


@dataclass(frozen=True, kw_only=True)
class NextSentence(LabelledPairs):
    """Segment pairs for next-sentence prediction (Devlin et al. 2019, appendix A.2; google-research/bert)."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum. The target length of the other
    documents is the maximum.
    """

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class SentenceOrder(LabelledPairs):
    """Pairs of consecutive segments of one document, swapped with probability 1/2, for sentence-order prediction (Lan
    et al. 2020, section 3.1).
    """

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum. The target length of the other
    documents is the maximum.
    """

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class FullSentences(MaskedText):
    """Consecutive full sentences that fill a sequence as far as possible, without a pair task (Liu et al. 2019, section
    4.2).
    """

    across_documents: bool = True
    """Continue a sequence with the next document after a [SEP] (FULL-SENTENCES). False: a sequence ends with its
    document (DOC-SENTENCES).
    """


@dataclass(frozen=True, kw_only=True)
class SingleSegment(MaskedText):
    """Contiguous text of one document, cut at the target length, without a pair task."""

    short_probability: float = 0.1
    """Share of documents whose target length is drawn uniformly from 2 to the maximum. The target length of the other
    documents is the maximum.
    """

    def __post_init__(self) -> None:
        require_share("sampling.pairs.short_probability", self.short_probability)


@dataclass(frozen=True, kw_only=True)
class TwoCrops(TwoTexts):
    """Two random spans of the same part of a document, for objective contrastive (Contriever, Izacard et al. 2022).

    A document is cut into equal parts of at most 2 x (sampling.maximum_length - 2) tokens. Each part gives one row. The
    length of a span is drawn uniformly from a tenth to half of the part's length.
    """

    in_words = "two crops of one document"


@dataclass(frozen=True, kw_only=True)
class AdjacentParagraphs(TwoTexts):
    """Two consecutive paragraphs of one document, for objective contrastive. A paragraph is a line of the text.

    Each paragraph is in at most one row per epoch.
    """

    in_words = "adjacent paragraphs"
    shortest: int = 32
    """Minimum tokens of a paragraph. Shorter paragraphs, such as headings, are joined with the lines after them."""

    def __post_init__(self) -> None:
        require_at_least("sampling.pairs.shortest", self.shortest, 1)


@dataclass(frozen=True, kw_only=True)
class TitleParagraph(TwoTexts):
    """A document's title and one of its paragraphs, for objective contrastive. A paragraph is a line of the text.

    Each paragraph gives one row per epoch. Documents without a title give no rows.
    """

    in_words = "a title and a paragraph of its document"
    shortest: int = 32
    """Minimum tokens of a paragraph. Shorter paragraphs, such as headings, are joined with the lines after them."""

    def __post_init__(self) -> None:
        require_at_least("sampling.pairs.shortest", self.shortest, 1)


@dataclass(frozen=True, kw_only=True)
class GivenPairs(TwoTexts):
    """The two texts of each row of a table, and the row's hard negatives, for objective contrastive. The corpus must be
    prepared with ::format=pairs.
    """

    in_words = "given pairs of texts"
    negatives: int = 4
    """Maximum hard negatives per row. If a row has more, each epoch draws others of them. 0: use none."""

    def __post_init__(self) -> None:
        require_at_least("sampling.pairs.negatives", self.negatives, 0)


@dataclass(frozen=True, kw_only=True)
class Sentences(AnyPairs):
    """Rows of one sentence, or of up to `most` consecutive sentences of a document, for objective distilled-vectors.

    Each sentence is in one row per epoch. A sentence of more than sampling.maximum_length - 2 tokens is left out.
    """

    most: int = 1
    """Maximum consecutive sentences per row. The number is drawn uniformly from 1 to this for each row; a row has fewer
    if more do not fit.
    """
    needs = (LEARNS_TEXTS,)
    offers = (SINGLE_TEXTS,)

    def __post_init__(self) -> None:
        require_at_least("sampling.pairs.most", self.most, 1)


Pairs = (
    NextSentence
    | SentenceOrder
    | FullSentences
    | SingleSegment
    | TwoCrops
    | AdjacentParagraphs
    | TitleParagraph
    | GivenPairs
    | Sentences
)


@dataclass(frozen=True, kw_only=True)
class TokenMasking:
    """Single tokens are drawn at random and masked (Devlin et al. 2019, section 3.1)."""

    share: float = 0.15
    """Share of a sequence's tokens to mask: max(1, round(share * length)) positions."""
    mask_share: float = 0.8
    """Share of masked positions replaced by [MASK]."""
    random_share: float = 0.1
    """Share of masked positions replaced by a random ordinary vocabulary entry; the other positions keep their token.
    """

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
    """Words are drawn, and all pieces of a drawn word are masked (google-research/bert, May 2019). `share` limits the
    number of masked positions.
    """


@dataclass(frozen=True, kw_only=True)
class SpanMasking(TokenMasking):
    """Spans of whole words are masked, and all tokens of a span are replaced in the same way (Joshi et al. 2020,
    section 3.1). `share` limits the number of masked positions.
    """

    stop_probability: float = 0.2
    """Parameter of the geometric distribution of the number of words per span; a larger value gives shorter spans."""
    longest: int = 10
    """Maximum words per span; longer spans are drawn again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.stop_probability <= 1,
            f"sampling.masking.stop_probability ({self.stop_probability}) must be above 0 and at most 1",
        )
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class NgramMasking(TokenMasking):
    """Runs of n whole words are masked; n is drawn from 1 to `longest` with probability proportional to 1/n (Lan et al.
    2020, section 4.2). `share` limits the number of masked positions.
    """

    longest: int = 3
    """Maximum words per run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("sampling.masking.longest", self.longest, 1)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings for turning documents into examples."""

    maximum_length: int = 128
    """Maximum tokens per sequence, including [CLS] and [SEP]."""
    pairs: Pairs = NextSentence()
    masking: TokenMasking | WholeWordMasking | SpanMasking | NgramMasking = TokenMasking()
    copies: int | None = None
    """Number of fixed copies of the examples: epoch e (from 0) shows copy e mod copies, with the same pairs and masks
    each time (google-research/bert: 10). Default: new pairs and masks in every epoch.
    """
    language_exponent: float = 1.0
    """Exponent of the shares of languages: a language's share of an epoch is proportional to its share of the tokens,
    raised to this power. A value below 1 shows small languages more often (google-research/bert: 0.7; Conneau et al.
    2020: 0.3). In the text that a vocabulary is trained on, each language has about the same share as in an epoch.
    """
    query_prompt: str | None = None
    """Text before the first text of each row of two texts, such as "query: ". It usually ends in a space, and it counts
    towards maximum_length. Default: the prompt for queries of the model at --init, if it has one; "": no prompt.
    """
    document_prompt: str | None = None
    """As query_prompt, before the second text and the hard negatives, such as "passage: "."""
    exported_length: int | None = None
    """Maximum tokens of a text that the exported model reads for a vector; longer texts are truncated. More than
    model.maximum_positions counts as these. Default: the length of the longest training sequences.
    """
    mix_languages: bool = True
    """Let a sequence hold text of several languages. False: each sequence, and both segments of a pair, have one
    language.
    """

    def __post_init__(self) -> None:
        require_at_least("sampling.maximum_length", self.maximum_length, 8)
        if self.copies is not None:
            require_at_least("sampling.copies", self.copies, 1)
        require_share("sampling.language_exponent", self.language_exponent)
        if self.exported_length is not None:
            require_at_least("sampling.exported_length", self.exported_length, 8)
        for name, prompt in (("query_prompt", self.query_prompt), ("document_prompt", self.document_prompt)):
            require(
                self.two_texts or not prompt,
                f"sampling.{name} ({prompt!r}) is for rows of two texts, but sampling.pairs is "
                f"{type(self.pairs).__name__}: leave it out, or choose sampling.pairs of objective contrastive",
            )

    @property
    def two_texts(self) -> bool:
        """Whether each row holds two texts, which the encoder reads as separate sequences."""
        return PAIRS_OF_TEXTS in self.pairs.offers

    @property
    def prompts(self) -> tuple[str, str]:
        """Texts before the first text of each row, and before its other texts; "" for none."""
        return self.query_prompt or "", self.document_prompt or ""

    @property
    def with_text(self) -> bool:
        """Whether each row also holds its text as a string, for a teacher with another vocabulary."""
        return SINGLE_TEXTS in self.pairs.offers

    @property
    def masks(self) -> bool:
        """Whether tokens of the rows are masked."""
        return MASKED_TOKENS in self.pairs.offers

    @property
    def negatives(self) -> int:
        """Maximum hard negatives per row."""
        return self.pairs.negatives if isinstance(self.pairs, GivenPairs) else 0

    @property
    def sequences(self) -> int:
        """Maximum sequences per row: one, or two texts and hard negatives."""
        return 2 + self.negatives if self.two_texts else 1

    @property
    def row_length(self) -> int:
        """Maximum tokens per row; the texts of a row share its [CLS]."""
        return self.sequences * (self.maximum_length - 1) + 1

    def copy_of_epoch(self, epoch: int) -> int:
        """Return the number of the copy that an epoch shows; without copies, the number of the epoch."""
        return epoch if self.copies is None else epoch % self.copies

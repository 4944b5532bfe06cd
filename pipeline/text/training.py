"""Train a vocabulary from texts or word counts."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.pre_tokenizers import ByteLevel, WhitespaceSplit
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

from pipeline.text.splitting import CONTINUATION, LONGEST_WORD, SPECIALS, SPECIALS_OF_BYTES, Splitting, decoder_of
from pipeline.text.template import ONE_SEPARATOR, TWO_SEPARATORS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import require_fitting_case

COUNTS = pa.schema([pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)])
ALPHABET = 1_000
"""Default maximum number of characters in the alphabet of a trained WordPiece vocabulary.

The same default as in Hugging Face's BertWordPieceTokenizer.
"""
REPLAYED = 50_000_000
"""Maximum number of words fed to a trainer. Trainers of `tokenizers` take text, not counts, so words are repeated."""
SCORE_DIGITS = 6
"""Unigram scores are rounded to this number of decimals.

The trainer sums over threads in no fixed order, so digits from the 14th on vary.
"""
SCORE_STEP = 1e-4
"""Distance between the scores that the trainer gives to the rarest characters (sort_rarest_scores)."""


def word_counts(texts: Iterable[str], splitting: Splitting) -> Counter[str]:
    """Count each word. Texts are first cut at white space, so a run of white space is never a word."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
    normalizer, splitter = splitting.normalizer(), splitting.pre_tokenizer(after_space=True)
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(chunk) if normalizer else chunk):
            words[word] += count
    return words


def counts_table(counts: dict[str, int]) -> pa.Table:
    """Return counts as a table (schema COUNTS)."""
    return pa.table([list(counts), list(counts.values())], schema=COUNTS)


def iterate_counts(counts: pa.Table) -> Iterator[tuple[str, int]]:
    """Yield (word, count) for each row of a table; only one batch of rows at a time becomes Python objects."""
    for batch in counts.to_batches(max_chunksize=65_536):
        yield from zip(batch["word"].to_pylist(), batch["count"].to_pylist(), strict=True)


def learn(
    counts: pa.Table,
    splitting: Splitting,
    *,
    size: int,
    unused: int,
    specials: tuple[str, ...],
    most_characters: int = ALPHABET,
) -> tuple[tuple[str, ...], str | None]:
    """Learn at most `size` entries from word counts (schema COUNTS); return the entries and the tokenizer's JSON.

    The JSON is None for WordPiece. The same counts give the same entries in the same order, in every process and for
    any order of the words.

    The order is: [PAD] [UNK] [CLS] [SEP] [MASK]; [unused0] and so on; the alphabet; the learnt entries. For unigram,
    the alphabet is among the learnt entries. If `specials` are RoBERTa's, <s> <pad> </s> <unk> come first and <mask>
    comes last, as in RoBERTa and XLM-R.

    If the counts add up to more than 50 million words, they are scaled down to that sum, and remainders are rounded up
    or down by a hash of the word. Frequent words keep their share. Rare words are sampled, so pieces that occur in many
    rare words keep their share too.
    """
    free = [f"[unused{number}]" for number in range(unused)]
    if splitting.kind == "wordpiece":
        return _wordpiece_entries(counts, size, [*specials, *free], most_characters), None
    pad, unknown, first, separator, masked = specials
    before, after = (
        ([*specials, *free], []) if specials == SPECIALS else ([first, pad, separator, unknown, *free], [masked])
    )
    if splitting.kind == "byte-bpe":
        tokenizer = Tokenizer(_learn_bytes(counts, size, before, masked))
    else:
        tokenizer = Tokenizer(_learn_unigram(counts, size, before, after, unknown))
    if normalizer := splitting.normalizer():
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitting.pre_tokenizer()
    tokenizer.decoder = decoder_of(splitting.kind)
    return _tokens_by_id(tokenizer), json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False)


def _wordpiece_entries(counts: pa.Table, size: int, reserved: list[str], most_characters: int) -> tuple[str, ...]:
    """Train a WordPiece vocabulary and return its entries.

    The alphabet is the most frequent characters: at most `most_characters`, and at most a quarter of the entries that
    are not [unused]. Words with other characters, and words of more than 100 characters, are left out.
    """
    characters = alphabet(counts, min(most_characters, (size - len(reserved) + len(SPECIALS)) // 4))

    def fits(word: str) -> bool:
        return len(word) <= LONGEST_WORD and characters.issuperset(word)

    inside = {character for word, _ in iterate_counts(counts) if fits(word) for character in word[1:]}
    # The trainer numbers the alphabet in the order of a hash table, and breaks ties between merges by these numbers.
    # The alphabet is passed as special tokens, so that it gets the same numbers in every process.
    fixed = [*reserved, *sorted(characters), *(CONTINUATION + character for character in sorted(inside))]
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=fixed,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    words = ((word, count) for word, count in scale_counts(counts) if fits(word))
    return _tokens_by_id(_train_tokenizer(WordPiece(unk_token="[UNK]"), trainer, words))


def _learn_bytes(counts: pa.Table, size: int, reserved: list[str], masked: str) -> BPE:
    """Train byte-level BPE; all 256 bytes are entries, so no text is unknown. `masked` is the last entry."""
    trainer = BpeTrainer(
        vocab_size=size - 1,
        min_frequency=2,
        special_tokens=reserved,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    model = json.loads(_train_tokenizer(BPE(), trainer, scale_counts(counts)).to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return BPE(model["vocab"] | {masked: len(model["vocab"])}, merges)


def _learn_unigram(counts: pa.Table, size: int, before: list[str], after: list[str], unknown: str) -> Unigram:
    """Train a unigram model (Kudo 2018).

    The entries are: the reserved entries in `before`, the learnt entries, the reserved entries in `after`. The alphabet
    is the most frequent characters, at most a quarter of the entries that are not reserved; words are split at other
    characters. The learnt entries are sorted by score and then by code points, because the trainer puts entries of
    equal score in the order of a hash table. If two segmentations of a word are equally likely, the last digit of a sum
    may still decide which pieces are dropped; this has not been observed yet.
    """
    reserved = [*before, *after]
    characters = alphabet(counts, (size - len(reserved)) // 4)
    words = ((part, count) for word, count in scale_counts(counts) for part in split_at_unknown(word, characters))
    trainer = UnigramTrainer(vocab_size=size, special_tokens=reserved, unk_token=unknown, show_progress=False)
    scored = json.loads(_train_tokenizer(Unigram(), trainer, words).to_str())["model"]["vocab"]
    learnt = {piece: round(score, SCORE_DIGITS) for piece, score in scored if piece not in reserved}
    pieces = sort_rarest_scores(learnt)
    ordered = sorted(pieces.items(), key=lambda entry: (-entry[1], entry[0]))
    named = [[(name, 0.0) for name in names] for names in (before, after)]
    return Unigram([*named[0], *ordered, *named[1]], unk_id=before.index(unknown))


def sort_rarest_scores(pieces: dict[str, float]) -> dict[str, float]:
    """Return the pieces with the scores of the rarest characters reassigned in code point order.

    The trainer keeps characters that it would otherwise have dropped, and gives them the lowest scores, 0.0001 apart,
    in the order of a hash table.
    """
    characters = sorted((piece for piece in pieces if len(piece) == 1), key=pieces.__getitem__)
    last = 1
    while last < len(characters) and pieces[characters[last]] - pieces[characters[last - 1]] < 1.5 * SCORE_STEP:
        last += 1
    lowest = characters[:last]
    scores = sorted((pieces[character] for character in lowest), reverse=True)
    return pieces | dict(zip(sorted(lowest), scores, strict=True))


def _train_tokenizer(model: BPE | Unigram | WordPiece, trainer: Any, words: Iterable[tuple[str, int]]) -> Tokenizer:
    """Train a model and return its tokenizer."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.train_from_iterator(repeat_words(words), trainer)
    return tokenizer


def _tokens_by_id(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the entries in the order of their ids."""
    ids = tokenizer.get_vocab()
    return tuple(sorted(ids, key=ids.__getitem__))


def alphabet(counts: pa.Table, limit: int) -> set[str]:
    """Return the `limit` most frequent characters; ties go to the lower code point."""
    characters: Counter[str] = Counter()
    for word, count in iterate_counts(counts):
        for character in word:
            characters[character] += count
    return set(sorted(characters, key=lambda character: (-characters[character], character))[:limit])


def split_at_unknown(word: str, characters: set[str]) -> list[str]:
    """Split a word at the characters that are not in `characters`, and drop those characters."""
    if characters.issuperset(word):
        return [word]
    return "".join(character if character in characters else " " for character in word).split()


def scale_counts(counts: pa.Table, most: int = REPLAYED) -> Iterator[tuple[str, int]]:
    """Yield (word, count), scaled down if the counts add up to more than `most`; words with count 0 are left out."""
    total = pc.sum(counts["count"]).as_py() or 0
    if total <= most:
        yield from iterate_counts(counts)
        return
    for word, count in iterate_counts(counts):
        whole, rest = divmod(count * most, total)
        draw = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
        if whole := whole + (draw * total < rest << 64):
            yield word, whole


def repeat_words(counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield lines in which each word is repeated as often as its count, because the trainer counts words of text."""
    for word, count in counts:
        for start in range(0, count, 1_000):
            yield " ".join([word] * min(1_000, count - start))


def train_vocabulary(
    texts: Iterable[str],
    *,
    size: int,
    lowercase: bool,
    kind: str = "wordpiece",
    strip_accents: bool | None = None,
    chinese_characters: bool = True,
    unused: int = 0,
    specials: tuple[str, ...] | None = None,
    most_characters: int = ALPHABET,
) -> Vocabulary:
    """Train a vocabulary of at most `size` entries on `texts`, which are read once.

    Memory grows with the number of distinct words. Raises the same errors as vocabulary_of_counts.
    """
    splitting = Splitting(
        kind=kind, lowercase=lowercase, strip_accents=strip_accents, chinese_characters=chinese_characters
    )
    counts = counts_table(word_counts(texts, splitting))
    return vocabulary_of_counts(
        counts, splitting, size=size, unused=unused, specials=specials, most_characters=most_characters
    )


def vocabulary_of_counts(
    counts: pa.Table,
    splitting: Splitting,
    *,
    size: int,
    unused: int,
    specials: tuple[str, ...] | None = None,
    most_characters: int = ALPHABET,
) -> Vocabulary:
    """Train a vocabulary of at most `size` entries on word counts (schema COUNTS).

    If there are few words, the vocabulary has fewer entries. `specials` are SPECIALS or SPECIALS_OF_BYTES; default:
    SPECIALS_OF_BYTES for byte-bpe, SPECIALS for other kinds. `most_characters` limits the alphabet of WordPiece.

    Raises ConfigError if a cased WordPiece vocabulary is requested and no word has an upper-case letter.
    """
    if specials is None:
        specials = SPECIALS_OF_BYTES if splitting.kind == "byte-bpe" else SPECIALS
    tokens, model = learn(
        counts, splitting, size=size, unused=unused, specials=specials, most_characters=most_characters
    )
    if splitting.kind == "wordpiece":
        require_fitting_case(
            tokens, splitting.lowercase, f"vocabulary.lowercase ({splitting.lowercase})", "the training texts"
        )
    return Vocabulary(
        tokens=tokens,
        lowercase=splitting.lowercase,
        kind=splitting.kind,
        strip_accents=None if splitting.strip_accents == splitting.lowercase else splitting.strip_accents,
        chinese_characters=splitting.kind == "wordpiece" and splitting.chinese_characters,
        specials=specials,
        template=TWO_SEPARATORS if specials == SPECIALS_OF_BYTES else ONE_SEPARATOR,
        model=model,
    )

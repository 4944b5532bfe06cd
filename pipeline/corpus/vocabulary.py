"""Train a run's vocabulary on the prepared corpus, or add words of the corpus to a given vocabulary."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from pipeline.config.data import VocabularySettings
from pipeline.corpus.counts import MOST_UNIGRAM_WORDS, MOST_WORDS, count_words, texts_of
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.weights import NO_FACTORS, language_factors, text_by_language
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locks import locked_name
from pipeline.on_ray.tasks import RAY, Executor
from pipeline.reporting import Report, no_op
from pipeline.text import extension
from pipeline.text.accents import MUCH, LostAccents, lost_accents
from pipeline.text.splitting import SPECIALS, SPECIALS_OF_BYTES, Splitting
from pipeline.text.training import ALPHABET, vocabulary_of_counts
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

NEW_WORDS = "words.json"
SHOWN = 8  # added words named in the report
CHARACTERS_PER_WORD = 6
"""Characters of a corpus by its words, white space included: measured were 5.7 in English books, 6.3 in Wikipedia."""
SAMPLE_CHARACTERS = 1_000_000
"""Characters of text in which accents are counted, to choose between cased and uncased."""


def trained_vocabulary(
    settings: VocabularySettings,
    corpus: Corpus,
    output: str,
    report: Report,
    language_exponent: float = 1.0,
    executor: Executor = RAY,
) -> Vocabulary:
    """Return the vocabulary trained on the corpus; train it if `output` does not have it.

    If `language_exponent` is not 1, documents are repeated as in an epoch of training. The exponent sets the share of
    each language. Here the shares are measured in text length, not in tokens.

    `chosen_case` says whether it is cased. If another process of this machine is training the same vocabulary, wait for
    it. Raises DataError if the stored vocabulary is damaged.
    """
    settings = sized_for(settings, corpus.train_characters)
    splitting, about, folder = chosen_case(settings, corpus, output, report, language_exponent)
    with locked_name(folder, wait=True):  # two runs may need the same vocabulary at once
        if not storage.exists(storage.join(folder, storage.MANIFEST)):
            made_from = {"corpus": corpus.fingerprint, "settings": about}
            _train(settings, splitting, corpus, folder, made_from, report, language_exponent, executor)
    if problem := storage.damage(folder):
        raise DataError(f"vocabulary {folder} is damaged ({problem}); delete this folder to train it again")
    return load_vocabulary(folder, splitting.lowercase)


def found_vocabulary(
    settings: VocabularySettings, corpus: Corpus, output: str, language_exponent: float = 1.0
) -> Vocabulary | None:
    """Return the vocabulary that `trained_vocabulary` has stored for these arguments; None if there is none."""
    settings = sized_for(settings, corpus.train_characters)
    splitting, _, folder = chosen_case(settings, corpus, output, no_op, language_exponent)
    is_trained = storage.exists(storage.join(folder, storage.MANIFEST)) and storage.damage(folder) is None
    return load_vocabulary(folder, splitting.lowercase) if is_trained else None


def sized_for(settings: VocabularySettings, characters: int) -> VocabularySettings:
    """Return the settings with a number of entries in place of vocabulary.size auto, for so much training text."""
    return settings.sized(characters / CHARACTERS_PER_WORD)


def chosen_case(
    settings: VocabularySettings, corpus: Corpus, output: str, report: Report, language_exponent: float
) -> tuple[Splitting, dict[str, Any], str]:
    """Return how to split text, with the settings and the folder of a vocabulary trained so, as from `place`.

    A vocabulary that an earlier version trained uncased is kept, so that its runs can continue.
    """
    splitting = splitting_of(settings)
    about, folder = place(settings, splitting, corpus, output, language_exponent)
    if not splitting.removes_accents or storage.exists(storage.join(folder, storage.MANIFEST)):
        return splitting, about, folder
    splitting, note = fitting_case(settings, splitting, lost_accents(_sample(corpus)))
    about, folder = place(settings, splitting, corpus, output, language_exponent)
    if note and not storage.exists(storage.join(folder, storage.MANIFEST)):
        report(note)
    return splitting, about, folder


def place(
    settings: VocabularySettings, splitting: Splitting, corpus: Corpus, output: str, language_exponent: float
) -> tuple[dict[str, Any], str]:
    """Return the settings that a trained vocabulary depends on, and its folder, whose name has their digest."""
    about = settings_of_training(settings, splitting) | _of_languages(language_exponent)
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    name = f"{corpus.fingerprint[:12]}-{settings.kind}-{settings.size}-{digest}"
    return about, storage.join(output, "vocabularies", name)


def _sample(corpus: Corpus) -> Iterator[str]:
    """Yield the first documents of the corpus, SAMPLE_CHARACTERS in total; they are a random sample."""
    left = SAMPLE_CHARACTERS
    for text in texts_of(corpus, first_windows(corpus, SAMPLE_CHARACTERS)):
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)


def fitting_case(settings: VocabularySettings, uncased: Splitting, lost: LostAccents) -> tuple[Splitting, str | None]:
    """Return how to split text that loses these accents in an uncased vocabulary, and a line for the user, if any.

    A language that needs its accents (German, French, Vietnamese, Greek, Hindi) gets a cased vocabulary, as its
    published models have, unless the user asks for an uncased one.
    """
    if lost.share < MUCH:
        return uncased, None
    accents = f"the accents of {100 * lost.share:.1f}% of the letters"
    shown = f" ({', '.join(lost.examples)})" if lost.examples else ""
    if settings.lowercase is None:
        note = f"vocabulary: cased, because uncased removes {accents}{shown}; --vocabulary.lowercase makes it uncased"
        return replace(uncased, lowercase=False), note
    kept = "--vocabulary.no-lowercase or --vocabulary.no-strip-accents keeps them"
    return uncased, f"vocabulary: uncased, which removes {accents}{shown}; {kept}"


def _of_languages(exponent: float) -> dict[str, float]:
    """Return {"language_exponent": exponent}; {} for exponent 1, so that folders of earlier versions are found."""
    return {} if exponent == 1 else {"language_exponent": exponent}


def _factors(corpus: Corpus, exponent: float) -> Mapping[str, float]:
    """Return the factors of languages. They are computed from text lengths, because token counts need a vocabulary."""
    return NO_FACTORS if exponent == 1 else language_factors(text_by_language(corpus), exponent)


def extended_vocabulary(
    base: Vocabulary,
    settings: VocabularySettings,
    corpus: Corpus,
    output: str,
    report: Report,
    language_exponent: float = 1.0,
    executor: Executor = RAY,
) -> Vocabulary:
    """Return `base` with settings.extend words of the corpus added, or with all new words if the corpus has fewer.

    The words are counted only if `output` does not contain them from an earlier run.

    Raises ConfigError for a vocabulary that is not WordPiece, and DataError if the stored words are damaged.
    """
    if base.kind != "wordpiece":
        raise ConfigError(
            f"vocabulary.extend ({settings.extend}) is for WordPiece vocabularies, "
            f"but this vocabulary is {base.kind}: leave vocabulary.extend out"
        )
    about: dict[str, Any] = {
        "base": base.fingerprint,
        "extend": settings.extend,
        "training_characters": settings.training_characters,
    } | _of_languages(language_exponent)
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    folder = storage.join(output, "vocabularies", f"{corpus.fingerprint[:12]}-extended-{settings.extend}-{digest}")
    with locked_name(folder, wait=True):
        if not storage.exists(storage.join(folder, storage.MANIFEST)):
            made_from = {"corpus": corpus.fingerprint, "settings": about}
            _publish_new_words(base, settings, corpus, folder, made_from, report, language_exponent, executor)
    if problem := storage.damage(folder):
        raise DataError(f"vocabulary {folder} is damaged ({problem}); delete this folder to make it again")
    words = storage.read_json(storage.join(folder, NEW_WORDS))
    longer = extension.extend_vocabulary(base, words)
    shown = f": {', '.join(words[:SHOWN])}{', …' * (len(words) > SHOWN)}" if words else ""
    report(
        f"vocabulary: {len(words):,} words of the corpus added, "
        f"{longer.size - base.size:,} of them after the {base.size:,} existing entries{shown}"
    )
    return longer


def _publish_new_words(
    base: Vocabulary,
    settings: VocabularySettings,
    corpus: Corpus,
    folder: str,
    about: dict[str, Any],
    report: Report,
    language_exponent: float,
    executor: Executor,
) -> None:
    """Count the words of the corpus and publish the words to add to the vocabulary, most frequent first."""
    partial = f"{folder}.counts"
    windows = first_windows(corpus, settings.training_characters)
    splitting = extension.splitting_of(base)
    factors = _factors(corpus, language_exponent)
    counts = count_words(corpus, windows, splitting, partial, report, executor=executor, factors=factors)
    words = extension.new_words(counts.table, base, settings.extend)
    with scratch_folder("vocabulary") as temporary:
        (temporary / NEW_WORDS).write_text(json.dumps(words, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        storage.publish(temporary, folder, about)
    storage.delete_folder(partial)


def splitting_of(settings: VocabularySettings) -> Splitting:
    """Return how a vocabulary with these settings splits text."""
    return Splitting(
        kind=settings.kind,
        lowercase=settings.kind == "wordpiece" if settings.lowercase is None else settings.lowercase,
        strip_accents=settings.strip_accents,
        chinese_characters=settings.chinese_characters,
    )


def settings_of_training(settings: VocabularySettings, splitting: Splitting) -> dict[str, Any]:
    """Return all settings that a trained vocabulary depends on."""
    about = {
        "size": settings.size,
        "unused": settings.unused,
        "training_characters": settings.training_characters,
    } | asdict(splitting)
    if settings.characters != ALPHABET:  # the default is left out, so that folders of earlier versions are found
        about["characters"] = settings.characters
    # Earlier byte-level BPE vocabularies had BERT's special tokens. With this entry, their folders are not used.
    return about | ({"specials": SPECIALS_OF_BYTES} if _has_roberta_specials(settings) else {})


def _has_roberta_specials(settings: VocabularySettings) -> bool:
    """Return whether a trained vocabulary has RoBERTa's special tokens."""
    return settings.kind == "byte-bpe" or settings.special_tokens == "roberta"


def _train(
    settings: VocabularySettings,
    splitting: Splitting,
    corpus: Corpus,
    folder: str,
    about: dict[str, Any],
    report: Report,
    language_exponent: float,
    executor: Executor,
) -> None:
    """Count the words of the corpus, train the vocabulary and publish it. The manifest has `about` and the counts."""
    report(
        f"vocabulary: training {settings.size:,} "
        f"{'uncased' if splitting.lowercase else 'cased'} {settings.kind} entries"
    )
    partial = f"{folder}.counts"
    most = MOST_UNIGRAM_WORDS if settings.kind == "unigram" else MOST_WORDS
    windows = first_windows(corpus, settings.training_characters)
    factors = _factors(corpus, language_exponent)
    counts = count_words(
        corpus, windows, splitting, partial, report, executor=executor, most_words=most, factors=factors
    )
    report(
        f"vocabulary: learning from {counts.words:,} words, {counts.distinct:,} distinct, "
        f"{counts.dropped:,} of those dropped as too rare"
    )
    specials = SPECIALS_OF_BYTES if _has_roberta_specials(settings) else SPECIALS
    vocabulary = vocabulary_of_counts(
        counts.table,
        splitting,
        size=settings.most_entries,
        unused=settings.unused,
        specials=specials,
        most_characters=settings.characters,
    )
    figures = {
        "characters": counts.characters,
        "words": counts.words,
        "distinct_words": counts.distinct,
        "dropped_words": counts.dropped,
    }
    with scratch_folder("vocabulary") as temporary:
        save_vocabulary(vocabulary, temporary, maximum_length=512)
        storage.publish(temporary, folder, about | {"counts": figures | {"entries": vocabulary.size}})
    storage.delete_folder(partial)
    report(f"vocabulary: {vocabulary.size:,} entries in {folder}")
    if vocabulary.size < settings.most_entries:
        report(
            f"note: vocabulary.size ({settings.size}) is more than the words of this text give, "
            f"{vocabulary.size:,} entries: give more text, or --vocabulary.size {vocabulary.size}"
        )
    elif settings.kind == "byte-bpe":
        usual = sized_for(replace(settings, size="auto"), corpus.train_characters).most_entries
        if vocabulary.size > usual:
            words = corpus.train_characters / CHARACTERS_PER_WORD
            report(
                f"note: vocabulary.size ({settings.size}) is large for about {words:,.0f} words, which leave many "
                f"entries rare: --vocabulary.size auto gives {usual}"
            )


def first_windows(corpus: Corpus, characters: int | None) -> tuple[Window, ...]:
    """Return the first training windows with about `characters` characters in total; all windows for None.

    These windows are a random sample, because the corpus is shuffled.
    """
    if characters is None:
        return corpus.train
    taken = []
    for window in corpus.train:
        taken.append(window)
        characters -= window.characters
        if characters <= 0:
            break
    return tuple(taken)

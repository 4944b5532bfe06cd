"""Data of a run: find its corpus and vocabulary, or make them, and return the settings of its stream."""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa

from pipeline.config.data import PASSING, GivenPairs, NextSentence, Preparation, TitleParagraph
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import BUILTIN
from pipeline.corpus.given_pairs import require_fitting_pairs
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.corpus.prepare import Listing, finished_corpus, list_sources, prepare_listed
from pipeline.corpus.prepared import Corpus, is_prepared, load_corpus, read_window
from pipeline.corpus.stream import StreamSettings, count_rows_if_small, settings_for_phase, window_rows
from pipeline.corpus.vocabulary import extended_vocabulary, found_vocabulary, trained_vocabulary
from pipeline.errors import ConfigError, DataError, PipelineError, listed
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.reporting import Report, no_op
from pipeline.saved.run import read_run, recorded_steps, run_folder
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import own_titles
from pipeline.text.pairs import needed_documents
from pipeline.text.prompts import prompt_tokens, room_after_prompts
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.counted_steps import RowLengths, length_text, with_counted_steps, with_steps
from pipeline.train.initial import Initial

TITLE_WINDOWS = 64
"""Maximum windows to search for a title. Documents are in random order, so one window is usually enough."""
PARENT_WINDOWS = 8
"""Windows in which parents are counted. They hold about 500 documents if these are pieces of books, otherwise more."""
PLAIN = (".txt", ".text", ".md")
"""Endings of files whose bytes are about their characters."""


def find_corpus(config: Pretrain, report: Report) -> Corpus | Listing:
    """Return the prepared corpus that config.corpus names, else the list of the source files for a new corpus.

    Raises PipelineError if the vocabulary or corpus cannot be used. This function does not need Ray, so the user sees
    such an error before Ray starts; starting Ray takes seconds.
    """
    if not config.init:
        given_vocabulary(config.vocabulary)
    if _is_prepared_corpus(config):
        corpus = load_corpus(config.corpus[0])
        require_fitting_pairs(config.sampling, corpus.formats, corpus.folder)
        return corpus
    listing = list_sources(config.corpus, config.prepare, corpus_folder(config), report)
    require_fitting_pairs(config.sampling, listing.formats, f"corpus {listed(config.corpus or (BUILTIN,))}")
    finished_corpus(listing)
    return listing


def stream_settings(
    config: Pretrain, corpus_or_listing: Corpus | Listing, initial: Initial | None, report: Report
) -> StreamSettings:
    """Return the stream's settings. Prepare the corpus and train the vocabulary first if they do not exist.

    If there is an initial model, its vocabulary is used. Raises DataError if the corpus yields no examples, and
    ConfigError if a slot has more rows than the corpus.
    """
    # Load the vocabulary first: if it is refused, the user should not have to wait for the corpus.
    existing = initial.vocabulary if initial else given_vocabulary(config.vocabulary)
    corpus = prepared_corpus(config, corpus_or_listing, report)
    exponent = config.sampling.language_exponent
    vocabulary = existing or trained_vocabulary(config.vocabulary, corpus, config.output, report, exponent)
    if config.vocabulary.extend:
        vocabulary = extended_vocabulary(vocabulary, config.vocabulary, corpus, config.output, report, exponent)
    settings = _stream_of(config, corpus, vocabulary)
    if isinstance(config.sampling.pairs, TitleParagraph):
        _require_titles(corpus)
    if config.sampling.two_texts:
        prompts = prompt_tokens(config.sampling.prompts, CachedTokenizer(vocabulary))
        for phase in config.all_phases:
            room_after_prompts(phase.sampling.maximum_length, prompts)  # raises ConfigError
        _require_parents(config, corpus, report)
    _require_rows(config, settings)
    return settings


def _stream_of(config: Pretrain, corpus: Corpus, vocabulary: Vocabulary) -> StreamSettings:
    """Return the settings of the stream of a corpus, with a vocabulary."""
    return StreamSettings(
        corpus=corpus,
        vocabulary=vocabulary,
        sampling=config.sampling,
        batch=config.batch,
        seed=config.seed,
        table_chunks=config.placement.table_chunks,
    )


def _require_titles(corpus: Corpus) -> None:
    """Raise DataError if none of the first documents of the corpus has a title."""
    windows = corpus.train[:TITLE_WINDOWS]
    count = sum(window.documents for window in windows)
    if not any(any(own_titles(read_window(corpus, window))) for window in windows):
        raise DataError(
            f"sampling.pairs (TitleParagraph) needs documents with titles, but the first {count:,} documents of "
            f"{corpus.folder} have none: choose "
            "sampling.pairs:adjacent-paragraphs or sampling.pairs:two-crops"
        )


def _require_parents(config: Pretrain, corpus: Corpus, report: Report) -> None:
    """Raise DataError if the first documents of the corpus all have the same parent: no rows would be compared.

    If in most pairs of these documents both have the same parent, report a note.
    """
    parents = pa.chunked_array(
        [chunk for window in corpus.train[:PARENT_WINDOWS] for chunk in read_window(corpus, window)["parent"].chunks]
    )
    shares = parents.value_counts().field("counts").to_numpy() / len(parents)
    if len(shares) == 1 and isinstance(config.sampling.pairs, GivenPairs):
        raise DataError(
            f"objective contrastive compares different pairs, but the first {len(parents):,} pairs of {corpus.folder} "
            "have one second text: add other pairs"
        )
    if len(shares) == 1:
        raise DataError(
            f"objective contrastive compares texts of different books, articles or files, but the first "
            f"{len(parents):,} documents of {corpus.folder} are pieces of one ({parents[0]}): add other text, "
            "or give one file per document"
        )
    if (same := (shares**2).sum()) > 0.5:
        report(
            f"note: {same:.0%} of the pairs of rows (estimated) have text of the same book, article or file and are "
            "not compared: the corpus has few other texts to choose from"
        )


def _require_rows(config: Pretrain, settings: StreamSettings) -> None:
    """Raise DataError if the corpus has no rows, and ConfigError if it has too few rows for one slot of a phase."""
    for phase in config.slotted_phases:
        rows = count_rows_if_small(settings_for_phase(settings, phase), phase.batch.slot_rows)
        if rows == 0:
            needed = needed_documents(config.sampling)
            raise DataError(f"the corpus ({listed(config.corpus)}) yields no examples: it needs {needed}")
        if rows is not None and rows < phase.batch.slot_rows:
            raise ConfigError(
                f"{phase.names.rows_per_slot} ({phase.batch.slot_rows}) is more than the rows of the whole corpus "
                f"({rows}): use smaller slots or more text"
            )


def with_known_steps(config: Pretrain, stream: StreamSettings, report: Report) -> Pretrain:
    """Return the settings with the steps of config.tokens or config.epochs: those of a run that goes on, or counted.

    Raises ConfigError for less than a step, and if the settings do not allow so few steps.
    """
    if not config.steps_from:
        return config
    if (steps := recorded_steps(config, read_run(run_folder(config)))) is not None:
        return with_steps(config, steps)
    config = counted_on(config, stream, report)
    report(f"{length_text(config)}: {config.steps:,} steps")
    return config


def counted_on(config: Pretrain, stream: StreamSettings, report: Report) -> Pretrain:
    """Return the settings with the steps that tokens or epochs are on a stream; raises as `with_known_steps`."""
    report(f"counting the rows of the text for {length_text(config)}")
    windows = len(stream.corpus.train)
    return with_counted_steps(config, lambda each: row_lengths(replace(stream, sampling=each)), windows)


def row_lengths(stream: StreamSettings) -> RowLengths:
    """Return the lengths of a stream's rows."""
    tokenizer = CachedTokenizer(stream.vocabulary, stream.table_chunks)

    def of_window(number: int) -> np.ndarray:
        train = stream.corpus.train
        rows = window_rows(stream, tokenizer, train, *divmod(number, len(train)))
        return rows["ids"].combine_chunks().value_lengths().to_numpy()

    return RowLengths(of_window, stream.corpus.folder)


def prepared_corpus(config: Pretrain, corpus_or_listing: Corpus | Listing, report: Report) -> Corpus:
    """Return the corpus that `find_corpus` returned; if it returned a list of sources, prepare them first."""
    corpus = corpus_or_listing if isinstance(corpus_or_listing, Corpus) else prepare_listed(corpus_or_listing, report)
    if isinstance(config.sampling.pairs, NextSentence) and corpus.counts["documents"] == 1:
        report(
            "note: the corpus is one document, so no segment B can come from another document (NotNext) "
            "and nothing is held out; "
            "give one file per document, or ::format=sentences with a blank line between documents"
        )
    return corpus


def known_characters(config: Pretrain) -> int | None:
    """Return the characters of the corpus if it is prepared or consists of local text files; else None."""
    found = _known_corpus(config)
    if found is None:
        return None
    if isinstance(found, Corpus):
        return found.train_characters
    files = [file for of_source in found.sources.values() for file in of_source]
    unsized = any(file.bytes < 0 or not file.name.lower().endswith(PLAIN) for file in files)
    return None if unsized or BUILTIN in {source.location for source in found.sources} else sum(f.bytes for f in files)


def _known_corpus(config: Pretrain) -> Corpus | Listing | None:
    """Return what `find_corpus` returns, or the corpus prepared from it; None for URLs and for text that is missing."""
    if any(is_url(source) for source in config.corpus):
        return None
    try:
        found = find_corpus(config, no_op)
        return found if isinstance(found, Corpus) else finished_corpus(found) or found
    except PipelineError:  # a plan may be made before the text is there
        return None


def known_stream(config: Pretrain) -> StreamSettings | None:
    """Return the settings of a run's stream if its corpus and its vocabulary are there already; else None."""
    corpus, exponent = _known_corpus(config), config.sampling.language_exponent
    if config.init or not isinstance(corpus, Corpus):
        return None
    vocabulary = given_vocabulary(config.vocabulary)
    vocabulary = vocabulary or found_vocabulary(config.vocabulary, corpus, config.output, exponent)
    return None if vocabulary is None else _stream_of(config, corpus, vocabulary)


def _is_prepared_corpus(config: Pretrain) -> bool:
    """Return whether config.corpus names a prepared corpus.

    Raises ConfigError if prepare settings are given as well, because they would have no effect.
    """
    if len(config.corpus) != 1 or not is_prepared(config.corpus[0]):
        return False
    if config.prepare != Preparation():
        raise ConfigError(
            f"corpus {config.corpus[0]} is prepared already: leave out the prepare settings, "
            "or prepare it again in another folder"
        )
    return True


def corpus_folder(config: Pretrain) -> str:
    """Return the folder for the corpus that is prepared from the configured sources and settings."""
    sources = config.corpus or (BUILTIN,)
    settings = {name: value for name, value in asdict(config.prepare).items() if f"prepare.{name}" not in PASSING}
    digest = hashlib.sha256(json.dumps([sources, settings]).encode()).hexdigest()[:12]
    return storage.join(config.output, "corpora", digest)

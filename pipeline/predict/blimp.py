"""Score a pretrained model on BLiMP, and compare it with published scores and baselines counted in its training text.

BLiMP (Warstadt et al. 2020) has pairs of a good and a bad sentence, in 67 paradigms. A model or baseline is right on a
pair if it gives the good sentence the higher score. Other folders of such pairs are scored the same way.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from pipeline.config.measurements import BlimpScore
from pipeline.corpus.prepared import Corpus, load_corpus, read_window
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.evaluation.minimal_pairs.ngrams import NGRAM, UNIGRAM, ngram_scores
from pipeline.evaluation.minimal_pairs.pairs import encode_pairs, score_pairs
from pipeline.evaluation.minimal_pairs.paradigms import read_blimp, select
from pipeline.evaluation.minimal_pairs.published import beside_published
from pipeline.evaluation.minimal_pairs.results import mean_accuracies, score_paradigms, table
from pipeline.evaluation.minimal_pairs.scoring import PLL, WORD_L2R
from pipeline.export.card import corpus_of
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.reporting import Report, duration
from pipeline.saved import run
from pipeline.saved.checkpoints import TASK, find_checkpoint
from pipeline.saved.model import errors_of, open_saved
from pipeline.saved.pretrained import Pretrained, load_published
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import window_sentences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary, load_vocabulary_as_published
from pipeline.train.hardware import autocast_of, chosen_precision, required_device

METRICS = {PLL: "pll", WORD_L2R: "pll_word_l2r", UNIGRAM: "unigram", NGRAM: "5gram"}
"""Scorer -> its name in the result of `score_blimp`."""


def score_blimp(config: BlimpScore, report: Report) -> dict[str, float]:
    """Report accuracy by paradigm and phenomenon; return scorer -> mean accuracy over paradigms, from 0 to 1.

    Raises PipelineError if config.blimp is not a folder of minimal pairs, or if config.checkpoint is not a model that
    predicts masked tokens.
    """
    device = required_device(config.placement)
    precision = chosen_precision(config.placement, device)
    autocast = autocast_of(precision, device)
    folder, vocabulary, corpus = _find_model(config, report)
    trained = _load_masked(folder, vocabulary)
    given = read_blimp(config.blimp, report)
    paradigms = select(given, config.pairs)
    pairs = encode_pairs(paradigms, vocabulary, trained.model.maximum_positions, "score another checkpoint")
    report(
        f"blimp: {len(paradigms)} paradigms, {len(pairs.good):,} pairs, {len(pairs.texts):,} sentences, "
        f"model {folder}, computed in {precision}"
    )
    start = time.perf_counter()
    nats = score_pairs(trained.module.to(device), vocabulary, pairs, device=device, autocast=autocast)
    report(f"blimp: scored in {duration(time.perf_counter() - start)}")
    if isinstance(corpus, Corpus):
        try:
            nats |= _baselines(pairs.texts, vocabulary, corpus, report)
        except DataError as error:  # the text may be incomplete, and the model's scores took long
            corpus = error
    if not isinstance(corpus, Corpus):
        why = corpus or "name the prepared corpus of the training text with --corpus"
        report(f"no unigram and 5-gram baselines: {why}")
    scores = score_paradigms(paradigms, pairs.texts, nats)
    for line in table(paradigms, scores):
        report(line)
    report("±: 95% interval over pairs, for these paradigms and this checkpoint; ties count one half")
    means = mean_accuracies(scores)
    for line in beside_published(given, config.pairs, means[PLL]):
        report(line)
    return {METRICS[scorer]: mean for scorer, mean in means.items()}


def _load_masked(folder: str, vocabulary: Vocabulary) -> Pretrained:
    """Load a model with its head for masked tokens. Raises CheckpointError if it has none or cannot be used."""
    with errors_of("checkpoint"):
        saved = open_saved(folder, verify=False)
    if saved.has_manifest:
        return load_trained(folder, fills_blanks=True)
    with errors_of("checkpoint"):
        trained, lacks = load_published(saved, vocabulary)
    if any(name.startswith("masked_token_head") for name in lacks):
        raise CheckpointError(f"checkpoint {folder} has no head for masked tokens: give a model that has one")
    return trained


def _find_model(config: BlimpScore, report: Report) -> tuple[str, Vocabulary, Corpus | DataError | None]:
    """Return the folder of the weights, the vocabulary, and the corpus.

    The corpus is config.corpus. If config.corpus is not set, it is the corpus that the run was trained on, or why that
    cannot be read, or None if the checkpoint is not a run. Raises CheckpointError for a fine-tuned model,
    DataError for a config.corpus that is none, and ConfigError for a vocabulary without an entry for masks.
    """
    checkpoint = config.checkpoint
    recorded = run.read_run(checkpoint)
    if config.corpus is not None:
        corpus: Corpus | DataError | None = load_corpus(config.corpus)
    else:
        corpus = corpus_of(recorded) if recorded is not None else None
    if recorded is not None:
        folder = find_checkpoint(checkpoint, None, report)
        vocabulary = load_vocabulary(storage.join(checkpoint, run.VOCABULARY), None)
        return folder, vocabulary, corpus
    if storage.exists(storage.join(checkpoint, TASK)):
        raise CheckpointError(
            f"checkpoint {checkpoint} has no head for masked tokens: give a pretraining run, or its export"
        )
    vocabulary = load_vocabulary_as_published(checkpoint)
    if vocabulary.specials[4] not in vocabulary.ids:
        raise ConfigError(
            f"the vocabulary of checkpoint {checkpoint} has no entry for masks ({vocabulary.specials[4]})"
        )
    return checkpoint, vocabulary, corpus


def _baselines(texts: Sequence[str], vocabulary: Vocabulary, corpus: Corpus, report: Report) -> dict[str, np.ndarray]:
    """Return baseline -> score of each text in nats, float64 (texts,); report how many texts the corpus contains."""
    tokenizer = CachedTokenizer(vocabulary)
    wanted, contained, tokens = set(texts), set[str](), 0

    def encoded_windows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        nonlocal tokens
        for window in corpus.train:
            sentences, _ = window_sentences(read_window(corpus, window), keep_spaces=vocabulary.keeps_spaces)
            contained.update(wanted.intersection(sentence.strip() for sentence in sentences))
            ids, offsets = tokenizer.encode(sentences)
            tokens += len(ids)
            yield ids, offsets

    ids, offsets = tokenizer.encode(list(texts))
    scores = ngram_scores(ids, offsets, vocabulary.size, encoded_windows())
    report(
        f"baselines from {tokens:,} tokens of {corpus.folder}, which contains {len(contained):,} of "
        f"the {len(texts):,} sentences"
    )
    return scores

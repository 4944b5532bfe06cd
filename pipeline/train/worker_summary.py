"""Measure a run outside of the training loop, in the workers: held-out words, baselines, and the run's summary."""

from dataclasses import asdict
from typing import Any

from pipeline.config.phases import Phase
from pipeline.corpus.stream import StreamSettings
from pipeline.evaluation.blanks import fill_in_the_blanks
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.evaluation.heldout import heldout_batches, heldout_languages, heldout_words_of, unigram_counts
from pipeline.evaluation.heldout_words import word_metrics
from pipeline.evaluation.minimal_pairs.figures import UNIGRAM_ACCURACY
from pipeline.evaluation.token_frequency import as_records, heldout_loss_by_frequency
from pipeline.objectives.table import Pretraining
from pipeline.saved import checkpoints
from pipeline.saved.run import EVALUATED_ROWS
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.checkpoint import State
from pipeline.train.job import Job
from pipeline.train.outcome import outcome
from pipeline.train.work import Work

BY_FREQUENCY = "loss_by_frequency"
"""Entry of summary.json: held-out masked losses by token frequency."""


def measure_words(job: Job, work: Work, module: Pretraining, tokenizer: CachedTokenizer, step: int) -> dict[str, float]:
    """Log and return the held-out loss per word and per byte; every rank must call this function.

    Empty if the module does not predict words.
    """
    if not module.fills_blanks:
        return {}
    held = heldout_words_of(job.config, job.stream.corpus, tokenizer, work.rank, work.world)
    metrics = word_metrics(module, held, world=work.world, device=work.device, autocast=work.autocast)
    work.log(step, metrics)
    return metrics


def measure_languages(
    job: Job, work: Work, module: Pretraining, phase: Phase, tokenizer: CachedTokenizer, step: int
) -> dict[str, float]:
    """Log the held-out metrics of each language, and return {language: held-out loss}.

    Each language with enough text is evaluated on about evaluation.rows rows. The result is empty if all held-out text
    is in one language. The result is also empty for a loss that compares the rows of a step: the losses of two
    languages would not be comparable. Every rank must call this function.
    """
    config, corpus = job.config, job.stream.corpus
    languages = [] if module.two_passes else heldout_languages(corpus, config.evaluation.rows)
    losses = {}
    for language in languages if len(languages) > 1 else []:
        batches = heldout_batches(
            corpus,
            tokenizer,
            phase.sampling,
            rows=config.evaluation.rows,
            rows_per_batch=phase.batch.slot_rows,
            rank=work.rank,
            world=work.world,
            language=language,
        )
        metrics = evaluate(module, batches, world=work.world, device=work.device, autocast=work.autocast)
        if module.selecting in metrics:  # a language with little text may have no rows
            losses[language] = metrics[module.selecting]
        work.log(step, {_language_metric(name, language): value for name, value in metrics.items()})
    return losses


def _language_metric(name: str, language: str) -> str:
    """Return the name of a held-out metric for one language: heldout/NAME becomes heldout_language/NAME_LANGUAGE."""
    return f"{name.replace('heldout/', 'heldout_language/')}_{language}"


def summarise(
    job: Job, work: Work, module: Pretraining, state: State, phase: Phase, tokenizer: CachedTokenizer
) -> dict[str, Any]:
    """Return the run's summary: held-out metrics, baselines, throughput, and sentences with blanks to fill in.

    Every rank must call this function, because held-out rows are shared among ranks. The entry "blanks" (the sentences)
    is set only on rank 0, and only if the module predicts words; otherwise it is None.
    """
    config, stream = job.config, job.stream
    by_language: dict[str, float] = {}
    after = evaluate(module, work.heldout, world=work.world, device=work.device, autocast=work.autocast)
    if after:
        after |= measure_words(job, work, module, tokenizer, state.step)
        by_language = measure_languages(job, work, module, phase, tokenizer, state.step)
        work.flush()
    baseline_values = heldout_baselines(stream, work, module, tokenizer)
    by_frequency = measure_by_frequency(stream, work, module, tokenizer)
    blanks = None
    if work.rank == 0 and module.fills_blanks:
        blanks = fill_in_the_blanks(
            module,
            stream.corpus,
            tokenizer,
            stream.vocabulary,
            maximum_length=phase.sampling.maximum_length,
            device=work.device,
        )
    return outcome(work, state, phase) | {
        EVALUATED_ROWS: config.evaluation.rows,
        "heldout_after": after,
        "heldout_by_language": by_language,
        "baselines": baseline_values,
        BY_FREQUENCY: by_frequency,
        "blanks": blanks and asdict(blanks),
        "checkpoint": checkpoints.saved(job.folder)[0].get(state.step, checkpoints.folder_of(job.folder, state.step)),
    }


def heldout_baselines(
    stream: StreamSettings, work: Work, module: Pretraining, tokenizer: CachedTokenizer
) -> dict[str, float]:
    """Return the objective's baselines on the phase's held-out rows, and the unigram accuracy on BLiMP.

    The baselines are left out if the corpus has no held-out rows; the accuracy is left out if evaluation.blimp is not
    set. Every rank must call this function.
    """
    pairs = {UNIGRAM_ACCURACY: work.blimp.unigram_accuracy} if work.blimp else {}
    if not stream.corpus.heldout:
        return pairs
    counts = unigram_counts(stream.corpus, tokenizer, len(stream.vocabulary.tokens))
    return baselines(module, work.heldout, counts, work.world) | pairs


def measure_by_frequency(
    stream: StreamSettings, work: Work, module: Pretraining, tokenizer: CachedTokenizer
) -> list[dict[str, Any]]:
    """Return the held-out masked losses by token frequency, one dictionary per group.

    Empty if the corpus has no held-out rows, or the module does not predict words. Every rank must call this function.
    """
    if not stream.corpus.heldout or not module.fills_blanks:
        return []
    counts = unigram_counts(stream.corpus, tokenizer, len(stream.vocabulary.tokens))
    measured = heldout_loss_by_frequency(
        module, work.heldout, counts, world=work.world, device=work.device, autocast=work.autocast
    )
    return as_records(measured)

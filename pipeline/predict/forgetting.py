"""Measure forgetting: the held-out masked-token loss of an encoder before and after fine-tuning.

Fine-tuning drops the masked-token head, so the loss is computed with the head of the pretraining run. This head
multiplies by the encoder's word embeddings. For the loss after fine-tuning, these are the fine-tuned embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.batch import Batch
from pipeline.command_line.columns import aligned
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.needs import GENERATOR
from pipeline.config.predict import Score
from pipeline.config.training import Evaluation
from pipeline.corpus.prepared import load_corpus
from pipeline.errors import CheckpointError, DataError
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.evaluation.heldout import heldout_batches, unigram_counts
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.objectives.masked import HELDOUT_ACCURACY, HELDOUT_LOSS, UNIGRAM_ACCURACY, UNIGRAM_LOSS
from pipeline.objectives.pretraining import Pretraining
from pipeline.reporting import Report
from pipeline.saved import run
from pipeline.saved.checkpoints import TASK, find_checkpoint
from pipeline.saved.run import recorded_run
from pipeline.saved.run_vocabulary import vocabulary_of_run
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.hardware import autocast_of, chosen_precision, required_device
from pipeline.train.initial import FREE

BEFORE, AFTER = "heldout_loss_before", "heldout_loss_after"
"""Names in the result of `score_forgetting`."""


@dataclass(frozen=True, kw_only=True)
class _Pretrained:
    """A pretraining run: its newest model, its settings, its corpus, and the number of held-out rows it evaluated."""

    folder: str
    module: Pretraining
    model: Model
    vocabulary: Vocabulary
    settings: Pretrain
    corpus_folder: str
    corpus_fingerprint: str
    rows: int
    """Maximum held-out rows per evaluation."""


def score_forgetting(config: Score, report: Report) -> dict[str, float]:
    """Report the held-out masked-token loss before and after fine-tuning; return both, in nats.

    Rows and masks are the same as in the run's own evaluations. Raises PipelineError if config.heldout is not a run
    with a masked-token head, if config.checkpoint is not a fine-tuned model of the same sizes and vocabulary, or if the
    corpus has no held-out rows.
    """
    assert config.checkpoint is not None and config.heldout is not None
    device = required_device(config.placement)
    precision = chosen_precision(config.placement, device)
    pretrained = _load_run(config.heldout, report)
    tuned = open_tuned(config.checkpoint)
    _require_same_encoder(config.checkpoint, tuned, pretrained)
    corpus = load_corpus(config.corpus or pretrained.corpus_folder)
    if config.corpus is None and corpus.fingerprint != pretrained.corpus_fingerprint:
        raise DataError(
            f"corpus {corpus.folder} has changed since the run {config.heldout} was trained: name the corpus to "
            "measure on with --corpus"
        )
    tokenizer = CachedTokenizer(pretrained.vocabulary)
    phase = pretrained.settings.all_phases[-1]
    batches = heldout_batches(
        corpus,
        tokenizer,
        phase.sampling,
        rows=pretrained.rows,
        rows_per_batch=phase.batch.slot_rows,
        rank=0,
        world=1,
    )
    if not batches:
        raise DataError(f"corpus {corpus.folder} has no held-out rows: prepare it with prepare.heldout_share above 0")
    module, autocast = pretrained.module.to(device), autocast_of(precision, device)
    module.next_sentence_head = None  # the tuned encoder may have no pooler, and only masked tokens are scored
    before = evaluate(module, batches, world=1, device=device, autocast=autocast)
    guesses = baselines(module, batches, unigram_counts(corpus, tokenizer, pretrained.vocabulary.size), 1)
    module.encoder = tuned.module.encoder.to(device)
    module.encoder.choose_global_tokens("none")  # as in pretraining
    after = evaluate(module, batches, world=1, device=device, autocast=autocast)
    report(_rows_line(batches, corpus.folder, precision))
    for line in _lines(before, after, guesses, tuned):
        report(line)
    return {BEFORE: before[HELDOUT_LOSS], AFTER: after[HELDOUT_LOSS]}


def _load_run(folder: str, report: Report) -> _Pretrained:
    """Load a pretraining run's newest checkpoint and its settings.

    Raises ConfigError if the folder is not a run. Raises CheckpointError if it is a fine-tuned model, or a run whose
    masked-token head belongs to a generator.
    """
    if storage.exists(storage.join(folder, TASK)):
        raise CheckpointError(f"heldout {folder} is a model without a head for masked tokens, not a pretraining run")
    recorded = recorded_run(folder)
    trained = load_trained(find_checkpoint(folder, None, report), fills_blanks=True)
    settings = run.settings_of(recorded)
    if GENERATOR in settings.objective.needs:
        raise CheckpointError(
            f"heldout {folder} predicts masked tokens with its generator, and fine-tuning trains its discriminator: "
            "give a run of objective:masked"
        )
    summary: dict[str, Any] = run.read_summary(folder) or {}
    return _Pretrained(
        folder=folder,
        module=trained.module,
        model=trained.model,
        vocabulary=vocabulary_of_run(folder),
        settings=settings,
        corpus_folder=recorded["corpus"],
        corpus_fingerprint=recorded["identity"]["corpus.fingerprint"],
        rows=summary.get(run.EVALUATED_ROWS, Evaluation().rows),
    )


def _require_same_encoder(checkpoint: str, tuned: TunedModel, pretrained: _Pretrained) -> None:
    """Raise CheckpointError if the fine-tuned model differs from the run's model in size or vocabulary."""
    wanted, model = (replace(settings, **dict.fromkeys(FREE, 0.5)) for settings in (pretrained.model, tuned.model))
    differing = [name for name in vars(wanted) if getattr(wanted, name) != getattr(model, name)]
    if differing:
        # Report the width first, because other sizes such as feed_forward depend on it.
        name = "width" if "width" in differing else differing[0]
        raise CheckpointError(
            f"checkpoint {checkpoint} has {name} {getattr(model, name)} and heldout {pretrained.folder} has "
            f"{getattr(wanted, name)}: give the run whose model was fine-tuned"
        )
    if tuned.vocabulary.fingerprint != pretrained.vocabulary.fingerprint:
        raise CheckpointError(
            f"checkpoint {checkpoint} and heldout {pretrained.folder} have different vocabularies, of "
            f"{tuned.vocabulary.size:,} and {pretrained.vocabulary.size:,} entries: give the run whose model was "
            "fine-tuned"
        )


def _rows_line(batches: Sequence[Batch], corpus: str, precision: str) -> str:
    rows, masked = sum(batch.sequences for batch in batches), sum(batch.masked for batch in batches)
    return f"{rows:,} held-out rows of {corpus}, {masked:,} masked tokens, computed in {precision}"


def _lines(
    before: dict[str, float], after: dict[str, float], guesses: dict[str, float], tuned: TunedModel
) -> list[str]:
    """Return the table of losses and accuracies, and the scores of the fine-tuned model on its own task."""
    rows = [
        ("before fine-tuning", before[HELDOUT_LOSS], before[HELDOUT_ACCURACY]),
        ("after fine-tuning", after[HELDOUT_LOSS], after[HELDOUT_ACCURACY]),
        ("unigram baseline", guesses[UNIGRAM_LOSS], guesses[UNIGRAM_ACCURACY]),
    ]
    lines = aligned(
        ("masked tokens", "loss, nats", "accuracy"),
        [(name, f"{loss:.3f}", f"{accuracy:.1%}") for name, loss, accuracy in rows],
    )
    lines.append(f"forgotten: {after[HELDOUT_LOSS] - before[HELDOUT_LOSS]:+.3f} nats per masked token")
    scores = tuned.about.lineage.get("scores", {}).get("dev", {})
    shown = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
    return lines + [f"{tuned.about.task.name} on dev: {shown}"] * bool(scores)

"""Settings of the steps that adapt an encoder: each is a job of its own, in a folder below the output.

OUTPUT/
    adapt.json           see record.py
    corpus/              the prepared text, unless the text is a prepared corpus already
    training/            the prepared text without what is held out, if it is small (see heldout.py)
    runs/masked/         training on masked words
    runs/contrastive/    contrastive training; its folder export has the adapted encoder
    vectors/before/      vectors of the text, computed by the untouched encoder
    vectors/after/       vectors of the text, computed by the adapted encoder
    heldout.json         what the comparison printed (see comparison.py)
"""

import glob
from dataclasses import dataclass, replace

from pipeline.adapt.pairs import Chosen, Pairs, choose_pairs, rows_per_epoch
from pipeline.adapt.start import AdaptStart
from pipeline.config.adapt import LEAST_STEPS, MOST_STEPS, USUAL_LENGTH, Adapt
from pipeline.config.checks import require
from pipeline.config.data import FullSentences, Sampling, TwoCrops, VocabularySettings
from pipeline.config.embed import Embed, Search
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive, Masked
from pipeline.config.placement import EmbedPlacement
from pipeline.config.training import Checkpoints
from pipeline.corpus.prepared import Corpus, is_prepared
from pipeline.files import storage
from pipeline.presets.table import PRESETS
from pipeline.saved.run import run_folder

MASKED, CONTRASTIVE = "masked", "contrastive"
"""Names of the runs."""
UNTOUCHED, ADAPTED = "untouched", "adapted"
"""Names of the encoders in tables."""
FOUND = 3
"""Texts that are shown per query."""
BASE_WIDTH = 768
"""Width of bert-base. A narrower encoder with a head for masked words gets the rate of the preset continue-small, any
other the rate of continue.
"""
CHECKPOINTS_PER_RUN = 10
LEAST_COMPARED = 1
"""Minimum rows of its step that a row must be compared with. Rows of one document are not compared."""
ONE_DOCUMENT = "texts are compared with those of other documents, and all rows of a step are of one document"


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """Settings of the runs, in their order; each starts from the model of the one before."""

    runs: tuple[Pretrain, ...]
    notes: tuple[str, ...]
    """Lines that say what was chosen, and why."""

    @property
    def steps(self) -> dict[str, int]:
        """Steps of both runs, by the names of the settings; 0 for a run that is left out."""
        steps = {str(run.name): run.steps for run in self.runs}
        return {f"{name}_steps": steps.get(name, 0) for name in (MASKED, CONTRASTIVE)}

    @property
    def export(self) -> str:
        """Folder of the adapted encoder."""
        return _export_of(self.runs[-1])


def corpus_folder(config: Adapt) -> str:
    """Return the folder of the prepared corpus, which may be the given one."""
    given = config.corpus[0]
    return given if len(config.corpus) == 1 and is_prepared(given) else storage.join(config.output, "corpus")


def length_of(config: Adapt, start: AdaptStart) -> int:
    """Return the maximum number of tokens per training sequence. Raises ConfigError if the encoder reads fewer."""
    length = config.maximum_length
    require(
        length is None or length <= start.reads,
        f"maximum_length ({length}) must be at most {start.reads}, the tokens of a text that init ({config.init}) "
        "reads for a vector, and will read when it is adapted",
    )
    return length or min(USUAL_LENGTH, start.reads)


def pairs_for(config: Adapt, start: AdaptStart, corpus: Corpus) -> Chosen:
    """Return the pairs of texts for a prepared corpus, and the reason."""
    return choose_pairs(corpus, start.vocabulary, length_of(config, start), config.batch.rows_per_step)


def choose_trainings(config: Adapt, start: AdaptStart, corpus: Corpus, chosen: Chosen) -> Trainings:
    """Return the settings of both runs on a prepared corpus, without those of 0 steps; `chosen` are the pairs.

    Raises ConfigError if no run is left, or if steps are asked for that cannot train.
    """
    length, vocabulary = length_of(config, start), start.vocabulary
    masked = contrastive = 0
    notes = []
    if _trains_on_masks(config, start):
        epoch = rows_per_epoch(corpus, vocabulary, _sampling(length)) / config.batch.rows_per_step
        masked = steps_of(config.masked_steps, epoch)
        notes.append(f"{MASKED}: {_steps_text(masked, epoch)}")
    elif config.masked_steps is None:
        notes.append(f"{MASKED}: left out, because the encoder has no head for masked words")
    if config.contrastive_steps is None and chosen.compared < LEAST_COMPARED:
        notes.append(f"{CONTRASTIVE}: left out, because {ONE_DOCUMENT}: give more documents")
    elif config.contrastive_steps != 0:
        require(
            chosen.compared >= LEAST_COMPARED,
            f"contrastive_steps ({config.contrastive_steps}) cannot train, because {ONE_DOCUMENT}: give more "
            "documents, or leave contrastive_steps out",
        )
        epoch = rows_per_epoch(corpus, vocabulary, _sampling(length, chosen.pairs)) / config.batch.rows_per_step
        contrastive = steps_of(config.contrastive_steps, epoch)
        notes.append(
            f"{CONTRASTIVE}: {_steps_text(contrastive, epoch)}, with {chosen}; a text is compared with those of "
            f"{chosen.compared:.0f} other rows of its step, of other documents"
        )
        if start.pooling != start.own_pooling:
            notes.append(
                f"{CONTRASTIVE}: {start.pooling} pooling, instead of the encoder's {start.own_pooling} pooling"
            )
    runs = _runs(config, start, corpus.folder, (masked, contrastive), chosen.pairs)
    return Trainings(runs=runs, notes=tuple(notes))


def most_trainings(config: Adapt, start: AdaptStart) -> Trainings:
    """Return the settings of both runs before the corpus is prepared: with the most steps, and two crops as pairs."""
    most = [MOST_STEPS if asked is None else asked for asked in (config.masked_steps, config.contrastive_steps)]
    masked = most[0] if _trains_on_masks(config, start) else 0
    return Trainings(runs=_runs(config, start, corpus_folder(config), (masked, most[1]), TwoCrops()), notes=())


def _trains_on_masks(config: Adapt, start: AdaptStart) -> bool:
    return start.fills_blanks if config.masked_steps is None else config.masked_steps > 0


def steps_of(asked: int | None, steps_of_epoch: float) -> int:
    """Return the steps of a run: those that are asked for, else an epoch within LEAST_STEPS and MOST_STEPS."""
    return min(MOST_STEPS, max(LEAST_STEPS, round(steps_of_epoch))) if asked is None else asked


def _steps_text(steps: int, epoch: float) -> str:
    return f"{steps:,} steps ({steps / epoch:.1f} epochs)" if epoch else f"{steps:,} steps"


def _sampling(length: int, pairs: Pairs | FullSentences = FullSentences()) -> Sampling:  # noqa: B008  (it is frozen)
    """Return the sampling of masked words, or of pairs of texts."""
    return Sampling(maximum_length=length, pairs=pairs)


def _exported(sampling: Sampling, start: AdaptStart) -> Sampling:
    """Return the sampling; the export then reads as many tokens of a text as the encoder before."""
    return replace(sampling, exported_length=start.reads)


def _with_prompts(sampling: Sampling, start: AdaptStart) -> Sampling:
    """Return the sampling with the prompts of the encoder, which the export of its first training does not have."""
    query, document = start.prompts
    return replace(sampling, query_prompt=query, document_prompt=document)


def _runs(config: Adapt, start: AdaptStart, folder: str, steps: tuple[int, int], pairs: Pairs) -> tuple[Pretrain, ...]:
    """Return the settings of the runs of these numbers of steps; a run of 0 steps is left out.

    `folder` is that of the corpus. Raises ConfigError if no run is left.
    """
    runs: list[Pretrain] = []
    masked, contrastive = steps
    if masked:
        runs.append(_masked_run(config, start, folder, masked))
    if contrastive:
        run = replace(
            _masked_run(config, start, folder, contrastive),
            name=CONTRASTIVE,
            init=_export_of(runs[0]) if runs else start.location,
            sampling=_with_prompts(_exported(_sampling(length_of(config, start), pairs), start), start),
            objective=Contrastive(pooling=start.pooling),
        )
        runs.append(run)
    require(bool(runs), f"nothing is left to train on {folder}: {_why_nothing(config, start)}")
    return tuple(runs)


def _why_nothing(config: Adapt, start: AdaptStart) -> str:
    """Return why both trainings are left out, and what would work."""
    if config.contrastive_steps == 0:
        return (
            f"contrastive_steps is 0, and init ({config.init}) has no head for masked words: leave contrastive_steps "
            "out, or set masked_steps"
        )
    head = "masked_steps is 0" if start.fills_blanks else f"init ({config.init}) has no head for masked words"
    return f"{ONE_DOCUMENT}, and {head}: give more documents, or set masked_steps"


def _masked_run(config: Adapt, start: AdaptStart, folder: str, steps: int) -> Pretrain:
    """Return the settings of training on masked words of the corpus in a folder."""
    small = start.fills_blanks and start.model.width < BASE_WIDTH
    preset = PRESETS["continue-small" if small else "continue"]
    return Pretrain(
        corpus=(folder,),
        init=start.location,
        name=MASKED,
        output=config.output,
        seed=config.seed,
        steps=steps,
        workers=config.workers,
        vocabulary=VocabularySettings(lowercase=start.vocabulary.lowercase),
        sampling=_exported(_sampling(length_of(config, start)), start),
        batch=config.batch,
        checkpoint=Checkpoints(every=max(1, steps // CHECKPOINTS_PER_RUN), keep=1),
        placement=config.placement,
        objective=Masked(),
        optimizer=replace(preset.optimizer, learning_rate=config.learning_rate or preset.optimizer.learning_rate),
        schedule=preset.schedule,
    )


def _export_of(run: Pretrain) -> str:
    return storage.join(run_folder(run), "export")


def embeddings(config: Adapt, start: AdaptStart, export: str) -> dict[str, Embed]:
    """Return the settings of the vectors of both encoders; held-out documents are embedded too."""
    corpus = glob.escape(corpus_folder(config))
    documents = storage.join(corpus, "[th]*", "*.parquet")  # the folders train and heldout
    checkpoints = {UNTOUCHED: ("before", start.location), ADAPTED: ("after", export)}
    return {
        encoder: Embed(
            checkpoint=checkpoint,
            input=documents,
            output=storage.join(config.output, "vectors", name),
            placement=_model_placement(config),
        )
        for encoder, (name, checkpoint) in checkpoints.items()
    }


def search_of(config: Adapt, vectors: str) -> Search:
    """Return the settings of a search in vectors; the queries are read elsewhere."""
    return Search(
        vectors=vectors,
        queries=config.queries or "titles",
        top=FOUND,
        index=config.index,
        placement=_model_placement(config),
    )


def _model_placement(config: Adapt) -> EmbedPlacement:
    """Return the placement of a model that is used and not trained."""
    placement = config.placement
    return EmbedPlacement(device=placement.device, threads=placement.threads, address=placement.address)

"""Plan of adapting an encoder: each step with its work, time, size on disk and what is done; nothing is written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipeline.adapt.heldout import training_corpus
from pipeline.adapt.start import AdaptStart, read_start
from pipeline.adapt.steps import (
    MASKED,
    Trainings,
    choose_trainings,
    corpus_folder,
    embeddings,
    most_trainings,
    pairs_for,
)
from pipeline.config.adapt import Adapt
from pipeline.config.embed import Embed
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.inputs import list_files
from pipeline.corpus.prepared import Corpus, is_prepared, load_corpus
from pipeline.corpus.sources import parse
from pipeline.embed.folder import PARTS
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.reporting import Report, estimate
from pipeline.saved.checkpoints import steps_saved
from pipeline.saved.run import read_summary, run_folder
from pipeline.train.few_steps import few_steps
from pipeline.train.plan import CHECKPOINT_BYTES, EXPORT_BYTES, loads, parameters, tokens_per_sequence

CHARACTERS_PER_TOKEN = 4
"""Estimate, for English in WordPiece."""
CHUNK_FILL = 0.75
"""Tokens per chunk of a long text as a share of maximum_length: a chunk ends at a sentence in its second half."""
FORWARD = 1 / 3
"""Operations of the forward pass, as a share of those of the forward and backward pass."""
DONE, TO_DO = "done", "to do"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times of a run's work on this machine, in seconds."""

    per_token: float
    """Forward and backward, per token."""
    per_step: float
    """Update of the weights, per step."""


NO_TIME = Speed(per_token=0.0, per_step=0.0)


@dataclass(frozen=True, kw_only=True)
class TextSize:
    """Size of the text: estimated from the files until it is prepared."""

    described: str
    characters: int
    documents: int


@dataclass(frozen=True, kw_only=True)
class PlanLine:
    """A line of the plan."""

    name: str
    work: str
    bytes: float
    """Estimated size on disk."""
    folder: str
    state: str
    seconds: float = 0.0
    """Estimated time of what is left to do; 0 if it is done, or not estimated."""


def plan_lines(config: Adapt, report: Report) -> list[str]:
    """Return the lines of the plan. Report that steps are timed, because this takes up to half a minute per run.

    Raises PipelineError, with a one-line message, for an encoder or a text that cannot be used.
    """
    config = with_absolute_locations(config)
    start, folder = read_start(config.init), corpus_folder(config)
    corpus = load_corpus(folder) if is_prepared(folder) else None
    text = _text_of(config, corpus)
    chosen = _trainings(config, start, corpus)
    runs = [_sized(run, start) for run in chosen.runs]
    vectors = embeddings(config, start, chosen.export)
    states = [
        *(_run_state(run_folder(run)) for run in runs),
        *(_vectors_state(each.output) for each in vectors.values()),
    ]
    speeds, without = [NO_TIME] * len(runs), "only the comparison is left"
    if any(state != DONE for state in states):
        report("timing a few steps on this machine, for at most a minute")
        try:
            speeds = [_speed(run) for run in runs]
        except ConfigError as error:
            without = f"times are not measured: {error}"
    steps = [
        PlanLine(
            name="corpus", work=text.described, bytes=text.characters, folder=folder, state=DONE if corpus else TO_DO
        ),
        *(
            _run_step(run, speed, corpus is not None or _is_asked(config, run))
            for run, speed in zip(runs, speeds, strict=True)
        ),
        *_vector_steps(vectors, text, start, FORWARD * speeds[-1].per_token),
    ]
    first = f"plan of {config.output}; nothing is written"
    return [first, *_table(steps), "", *_size_notes(runs[0]), _total(steps) or without, *_notes(chosen, corpus)]


def _trainings(config: Adapt, start: AdaptStart, corpus: Corpus | None) -> Trainings:
    """Return the trainings; before the text is prepared, with the most steps."""
    if corpus is None:
        return most_trainings(config, start)
    return choose_trainings(config, start, training_corpus(corpus, config.output), pairs_for(config, start, corpus))


def _sized(run: Pretrain, start: AdaptStart) -> Pretrain:
    """Return the settings of a run with the sizes of the encoder."""
    vocabulary = replace(run.vocabulary, size=max(100, start.vocabulary.size))
    return replace(run, model=start.model, vocabulary=vocabulary)


def _size_notes(run: Pretrain) -> Iterator[str]:
    """Yield the reason for the sizes of the runs."""
    count = parameters(run)
    yield (
        f"a checkpoint of {count / 1e6:,.1f} M parameters has about {CHECKPOINT_BYTES * count / 1e6:,.1f} MB: each "
        f"weight with two moments of the optimiser, {CHECKPOINT_BYTES} bytes, however small the text is; a run keeps "
        "its last checkpoint, and two while it writes one"
    )


def _speed(run: Pretrain) -> Speed:
    """Time a few steps of a run, in one process. Raises ConfigError if the run does not fit into the free memory."""
    length = max(2, round(tokens_per_sequence(run.sampling)))
    measured = few_steps(run, length)
    tokens = measured.rows * run.sampling.sequences * length
    return Speed(per_token=measured.slot_seconds / tokens, per_step=measured.update_seconds)


def _total(steps: list[PlanLine]) -> str:
    """Return the line of the whole time; "" if no step has a time."""
    left = sum(step.seconds for step in steps)
    if not left:
        return ""
    return (
        f"in all about {estimate(left)} on this machine, by a few steps of one worker that were measured now; "
        "preparing the text, saving and the start of Ray come on top"
    )


def _notes(chosen: Trainings, corpus: Corpus | None) -> list[str]:
    unknown = (
        "the numbers of steps and the pairs of texts are known when the corpus is prepared; pairs of texts need "
        "several documents, and a file of plain text is one document"
    )
    return [*chosen.notes] if corpus else [unknown]


def _table(steps: list[PlanLine]) -> Iterator[str]:
    """Yield two lines per step: its state and work, and its folder, size and time."""
    width = max(len(step.name) for step in steps) + 2
    for step in steps:
        took = f", about {estimate(step.seconds)}" if step.seconds else ""
        yield f"  {step.name:<{width}}{step.work}; {step.state}"
        yield f"  {'':<{width}}{step.folder}, about {step.bytes / 1e6:,.1f} MB{took}"


def _text_of(config: Adapt, corpus: Corpus | None) -> TextSize:
    """Return the size of the text; before it is prepared, a byte of a file counts as a character."""
    if corpus:
        windows, documents = (*corpus.train, *corpus.heldout), corpus.counts["documents"]
        characters = sum(window.characters for window in windows)
        described = f"{documents:,} documents, {characters / 1e6:,.1f} M characters"
        return TextSize(described=described, characters=characters, documents=documents)
    files = [file for spec in config.corpus for file in list_files(parse(spec))]
    stored = sum(max(0, file.bytes) for file in files)
    described = f"{len(files):,} file{'s' * (len(files) > 1)} of {stored / 1e6:,.1f} MB"
    return TextSize(described=described, characters=stored, documents=0)


def _is_asked(config: Adapt, run: Pretrain) -> bool:
    """Return whether the settings say the number of steps of a run."""
    return (config.masked_steps if run.name == MASKED else config.contrastive_steps) is not None


def _run_step(config: Pretrain, speed: Speed, known: bool) -> PlanLine:
    """Return the line of a run. If its number of steps is not `known` yet, config has the maximum."""
    (load,) = loads(config)
    texts = "pairs of texts" if config.sampling.two_texts else "rows"
    work = (
        f"{'' if known else 'at most '}{config.steps:,} steps of {config.batch.rows_per_step:,} {texts} at length "
        f"{config.sampling.maximum_length}, {load.tokens / 1e6:,.1f} M tokens"
    )
    kept = (config.checkpoint.keep + 1) * CHECKPOINT_BYTES + EXPORT_BYTES
    folder = run_folder(config)
    done = config.steps if read_summary(folder) is not None else max(steps_saved(folder), default=0)
    left = 1 - min(done, config.steps) / config.steps
    return PlanLine(
        name=str(config.name),
        work=work,
        bytes=kept * parameters(config),
        folder=folder,
        state=_run_state(folder),
        seconds=left * (load.tokens * speed.per_token + config.steps * speed.per_step),
    )


def _run_state(folder: str) -> str:
    if read_summary(folder) is not None:
        return DONE
    saved = steps_saved(folder)
    return f"{saved[-1]:,} steps done" if saved else TO_DO


def _vector_steps(
    settings: dict[str, Embed], text: TextSize, start: AdaptStart, per_token: float
) -> Iterator[PlanLine]:
    """Yield a line for the vectors of each encoder, which takes `per_token` seconds to compute."""
    tokens = text.characters / CHARACTERS_PER_TOKEN
    vectors = max(text.documents, round(tokens / (CHUNK_FILL * start.reads)))
    for each in settings.values():
        state = _vectors_state(each.output)
        yield PlanLine(
            name=each.output.rpartition("/")[2],
            work=f"about {vectors:,} vectors of {start.model.width:,} numbers",
            bytes=vectors * start.model.width * 4 + text.characters,
            folder=each.output,
            state=state,
            seconds=0.0 if state == DONE else tokens * per_token,
        )


def _vectors_state(folder: str) -> str:
    if storage.exists(storage.join(folder, storage.MANIFEST)):
        return DONE
    return "begun" if storage.exists(storage.join(folder, PARTS)) else TO_DO

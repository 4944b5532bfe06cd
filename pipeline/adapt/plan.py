"""Plan of adapting an encoder: each step with its work, its size on disk and what is done already; nothing is run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipeline import storage
from pipeline.adapt.start import Start, read_start
from pipeline.adapt.steps import (
    MASKED,
    Trainings,
    choose_trainings,
    corpus_folder,
    embeddings,
    length_of,
    most_trainings,
)
from pipeline.config.adapt import Adapt
from pipeline.config.embed import Embed
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.corpus.inputs import list_files
from pipeline.corpus.prepared import Corpus, is_prepared, load_corpus
from pipeline.corpus.sources import parse
from pipeline.embed.folder import PARTS
from pipeline.plan import CHECKPOINT_BYTES, EXPORT_BYTES, loads, parameters
from pipeline.train.checkpoint import steps_saved
from pipeline.train.run import read_summary, run_folder

CHARACTERS_PER_TOKEN = 4
"""Estimate, for English in WordPiece."""
CHUNK_FILL = 0.75
"""Tokens per chunk of a long text as a share of maximum_length: a chunk ends at a sentence in its second half."""
DONE, TO_DO = "done", "to do"


@dataclass(frozen=True, kw_only=True)
class Text:
    """Size of the text: estimated from the files until it is prepared."""

    described: str
    characters: int
    documents: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """A line of the plan."""

    name: str
    work: str
    bytes: float
    """Estimated size on disk."""
    folder: str
    state: str


def plan_lines(config: Adapt) -> list[str]:
    """Return the lines of the plan.

    Raises PipelineError, with a one-line message, for an encoder or a text that cannot be used.
    """
    config = with_absolute_locations(config)
    start, folder = read_start(config.init), corpus_folder(config)
    corpus = load_corpus(folder) if is_prepared(folder) else None
    text = _text_of(config, corpus)
    chosen = choose_trainings(config, start, corpus) if corpus else most_trainings(config, start)
    steps = [
        Step(name="corpus", work=text.described, bytes=text.characters, folder=folder, state=DONE if corpus else TO_DO),
        *(_run_step(run, start, corpus is not None or _is_asked(config, run)) for run in chosen.runs),
        *_vector_steps(embeddings(config, start, chosen.export), text, start, length_of(config, start)),
    ]
    return [f"plan of {config.output}; nothing is run", *_table(steps), "", *_notes(chosen, corpus)]


def _notes(chosen: Trainings, corpus: Corpus | None) -> list[str]:
    unknown = "the numbers of steps and the pairs of texts are known when the corpus is prepared"
    return [*chosen.notes] if corpus else [unknown]


def _table(steps: list[Step]) -> Iterator[str]:
    """Yield two lines per step: its state and work, and its folder and size."""
    width = max(len(step.name) for step in steps) + 2
    for step in steps:
        yield f"  {step.name:<{width}}{step.work}; {step.state}"
        yield f"  {'':<{width}}{step.folder}, about {step.bytes / 1e6:,.1f} MB"


def _text_of(config: Adapt, corpus: Corpus | None) -> Text:
    """Return the size of the text; before it is prepared, a byte of a file counts as a character."""
    if corpus:
        windows, documents = (*corpus.train, *corpus.heldout), corpus.counts["documents"]
        characters = sum(window.characters for window in windows)
        described = f"{documents:,} documents, {characters / 1e6:,.1f} M characters"
        return Text(described=described, characters=characters, documents=documents)
    files = [file for spec in config.corpus for file in list_files(parse(spec))]
    stored = sum(max(0, file.bytes) for file in files)
    described = f"{len(files):,} file{'s' * (len(files) > 1)} of {stored / 1e6:,.1f} MB"
    return Text(described=described, characters=stored, documents=0)


def _is_asked(config: Adapt, run: Pretrain) -> bool:
    """Return whether the settings say the number of steps of a run."""
    return (config.masked_steps if run.name == MASKED else config.contrastive_steps) is not None


def _run_step(config: Pretrain, start: Start, known: bool) -> Step:
    """Return the line of a run. If its number of steps is not `known` yet, config has the maximum."""
    sized = replace(
        config, model=start.model, vocabulary=replace(config.vocabulary, size=max(100, start.vocabulary.size))
    )
    (load,) = loads(sized)
    texts = "pairs of texts" if config.sampling.two_texts else "rows"
    work = (
        f"{'' if known else 'at most '}{config.steps:,} steps of {config.batch.rows_per_step:,} {texts} at length "
        f"{config.sampling.maximum_length}, {load.tokens / 1e6:,.1f} M tokens"
    )
    kept = (config.checkpoint.keep + 1) * CHECKPOINT_BYTES + EXPORT_BYTES
    folder = run_folder(config)
    return Step(
        name=str(config.name), work=work, bytes=kept * parameters(sized), folder=folder, state=_run_state(folder)
    )


def _run_state(folder: str) -> str:
    if read_summary(folder) is not None:
        return DONE
    saved = steps_saved(folder)
    return f"{saved[-1]:,} steps done" if saved else TO_DO


def _vector_steps(settings: dict[str, Embed], text: Text, start: Start, length: int) -> Iterator[Step]:
    """Yield a line for the vectors of each encoder."""
    vectors = max(text.documents, round(text.characters / CHARACTERS_PER_TOKEN / (CHUNK_FILL * length)))
    for each in settings.values():
        yield Step(
            name=each.output.rpartition("/")[2],
            work=f"about {vectors:,} vectors of {start.model.width:,} numbers",
            bytes=vectors * start.model.width * 4 + text.characters,
            folder=each.output,
            state=_vectors_state(each.output),
        )


def _vectors_state(folder: str) -> str:
    if storage.exists(storage.join(folder, storage.MANIFEST)):
        return DONE
    return "begun" if storage.exists(storage.join(folder, PARTS)) else TO_DO

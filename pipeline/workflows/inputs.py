"""Check the files of a job, their columns and labels, by the job's own readers, before torch and Ray are loaded.

Loading torch, Ray and a model takes up to a minute, and the message that a column is missing should not take as long.
The job reads the files again. So it alone reads files at URLs and large files, unless their first rows are enough here.
"""

import os
from collections.abc import Callable
from itertools import product
from typing import Any

from pipeline.adapt.queries import given_queries
from pipeline.config.ablate import Ablate
from pipeline.config.adapt import Adapt
from pipeline.config.embed import Embed
from pipeline.config.finetune import Finetune
from pipeline.config.locations import BUILTIN, with_absolute_locations
from pipeline.config.measurements import ExampleScore, KnownSplit, SimilarityScore, TripletScore
from pipeline.config.mine import Mine
from pipeline.config.predict import Compare, Predict, Score
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_records
from pipeline.corpus.prepared import is_prepared
from pipeline.corpus.sources import parse
from pipeline.embed.pairs import open_pairs
from pipeline.embed.texts import InputColumns, require_columns, text_files
from pipeline.embed.vectors import open_vectors
from pipeline.errors import DataError
from pipeline.evaluation.minimal_pairs.paradigms import read_blimp, select
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.fine_tuned.record import saved_task_at
from pipeline.grid.testing import require_readable
from pipeline.predict.columns import choice_names, match_columns, require_form
from pipeline.predict.inputs import inputs_of, parts_of
from pipeline.predict.output import require_free
from pipeline.predict.score import of_file, pairs_of, task_of, triplets_of
from pipeline.reporting import print_line
from pipeline.tables.bad_rows import OPTION, BadRows
from pipeline.tasks import known
from pipeline.tasks.choice_tables import choice_cells
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.own import read_own, with_pair_columns

MOST_BYTES = 64 << 20
"""Largest file that is read whole here."""
MOST_FILES = 20
"""Files whose first rows are read here; the job reads those of further files."""


def check_inputs(config: Any) -> None:
    """Raise PipelineError, as the job of these settings would, for files, columns and labels that it refuses."""
    CHECKS[type(config)](with_absolute_locations(config))


def _check_ablate(config: Ablate) -> None:
    """Check that the tasks have their files, and the minimal pairs, which are downloaded if their folder is missing."""
    if (names := known.require_known(config.task)) and config.data is not None:
        for task, split in product(known.tasks_in(config.data, names), ("train", "dev")):
            if known.split_location(config.data, task.split(split)) is None:
                known.read_items(task, config.data, split)  # raises the error that names the file
    if config.blimp is not None and not is_url(config.blimp):
        select(read_blimp(config.blimp, print_line), config.blimp_pairs)


def _check_finetune(config: Finetune) -> None:
    """Check the user's own files, or the names of the tasks and the folder of their files."""
    storage.require_writable("output", config.output)
    if config.train is None:
        if (names := known.require_known(config.task)) and config.data is not None:
            known.tasks_in(config.data, names)
    elif _are_small(config.train, config.dev, config.test):
        config = with_pair_columns(config)
        task, _, _ = read_own(config, str(config.train), config.dev)
        require_readable(config, task)


def _check_predict(config: Predict) -> None:
    """Check the output and, if the model has a task.json, the columns of the inputs."""
    require_free(config.output, config.replace)
    storage.require_writable("output", config.output.rpartition("/")[0] or "/")
    saved = saved_task_at(config.checkpoint)
    if saved is None:  # the columns of a model without task.json are known once it is loaded
        return
    task, trained = saved
    require_form(config.output, task.kind)
    form = KINDS[task.kind].rows
    files = inputs_of(config.input, config.output, config.format, tags=form.words, words=config.words)
    for file in files[:MOST_FILES]:
        table = next(parts_of(file, config.rows_per_part), None)
        if table is None:
            continue
        try:
            match_columns(table, task.kind, config.text, config.pair, trained)
            if form.choices:
                choice_cells(table, choice_names(table, config.choices, trained))
        except DataError as error:
            raise DataError(f"{file.location}: {error}") from error


def _check_score(config: Score) -> None:
    """Check the labelled file of a fine-tuned model, the name of the task, or the file of pairs or triplets."""
    bad = BadRows(skip=config.on_bad_rows == "skip", remedy=OPTION)
    saved = None if config.checkpoint is None else saved_task_at(config.checkpoint)
    measured = config.measurement
    if isinstance(measured, SimilarityScore) and _are_small(measured.similarity):
        pairs_of(measured, bad)
    elif isinstance(measured, TripletScore) and _are_small(measured.triplets):
        triplets_of(measured, bad)
    elif isinstance(measured, ExampleScore) and saved is not None:
        if isinstance(measured.examples, KnownSplit):
            task_of(measured.examples, saved[0])
        elif _are_small(measured.examples.input):
            of_file(measured.examples, saved[0])


def _check_embed(config: Embed) -> None:
    """Check the output and the columns of the inputs."""
    storage.require_writable("output", config.output.rpartition("/")[0] or "/")
    require_columns(text_files(config)[:MOST_FILES], InputColumns.of(config))


def _check_mine(config: Mine) -> None:
    """Check the output, the vectors, and the columns of the pairs."""
    require_free(config.output, config.replace)
    storage.require_writable("output", config.output.rpartition("/")[0] or "/")
    open_vectors(config.vectors).require_texts()
    if _are_small(config.pairs):
        open_pairs(config)


def _check_adapt(config: Adapt) -> None:
    """Read the queries, the judgements and the first documents of the text."""
    if _are_small(config.queries, config.judgements):
        given_queries(config)
    for spec in config.corpus:
        if spec != BUILTIN and not is_url(spec) and not is_prepared(spec):
            for file in list_files(parse(spec))[:MOST_FILES]:
                next(file_records(file), None)


def _are_small(*locations: str | None) -> bool:
    """Return whether the job may read these files twice: none is at a URL or has more than MOST_BYTES."""
    given = [location for location in locations if location is not None]
    large = [location for location in given if os.path.isfile(location) and os.path.getsize(location) > MOST_BYTES]
    return not large and not any(map(is_url, given))


CHECKS: dict[type, Callable[[Any], None]] = {
    Ablate: _check_ablate,
    Adapt: _check_adapt,
    Compare: _check_finetune,
    Embed: _check_embed,
    Finetune: _check_finetune,
    Mine: _check_mine,
    Predict: _check_predict,
    Score: _check_score,
}
"""Settings of a job -> function that checks its files."""

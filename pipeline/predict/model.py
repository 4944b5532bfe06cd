"""Load a model and answer tables with it: map columns to model inputs, and skip rows with an empty text."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import torch
from tokenizers import Tokenizer

from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, DataError, shown
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, fill_masks
from pipeline.export.trained import Trained, load_trained
from pipeline.files import storage
from pipeline.fine_tuned.answers import answer_items, answer_schema, items_of
from pipeline.fine_tuned.model import is_published, open_tuned
from pipeline.fine_tuned.published_tuned import DIGEST
from pipeline.fine_tuned.record import TextColumns
from pipeline.fine_tuned.tuned import TunedModel, about_of
from pipeline.predict.columns import FILL, choice_names, form_of, match_columns
from pipeline.saved.digest import fingerprint
from pipeline.saved.files import NoModel
from pipeline.saved.model import SavedModel, errors_of, open_saved
from pipeline.tasks.choice_tables import choice_cells
from pipeline.text.schema import CUT
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.hardware import answer_precision, autocast_of, chosen_precision, required_device

GUESSES = pa.schema(
    [
        pa.field("filled", pa.string()),  # the text, with the most likely word in place of each [MASK]
        pa.field(
            "guesses", pa.list_(pa.list_(pa.struct([("token", pa.string()), ("probability", pa.float64())])))
        ),  # for each [MASK]: the guesses, best first
    ]
)


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """A loaded model and the schema of its answers."""

    kind: str
    """Kind of the model's task, or FILL."""
    precision: str
    """Number format of the model's matrix products."""
    schema: pa.Schema
    answer: Callable[[dict[str, list[object]]], pa.Table]
    """Function of the input columns, without empty texts, that returns a table with one answer per row."""
    trained: TextColumns = TextColumns()
    """Columns of the table that the model was trained on."""


def identify(checkpoint: str) -> tuple[str, str]:
    """Return a model's kind, and a digest of its files.

    A model published by others is loaded for this, so errors in the model appear before the job starts. Raises
    CheckpointError if there is no model.
    """
    saved = _glance(checkpoint)
    if saved is None or _fills_masks(saved):
        return FILL, fingerprint(checkpoint)
    if is_published(saved):
        about = open_tuned(checkpoint).about
        return about.task.kind, about.lineage[DIGEST][:16]
    with errors_of("checkpoint"):
        about, _ = about_of(saved)
    return about.task.kind, fingerprint(checkpoint)


def _glance(checkpoint: str) -> SavedModel | None:
    """Open a model without verifying its files; return None if the folder holds no model."""
    with errors_of("checkpoint"):
        try:
            return open_saved(checkpoint, verify=False)
        except NoModel:
            return None


def _fills_masks(saved: SavedModel) -> bool:
    """Return whether a model is one that this package pretrained."""
    return not saved.has_record and not is_published(saved)


def load(config: Predict) -> Answerer:
    """Load the config's model on this process's device. Raises CheckpointError if the model is damaged or missing."""
    device = required_device(config.placement)
    saved = _glance(config.checkpoint)
    if saved is None or _fills_masks(saved):
        return _fill_answerer(config, device)
    return task_answerer(open_tuned(config.checkpoint), config.placement, device)


def task_answerer(tuned: TunedModel, placement: ModelPlacement, device: torch.device) -> Answerer:
    """Return the answerer of a fine-tuned model."""
    precision = answer_precision(placement, tuned.about.lineage.get("precision"), device)
    autocast = autocast_of(precision, device)
    return Answerer(
        kind=tuned.about.task.kind,
        precision=precision,
        schema=answer_schema(tuned.about.task),
        answer=lambda columns: answer_items(tuned, items_of(tuned, columns), device, autocast),
        trained=TextColumns.of(tuned.about.lineage),
    )


def _fill_answerer(config: Predict, device: torch.device) -> Answerer:
    """Return the answerer of a pretrained model, which fills [MASK]s.

    Precision `auto` is bfloat16 on a GPU that supports it, else float32.
    """
    precision = answer_precision(config.placement, chosen_precision(config.placement, device), device)
    autocast = autocast_of(precision, device)
    folder = config.checkpoint
    trained, vocabulary = load_trained(folder, fills_blanks=True), load_vocabulary(folder, None)
    trained.module.to(device)
    tokenizer = Tokenizer.from_str(storage.read_bytes(storage.join(folder, "tokenizer.json")).decode())
    tokenizer.enable_truncation(trained.model.maximum_positions)

    def answer(columns: dict[str, list[object]]) -> pa.Table:
        with autocast:
            return fill(trained, tokenizer, vocabulary, [str(text) for text in columns["text"]], config.top, device)

    return Answerer(kind=FILL, precision=precision, schema=GUESSES, answer=answer)


def fill(
    trained: Trained, tokenizer: Tokenizer, vocabulary: Vocabulary, texts: list[str], top: int, device: torch.device
) -> pa.Table:
    """Return a row per text (schema GUESSES): the filled text, and `top` guesses for each [MASK].

    Texts are truncated to the model's maximum number of positions, so a later [MASK] has no guess. The metadata key CUT
    holds the number of truncated texts that contain a [MASK].
    """
    blank = vocabulary.tokens[vocabulary.mask_id]
    masked = [index for index, text in enumerate(texts) if blank in text]
    guesses: list[list[list[dict[str, str | float]]]] = [[] for _ in texts]
    cut = 0
    for start in range(0, len(masked), TEXTS_AT_ONCE):
        indexes = masked[start : start + TEXTS_AT_ONCE]
        encodings = tokenizer.encode_batch([texts[index] for index in indexes])
        cut += sum(bool(encoding.overflowing) for encoding in encodings)
        batch = batch_of(encodings, vocabulary.mask_id)
        if batch.masked:
            for index, words in zip(indexes, fill_masks(trained, batch.to(device), vocabulary, top), strict=True):
                guesses[index] = words
    filled = [
        with_words(text, blank, [str(candidates[0]["word"]) for candidates in words])
        for text, words in zip(texts, guesses)
    ]
    return pa.table(
        [pa.array(filled, GUESSES.field("filled").type), pa.array(guesses, GUESSES.field("guesses").type)],
        schema=GUESSES.with_metadata({CUT: str(cut)}),
    )


def with_words(text: str, blank: str, words: list[str]) -> str:
    """Replace the first blanks of a text by words, in order.

    A continuation such as ##ing is joined to the word before it.
    """
    for word in words:
        before, _, after = text.partition(blank)
        text = (
            f"{before.rstrip()}{word.removeprefix('##')}{after}" if word.startswith("##") else f"{before}{word}{after}"
        )
    return text


def _is_empty(value: object, column: str, words: bool) -> bool:
    """Return whether a cell of a column is empty: null, a blank text, or for `words` an empty list.

    Any other cell must be a text, or for `words` a list of texts; otherwise raises DataError.
    """
    if words and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return not value
    if value is not None and (words or not isinstance(value, str)):
        raise DataError(
            f"column {column} holds {value if isinstance(value, int | float) else shown(value)}, which is not "
            f"{'a list of words' if words else 'a text'}"
        )
    return value is None or not str(value).strip()


def answer_table(
    model: Answerer, table: pa.Table, text: str | None, pair: str | None, choices: tuple[str, ...] = ()
) -> tuple[pa.Table, int]:
    """Return one row of answers per row of the table, and the number of rows with an empty text.

    Rows with an empty text are not given to the model; their answers are null. `text` and `pair`: see
    `match_columns`. `choices`: columns of a model of multiple choice; empty means the default.
    """
    form = form_of(model.kind)
    if choices and not form.choices:
        raise ConfigError(
            f"choices ({', '.join(choices)}) are for models of multiple choice, but the model is of kind {model.kind}: "
            "leave choices out"
        )
    names = match_columns(table, model.kind, text, pair, model.trained)
    columns = {name: table[column].to_pylist() for name, column in names.items()}
    gaps = [[_is_empty(value, names[name], name == "words") for value in values] for name, values in columns.items()]
    if form.choices:
        columns["choices"] = choice_cells(table, choice_names(table, choices, model.trained))
        gaps.append([not texts for texts in columns["choices"]])
    full = [not any(empty) for empty in zip(*gaps, strict=True)]
    inputs = {name: [value for value, is_full in zip(values, full) if is_full] for name, values in columns.items()}
    answers = model.answer(inputs) if any(full) else model.schema.empty_table()
    rows = iter(range(answers.num_rows))
    return answers.take(pa.array([next(rows) if is_full else None for is_full in full], pa.int64())), full.count(False)

"""Load a model that answers tables: map columns to its inputs, and skip rows with an empty text."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import torch
from tokenizers import Tokenizer

from pipeline import storage
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.errors import CheckpointError, DataError, listed, shown
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, fill_masks
from pipeline.export.trained import Trained, load_trained
from pipeline.finetune.trials import answer_precision
from pipeline.predict.answers import CUT, answer_items, answer_schema, items_of
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.hardware import autocast_of, chosen_precision, required_device
from pipeline.train.published_tuned import DIGEST, is_published, load_published, load_tuned_or_published
from pipeline.train.tuned import TASK, TunedModel, about_of

FILL = "fill"
DEFAULT_TEXT = {"tags": "words", "spans": "context"}
GUESSES = pa.schema(
    [
        pa.field("filled", pa.string()),  # the text with each [MASK]'s likeliest word in it
        pa.field(
            "guesses", pa.list_(pa.list_(pa.struct([("token", pa.string()), ("probability", pa.float64())])))
        ),  # of each [MASK], best first
    ]
)


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """A loaded model and the schema of its answers."""

    kind: str
    """Kind of its task, or "fill"."""
    precision: str
    """Number format of its matrix products."""
    schema: pa.Schema
    answer: Callable[[dict[str, list[object]]], pa.Table]
    """Answer columns of inputs, none of which is empty."""


def identify(checkpoint: str) -> tuple[str, str]:
    """Return a model's kind, and the digest of its files.

    A published model of others is loaded, so that its problems show at once. Raises CheckpointError if there is no
    model.
    """
    if is_published(checkpoint):
        about = load_published(checkpoint).about
        return about.task.kind, about.lineage[DIGEST][:16]
    return kind_of(checkpoint), fingerprint(checkpoint)


def fingerprint(checkpoint: str) -> str:
    """Return the digest of a model's folder. Raises CheckpointError if there is no model."""
    path = storage.join(checkpoint, storage.MANIFEST)
    if not storage.exists(path):
        folders = (storage.join(checkpoint, name) for name in ("model", "export"))
        inside = next((folder for folder in folders if storage.exists(storage.join(folder, storage.MANIFEST))), None)
        wanted = (
            "give a model that fine-tuning wrote, such as output/finetune/NAME/model, a run's export, "
            "or a published model's folder or hf://OWNER/NAME"
        )
        instead = f"{inside} has one" if inside else wanted
        raise CheckpointError(f"checkpoint {checkpoint} has no {storage.MANIFEST}: {instead}")
    return storage.sha256(path)[:16]


def kind_of(checkpoint: str) -> str:
    """Return a model's kind of task, or "fill"."""
    path = storage.join(checkpoint, TASK)
    return about_of(checkpoint)[0].task.kind if storage.exists(path) else FILL


def load(config: Predict) -> Answerer:
    """Load the config's model on this process's device. Raises CheckpointError if it is damaged or missing."""
    device = required_device(config.placement)
    if not is_published(config.checkpoint) and kind_of(config.checkpoint) == FILL:
        return _fill_answerer(config, device)
    return task_answerer(load_tuned_or_published(config.checkpoint), config.placement, device)


def task_answerer(tuned: TunedModel, placement: ModelPlacement, device: torch.device) -> Answerer:
    """Return the answerer of a fine-tuned model."""
    precision = answer_precision(placement, tuned.about.lineage.get("precision"), device)
    autocast = autocast_of(precision, device)
    return Answerer(
        kind=tuned.about.task.kind,
        precision=precision,
        schema=answer_schema(tuned.about.task),
        answer=lambda columns: answer_items(tuned, items_of(tuned, columns), device, autocast),
    )


def _fill_answerer(config: Predict, device: torch.device) -> Answerer:
    """Return the answerer of a pretrained model, which fills [MASK]s; on a GPU in pretraining's number format."""
    precision = answer_precision(config.placement, chosen_precision(config.placement, device), device)
    autocast = autocast_of(precision, device)
    folder = config.checkpoint
    trained, vocabulary = load_trained(folder), load_vocabulary(folder, None)
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
    """Return a table of schema GUESSES; a [MASK] beyond the model's positions has no guess.

    The metadata key CUT holds the number of truncated texts with a [MASK].
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
        with_words(text, blank, [str(candidates[0]["token"]) for candidates in words])
        for text, words in zip(texts, guesses)
    ]
    return pa.table(
        [pa.array(filled, GUESSES.field("filled").type), pa.array(guesses, GUESSES.field("guesses").type)],
        schema=GUESSES.with_metadata({CUT: str(cut)}),
    )


def with_words(text: str, blank: str, words: list[str]) -> str:
    """Replace the first blanks by words; a continuation (##ing) is joined to the word before, and the byte-level space
    symbol is removed.
    """
    for word in words:
        before, _, after = text.partition(blank)
        word = word.removeprefix("\u0120")
        text = (
            f"{before.rstrip()}{word.removeprefix('##')}{after}" if word.startswith("##") else f"{before}{word}{after}"
        )
    return text


def match_columns(table: pa.Table, kind: str, text: str | None, pair: str | None) -> dict[str, str]:
    """Return the model's input columns -> the table's columns, by the set or default names.

    Raises DataError that lists the table's columns.
    """
    first, second = text or DEFAULT_TEXT.get(kind, "text"), pair or ("question" if kind == "spans" else None)
    if kind == "tags" and text is None and first not in table.column_names:
        first = "text"  # words divided by white space
    for flag, name in (("text", first), ("pair", second)):
        if name is not None and name not in table.column_names:
            raise DataError(
                f"input has no column {name}: its columns are {listed(table.column_names)}; name the right one with "
                f"--{flag}"
            )
    if kind == "spans":
        return {"context": first, "question": str(second)}
    lists = kind == "tags" and pa.types.is_nested(table[first].type)
    return {"words" if lists else "text": first} | ({"second": second} if second else {})


def _is_empty(value: object, column: str, words: bool) -> bool:
    """Return whether there is nothing to answer.

    Raises DataError unless it is a text, or, for `words`, a list of words.
    """
    if words and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return not value
    if value is not None and (words or not isinstance(value, str)):
        raise DataError(
            f"column {column} holds {value if isinstance(value, int | float) else shown(value)}, which is no "
            f"{'list of words' if words else 'text'}"
        )
    return value is None or not str(value).strip()


def answer_table(model: Answerer, table: pa.Table, text: str | None, pair: str | None) -> tuple[pa.Table, int]:
    """Return one row of answers per row of the table, null where a text is empty, and the number of empty rows."""
    names = match_columns(table, model.kind, text, pair)
    columns = {name: table[column].to_pylist() for name, column in names.items()}
    gaps = [[_is_empty(value, names[name], name == "words") for value in values] for name, values in columns.items()]
    there = [not any(empty) for empty in zip(*gaps, strict=True)]
    wanted = {name: [value for value, given in zip(values, there) if given] for name, values in columns.items()}
    answers = model.answer(wanted) if any(there) else model.schema.empty_table()
    rows = iter(range(answers.num_rows))
    return answers.take(pa.array([next(rows) if given else None for given in there], pa.int64())), there.count(False)

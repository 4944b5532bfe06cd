"""A model that answers tables: what of a row is asked, and rows whose text is empty, which have no answer."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import torch
from tokenizers import Tokenizer

from pipeline import storage
from pipeline.config.predict import Predict
from pipeline.config.training import ModelPlacement
from pipeline.errors import CheckpointError, ConfigError, DataError, listed, shown
from pipeline.export.inference import TEXTS_AT_ONCE, batch_of, fill_masks
from pipeline.export.trained import Trained, load_trained
from pipeline.finetune.trials import answer_precision
from pipeline.predict.answers import CUT, answer_items, answer_schema, items_of
from pipeline.text.vocabulary import Vocabulary, load_vocabulary
from pipeline.train.precision import autocast_of, chosen_precision
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
    """A loaded model and how its answers look."""

    kind: str
    """Of its task, or "fill"."""
    precision: str
    """The number format of its matrix products."""
    schema: pa.Schema
    answer: Callable[[dict[str, list[object]]], pa.Table]
    """Answers to columns of what is asked, none of them empty."""


def identify(checkpoint: str) -> tuple[str, str]:
    """What a model does, and the digest of its files.

    One published by others is loaded for it: what is wrong with it is said at once. Raises CheckpointError where
    there is no model.
    """
    if is_published(checkpoint):
        about = load_published(checkpoint).about
        return about.task.kind, about.lineage[DIGEST][:16]
    return kind_of(checkpoint), fingerprint(checkpoint)


def fingerprint(checkpoint: str) -> str:
    """Digest of a model's folder. Raises CheckpointError where there is no model."""
    folder = storage.absolute(checkpoint)
    place = storage.join(folder, storage.MANIFEST)
    if not storage.exists(place):
        inside = next(
            (name for name in ("model", "export") if storage.exists(storage.join(folder, name, storage.MANIFEST))), None
        )
        wanted = (
            "give a model that fine-tuning wrote, such as output/finetune/NAME/model, a run's export, "
            "or a published model's folder or hf://OWNER/NAME"
        )
        instead = f"{storage.join(folder, inside)} has one" if inside else wanted
        raise CheckpointError(f"checkpoint {folder} has no {storage.MANIFEST}: {instead}")
    return storage.sha256(place)[:16]


def kind_of(checkpoint: str) -> str:
    """What a model does."""
    place = storage.join(storage.absolute(checkpoint), TASK)
    return about_of(storage.absolute(checkpoint))[0].task.kind if storage.exists(place) else FILL


def device_of(placement: ModelPlacement) -> torch.device:
    """The GPU that this process sees, unless the CPU is asked for. Raises ConfigError where one is asked for and none is there."""
    if placement.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("placement.device cuda needs a GPU, and this process sees none: use placement.device cpu")
    return torch.device("cuda" if placement.device != "cpu" and torch.cuda.is_available() else "cpu")


def load(config: Predict) -> Answerer:
    """The model of a config on the device that this process has. Raises CheckpointError where it is damaged, or none."""
    device = device_of(config.placement)
    if not is_published(config.checkpoint) and kind_of(config.checkpoint) == FILL:
        return fill_answerer(config, device)
    return task_answerer(load_tuned_or_published(config.checkpoint), config.placement, device)


def task_answerer(tuned: TunedModel, placement: ModelPlacement, device: torch.device) -> Answerer:
    """A fine-tuned model that answers its task."""
    precision = answer_precision(placement, tuned.about.lineage.get("precision"), device)
    autocast = autocast_of(precision, device)
    return Answerer(
        kind=tuned.about.task.kind,
        precision=precision,
        schema=answer_schema(tuned.about.task),
        answer=lambda columns: answer_items(tuned, items_of(tuned, columns), device, autocast),
    )


def fill_answerer(config: Predict, device: torch.device) -> Answerer:
    """A pretrained model that fills blanks; on a GPU as pretraining by auto would compute there."""
    precision = answer_precision(config.placement, chosen_precision(config.placement, device), device)
    autocast = autocast_of(precision, device)
    folder = storage.absolute(config.checkpoint)
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
    """Schema GUESSES; a [MASK] beyond the model's positions has no guess. Texts with [MASK]s that are longer than the model reads are counted in the metadata, CUT."""
    blank = vocabulary.tokens[vocabulary.mask_id]
    masked = [place for place, text in enumerate(texts) if blank in text]
    guesses: list[list[list[dict[str, str | float]]]] = [[] for _ in texts]
    cut = 0
    for start in range(0, len(masked), TEXTS_AT_ONCE):
        places = masked[start : start + TEXTS_AT_ONCE]
        encodings = tokenizer.encode_batch([texts[place] for place in places])
        cut += sum(bool(encoding.overflowing) for encoding in encodings)
        batch = batch_of(encodings, vocabulary.mask_id)
        if batch.masked:
            for place, found in zip(places, fill_masks(trained, batch.to(device), vocabulary, top), strict=True):
                guesses[place] = found
    filled = [with_words(text, blank, [str(ones[0]["token"]) for ones in found]) for text, found in zip(texts, guesses)]
    return pa.table(
        [pa.array(filled, GUESSES.field("filled").type), pa.array(guesses, GUESSES.field("guesses").type)],
        schema=GUESSES.with_metadata({CUT: str(cut)}),
    )


def with_words(text: str, blank: str, words: list[str]) -> str:
    """The text with words in place of its first blanks; a word's continuation, ##ing, goes to the word before, and a space of byte-level pieces is one."""
    for word in words:
        before, _, after = text.partition(blank)
        word = word.removeprefix("\u0120")
        text = (
            f"{before.rstrip()}{word.removeprefix('##')}{after}" if word.startswith("##") else f"{before}{word}{after}"
        )
    return text


def match_columns(table: pa.Table, kind: str, text: str | None, pair: str | None) -> dict[str, str]:
    """The columns that `items_of` takes, and which of the table's they are: by the names that are set, or usual. Raises DataError that names the table's."""
    first, second = text or DEFAULT_TEXT.get(kind, "text"), pair or ("question" if kind == "spans" else None)
    if kind == "tags" and text is None and first not in table.column_names:
        first = "text"  # words divided by white space
    for flag, name in (("text", first), ("pair", second)):
        if name is not None and name not in table.column_names:
            raise DataError(
                f"input has no column {name}: its columns are {listed(table.column_names)}; name the right one with --{flag}"
            )
    if kind == "spans":
        return {"context": first, "question": str(second)}
    lists = kind == "tags" and pa.types.is_nested(table[first].type)
    return {"words" if lists else "text": first} | ({"second": second} if second else {})


def is_empty(value: object, column: str, words: bool) -> bool:
    """Whether there is nothing to answer. Raises DataError for what is no text, nor, where such are wanted, a list of words."""
    if words and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return not value
    if value is not None and (words or not isinstance(value, str)):
        raise DataError(
            f"column {column} holds {value if isinstance(value, int | float) else shown(value)}, which is no {'list of words' if words else 'text'}"
        )
    return value is None or not str(value).strip()


def answer_table(model: Answerer, table: pa.Table, text: str | None, pair: str | None) -> tuple[pa.Table, int]:
    """One row of answers a row of the table, null where a text is empty, and how many are."""
    names = match_columns(table, model.kind, text, pair)
    columns = {name: table[column].to_pylist() for name, column in names.items()}
    gaps = [[is_empty(value, names[name], name == "words") for value in values] for name, values in columns.items()]
    there = [not any(empty) for empty in zip(*gaps, strict=True)]
    wanted = {name: [value for value, given in zip(values, there) if given] for name, values in columns.items()}
    found = model.answer(wanted) if any(there) else model.schema.empty_table()
    places = iter(range(found.num_rows))
    return found.take(pa.array([next(places) if given else None for given in there], pa.int64())), there.count(False)

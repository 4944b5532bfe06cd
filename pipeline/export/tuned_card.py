"""The model card of a fine-tuned model, and files for sentence-transformers if the model makes text vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.similarity import KIND_OF_LOSS
from pipeline.export import cards
from pipeline.export.cards import CARDS, SAME_ANSWER, CardFacts, CardWords
from pipeline.export.markdown import (
    DEVELOPMENT,
    header,
    hub_name,
    license_text,
    model_index,
    public_model_location,
    result,
    table,
    version,
)
from pipeline.export.sentence_files import sentence_files
from pipeline.fine_tuned.tuned import About, has_vectors
from pipeline.model.families.table import family_of
from pipeline.model.family import Family
from pipeline.saved.checkpoints import CARD
from pipeline.tasks.tagging import CONTINUED
from pipeline.tasks.task import Task

GLUE, ENGLISH = "nyu-mll/glue", ("en",)
DATASETS: dict[str, tuple[str, str]] = {
    **{name: (GLUE, name) for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")},
    "squad1": ("rajpurkar/squad", "plain_text"),
    "squad2": ("rajpurkar/squad_v2", "squad_v2"),
    **dict.fromkeys(("conll2003", "conll2003-pos", "conll2003-chunks"), ("eriktks/conll2003", "conll2003")),
}
"""Known task -> name and configuration of its data set on the hub. All data sets are in English."""
MOST_LABELS = 8
"""Maximum number of labels named in the card's first sentence."""
METRICS = {
    "f1": "f1",
    "exact": "exact_match",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "matthews": "matthews_correlation",
}
"""Name of a metric in this project -> name on the hub. All other metrics have the same name on the hub."""


def tuned_files(
    about: About,
    model: Model,
    *,
    plain: bool = True,
    license: str | None = None,
    language: tuple[str, ...] = (),
    repository: str | None = None,
) -> dict[str, str]:
    """Return file name -> content of the card and related files of a fine-tuned model.

    `plain` is true if the model has no bottleneck adapters. If transformers can load the encoder of a plain model, the
    model also gets files for sentence-transformers if its task is similarity, or if the head of its text classification
    reads the mean of the last hidden states. With these files, sentence-transformers computes the same vectors.
    """
    plain = plain and family_of(model).in_transformers
    files = {CARD: _tuned_card(about, model, plain, license, language, repository)}
    if has_vectors(about, plain):
        longest = about.cutting.maximum_length or model.maximum_positions
        files |= sentence_files(model.width, longest, "cls" if about.pooling == "cls" else "mean")
    return files


def _tuned_card(
    about: About, model: Model, plain: bool, license: str | None, language: tuple[str, ...], repository: str | None
) -> str:
    """Return the README.md of a fine-tuned model."""
    task, lineage, family = about.task, about.lineage, family_of(model)
    name = str(lineage.get("trial") or task.name)
    encoder = public_model_location(str(lineage.get("checkpoint") or "")) or "an encoder whose origin is not recorded"
    text = cards.TEMPLATE.format(
        name=name,
        article=family.article.capitalize(),
        family=family.title,
        layers=model.layers,
        width=model.width,
        purpose=_purpose(task),
        data=_data_name(task),
        version=version(),
        encoder=encoder,
        reading=_reading(about.cutting),
        use=_use(about, family, plain, repository),
        limits="\n".join(f"- {line}" for line in _limits(about, model)),
        figures=figures(lineage, _words_of_training(about).baseline),
        training=table(("training", "value"), _training(about, encoder)),
        license=license_text(license),
    )
    return header(_metadata(about, model, name, plain, language), license) + "\n" + text


def _reading(cutting: Truncation) -> str:
    """Return words for what the model reads of a long text."""
    if not cutting.passages:
        return f"texts are truncated to {cutting.maximum_length} tokens"
    pooled = {
        "logits": "answered by the mean of their logits",
        "max": "answered together, by the largest values of their vectors",
        "attention": "answered together, by a mean of their vectors with learned weights",
    }[cutting.passage_pooling]
    return f"long texts are read in passages of {cutting.maximum_length} tokens, {pooled}"


def _words_of_training(about: About) -> CardWords:
    """Return the words for the kind of the training, which a saved model of kind similarity may not have."""
    loss = about.lineage.get("training", {}).get("similarity.loss")
    return CARDS.get(KIND_OF_LOSS.get(str(loss), ""), CARDS[about.task.kind])


def _purpose(task: Task) -> str:
    """Return words for what a model of the task does; they name the first labels."""
    purpose = CARDS[task.kind].purpose.format(labels=_first_names(task.labels, "labels"))
    intents = f", and names the intent of the whole text ({_first_names(task.intents, 'intents')})"
    return purpose + (intents if task.intents else "")


def _first_names(names: Sequence[str], noun: str) -> str:
    """Return the first names, and the number of the other ones; `noun` is what they name."""
    more = len(names) - MOST_LABELS
    return ", ".join(names[:MOST_LABELS]) + (f" and {more} more {noun}" if more > 0 else "")


def _training(about: About, encoder: str) -> list[tuple[str, str]]:
    """Return the training settings as table rows (name, value)."""
    training = about.lineage.get("training", {}).items()
    rows = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in training]
    return [("encoder", encoder), ("pooling", about.pooling), *rows, *_teacher(about.lineage.get("teacher"))]


def _teacher(facts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return table rows about the model's teacher; an empty list if there was no teacher."""
    if not facts:
        return []
    teacher = ("teacher", public_model_location(str(facts["checkpoint"])))
    if "weight" not in facts:  # a ranking learns from the teacher alone
        return [teacher]
    loss = f"weight {facts['weight']:g}, temperature {facts['temperature']:g}"
    return [
        teacher,
        ("teacher's loss term", loss),
        ("rows without labels, learnt from the teacher alone", f"{facts['unlabelled rows']:,}"),
    ]


def _metadata(about: About, model: Model, name: str, plain: bool, language: tuple[str, ...]) -> dict[str, Any]:
    """Return the card's metadata for the hub, except the license."""
    task, known = about.task, DATASETS.get(about.task.name)
    kind = CARDS[task.kind].pipeline
    scores = about.lineage.get("scores", {}) if _words_of_training(about).reproduces_scores else {}
    return {
        "language": list(language or (ENGLISH if known else ())),
        "library_name": "transformers" if family_of(model).in_transformers else "bertstream",
        "pipeline_tag": kind,
        "tags": [
            family_of(model).name,
            *(["sentence-transformers"] if has_vectors(about, plain) else []),
            "bertstream",
        ],
        "base_model": hub_name(str(about.lineage.get("checkpoint") or "")),
        "datasets": [known[0]] if known else [],
        "model-index": model_index(name, _results(scores, task, kind)),
    }


def _results(scores: Mapping[str, Mapping[str, float]], task: Task, kind: str) -> list[dict[str, Any]]:
    """Return the `results` of the card's model-index: the scores on development splits only."""
    known = DATASETS.get(task.name)
    data = {"type": known[0], "config": known[1]} if known else {"type": task.name}
    return [
        result(
            kind,
            data | {"name": f"{task.name} {split}"},
            [(METRICS.get(name, name), f"{split} {name}", value) for name, value in values.items()],
        )
        for split, values in scores.items()
        if split.startswith("dev")
    ]


def _data_name(task: Task) -> str:
    """Return a readable name of a task's data."""
    known = DATASETS.get(task.name)
    return f"{task.name} ({known[0]} on the hub)" if known else f"data called {task.name}"


def _use(about: About, family: Family, plain: bool, repository: str | None) -> str:
    """Return the usage examples.

    There is always an example for pipeline.api. There is an example for transformers if transformers gives the same
    answers, and an example for sentence-transformers if the model makes text vectors.
    """
    folder, location = (repository, f"hf://{repository}") if repository else (".", ".")
    facts, words = CardFacts(about=about, family=family, plain=plain, folder=folder), CARDS[about.task.kind]
    parts = [] if repository else [cards.HERE]
    parts += words.with_transformers(facts) if family.in_transformers else [cards.NO_ARCHITECTURE]
    if has_vectors(about, plain):
        parts.append(cards.VECTORS.format(folder=folder))
        if lengths := about.task.dimensions:
            names = ", ".join(map(str, lengths))
            parts.append(cards.SHORTER_VECTORS.format(lengths=names, longest=lengths[-1], folder=folder))
    rows = facts.example(words.rows, '[("A text.", "Another.")]')
    return "\n\n".join([*parts, cards.BY_BERTSTREAM.format(location=location, rows=rows)])


def _limits(about: About, model: Model) -> list[str]:
    """Return the model's limitations, one sentence each."""
    lines = [
        f"The model was trained for this task only, and tried only on texts of {_data_name(about.task)}.",
        "It can repeat errors and prejudices of its training rows and of its encoder's training text, which were not "
        "examined for them.",
    ]
    cutting = about.cutting
    if cutting.pools_passages:
        most = f"{cutting.maximum_passages} passages of {cutting.maximum_length} tokens"
        lines.append(f"Text after the first {most} is not read.")
    elif CARDS[about.task.kind].truncates and not cutting.passages:
        lines.append(f"Text after the first {cutting.maximum_length} tokens may not be read.")
    if about.cutting.continuation == "own":
        lines.append(
            f"Later pieces of a word were trained to have the tag {CONTINUED}: read a word's tag from its first piece."
        )
    if about.task.intents and not about.crf:
        lines.append(
            "`transformers` gives the intent as the label of the first token, [CLS], which its pipeline leaves out."
        )
    attention = model.attention
    longest = cutting.maximum_length or model.maximum_positions
    if isinstance(attention, BlockSparseAttention) and longest > attention.longest_full:
        lines.append(
            f"`transformers` answers differently for texts of more than {attention.longest_full} tokens: it has the "
            "random blocks of their attention in training only, and `bertstream` also in evaluation."
        )
    return lines


def figures(lineage: Mapping[str, Any], words: str = SAME_ANSWER) -> str:
    """Return the card's figures section: the scores of the model, and of a baseline, which `words` describe."""
    scores, baselines, rows = (lineage.get(name, {}) for name in ("scores", "baselines", "rows"))
    if not scores:
        return "None are recorded."
    lines = []
    for split, values in scores.items():
        for metric, value in values.items():
            baseline = baselines.get(split, {}).get(metric)
            lines.append((f"{split} {metric}", f"{value:.3f}", "–" if baseline is None else f"{baseline:.3f}"))
    notes = [words]
    if any(split.startswith("dev") for split in scores):
        chosen = "the settings were chosen by it" if lineage.get("chosen") else "no settings were chosen by it"
        notes.insert(0, f"Dev is a {DEVELOPMENT}, not a test set; {chosen}.")
    if "train" in scores:
        notes.append("The scores on train say little: the model was trained on these rows.")
    notes += [f"Rows of {split}: {count:,}." for split, count in rows.items()]
    return f"{' '.join(notes)}\n\n{table(('split, metric', 'this model', 'baseline'), lines)}"

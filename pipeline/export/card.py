"""The model card: what a model was trained on and how, what it reaches beside what needs no model, and where it comes from."""

import html
import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline import storage
from pipeline.corpus.prepare import Corpus, load_corpus
from pipeline.corpus.shards import COUNTED
from pipeline.errors import DataError
from pipeline.export.trained import Trained
from pipeline.train.checkpoint import WEIGHTS, read_state
from pipeline.train.summary import figures

CARD = "README.md"
HEADER = "---\nlibrary_name: transformers\npipeline_tag: fill-mask\ntags: [bert, bertstream]\n---\n"
LICENCE = "Not stated: whoever publishes this model chooses one and names it here, and as `license:` in the header. What the texts' own licences ask for is in their sources."


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Where a checkpoint comes from."""

    name: str
    """Of the run."""
    recorded: dict[str, Any]
    """What run.json holds."""
    summary: dict[str, Any] | None
    """Of the finished run."""
    corpus: Corpus | DataError
    """The prepared corpus, or why there is none to read any more."""


def corpus_of(recorded: dict[str, Any]) -> Corpus | DataError:
    """The corpus that a run was trained on, or what is wrong with it now."""
    try:
        corpus = load_corpus(recorded["corpus"])
    except DataError as error:
        return error
    expected = recorded["identity"]["corpus.fingerprint"]
    if corpus.fingerprint != expected:
        return DataError(f"{corpus.folder} is no more the corpus of this run: fingerprint {corpus.fingerprint[:12]}, the run's is {expected[:12]}")
    return corpus


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a kind of export says of the files that it wrote."""

    checked: str
    """In a few words; begins with "checked" or "not checked"."""
    use: str
    """Markdown: how to call it."""
    extra: tuple[str, ...] = ()
    """Further sections of the card."""
    figures: str = ""
    """What was measured, in a line."""


def card(trained: Trained, lineage: Lineage, kind: str, made: Made) -> str:
    """README.md of an export."""
    step = read_state(trained.checkpoint).step
    parts = [
        f"# {lineage.name}, step {step:,}",
        f"A BERT encoder with {trained.model.layers} layers of width {trained.model.width}, {trained.vocabulary_size:,} vocabulary entries and {parameters(trained):,} parameters, "
        f"pretrained with bertstream {version()}. This folder: {kind}; {made.checked}.",
        "## Use",
        made.use,
        *made.extra,
        "## Metrics",
        metrics(lineage.summary, step),
        "## Data",
        data(lineage.corpus),
        "## Settings",
        table(("setting", "value"), settings(lineage.recorded["identity"])),
        "## Lineage",
        table(("", ""), places(trained, lineage, step)),
        "## Licence",
        LICENCE,
    ]
    return HEADER + "\n" + "\n\n".join(parts) + "\n"


def parameters(trained: Trained) -> int:
    """Weights of the encoder and both heads; tied ones count once."""
    return sum(weight.numel() for weight in trained.module.parameters())


def version() -> str:
    """Of this package; a tree that was not installed has none."""
    try:
        return importlib.metadata.version("bertstream")
    except importlib.metadata.PackageNotFoundError:
        return "from its source tree"


def metrics(summary: dict[str, Any] | None, step: int) -> str:
    """What the run measured at its end, beside baselines."""
    if summary is None:
        return "None: the run is not finished, and its held-out loss is measured at its end."
    if summary["steps"] != step:
        return f"None at this step; the run was measured at its end, after {summary['steps']:,} steps."
    return table(("", ""), figures(summary))


def data(corpus: Corpus | DataError) -> str:
    """Sources, their counts, and what was left out for which reason."""
    if isinstance(corpus, DataError):
        return f"Not described: {html.escape(str(corpus))}."
    heads = ("source", "weight", *COUNTED, "left out")
    rows = [(location, f"{about['weight']:g}", *(f"{about[name]:,}" for name in COUNTED), dropped(about["dropped"])) for location, about in corpus.sources.items()]
    return f"{table(heads, rows)}\n\nIn all: {corpus.counts['documents']:,} documents; left out: {dropped(corpus.dropped)}."


def dropped(counts: dict[str, int]) -> str:
    """Reasons with their counts, commonest first."""
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda item: -item[1])) or "nothing"


def settings(identity: dict[str, Any]) -> list[tuple[str, str]]:
    """What made the run what it is; fingerprints belong to the lineage."""
    return [(f"`{name}`", str(value)) for name, value in identity.items() if not name.endswith(".fingerprint")]


def places(trained: Trained, lineage: Lineage, step: int) -> list[tuple[str, str]]:
    """Fingerprints and places that lead back to what the model was made of."""
    identity = lineage.recorded["identity"]
    weights = storage.read_json(storage.join(trained.checkpoint, storage.MANIFEST))["files"][WEIGHTS]
    server = f" at {lineage.summary['mlflow_uri']}" if lineage.summary else ""
    return [
        ("run", lineage.name),
        ("checkpoint", f"{trained.checkpoint}, SHA-256 of its weights {weights['sha256']}"),
        ("corpus", f"{lineage.recorded['corpus']}, fingerprint {identity['corpus.fingerprint']}"),
        ("vocabulary", f"fingerprint {identity['vocabulary.fingerprint']}"),
        ("MLflow run", f"{lineage.recorded['mlflow_run_id']}{server}"),
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; what looks like HTML, a link or a picture in it is text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(as_cell(cell) for cell in line) + " |" for line in lines)


def as_cell(text: str) -> str:
    """A text in a cell of a table."""
    return re.sub(r"([|\[\]])", r"\\\1", html.escape(text, quote=False)).replace("\n", " ")

"""The model card of a pretrained model: description, use, results and lineage."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.jobs import Pretrain
from pipeline.config.locations import BUILTIN
from pipeline.corpus.prepared import COUNTED, Corpus, load_corpus
from pipeline.errors import DataError, listed
from pipeline.export.audited import audited
from pipeline.export.markdown import (
    DATASET,
    header,
    hub_name,
    license_text,
    model_index,
    public_location,
    public_model_location,
    result,
    table,
    version,
    with_notes,
)
from pipeline.export.trained import Trained
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.objectives.masked import HELDOUT_LOSS, UNIGRAM_LOSS
from pipeline.objectives.table import DESCRIPTIONS, OBJECTIVES, described
from pipeline.saved.checkpoints import WEIGHTS
from pipeline.saved.pooling import exported_length, trained_length
from pipeline.saved.run import settings_of
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.train.checkpoint import read_state
from pipeline.train.summary import figures

TEACHER = "teacher.fingerprint"
"""Name of the teacher's fingerprint in the identity of a run."""
PUBLISHED_TOKENS = 1_000_000 * 256 * 512
"""Maximum training tokens of a published BERT (Devlin et al. 2019, A.2: 1 M steps of 256 sequences of 512 tokens)."""
TEMPLATE = """\
# {name}, step {step:,}

{article} {family} encoder with {layers} layers of width {width}, {vocabulary_size:,} vocabulary entries and \
{parameters:,} parameters. It was pretrained by {objective} with bertstream {version}, from {started}{texts}: {step:,} \
steps, {tokens:,} tokens, sequences of at most {length} tokens, seed {seed}.

This folder holds {form}; {checked}.

## Use

{use}

## Limitations

{limits}

## Figures

{figures}

## Data

{data}

{audited}## Settings

<details><summary>All settings that define the run</summary>

{settings}

</details>

## Lineage

{lineage}

## License

{license}
"""
FORMS = {
    "huggingface": "the published format, which `transformers` and `sentence-transformers` read",
    "onnx": "ONNX graphs",
    "int8": "ONNX graphs with 8-bit weights",
    "mlflow": "the files of a model in MLflow",
}
"""Kind of export -> its description."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Origin of a checkpoint, and how the model is published."""

    name: str
    """Name of the run."""
    recorded: dict[str, Any]
    """Content of run.json."""
    summary: dict[str, Any] | None
    """Summary of the run; None if it is not finished."""
    corpus: Corpus | DataError
    """The prepared corpus, or the error if the corpus cannot be read."""
    audit: Mapping[str, Any] | None = None
    """Texts that were looked for in the run's rows, as in saved.run.read_audit."""
    license: str | None = None
    """SPDX identifier. If it is None, the card states no license."""
    language: tuple[str, ...] = ()
    """Language codes. If empty, the card states the languages of the corpus."""
    repository: str | None = None
    """OWNER/NAME on the hub; None if the model is not pushed."""
    notes: str = ""
    """Markdown of the publisher, for the card."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """Report of an exporter about the files that it wrote."""

    checked: str
    """Short description of the check; begins with "checked" or "not checked"."""
    use: str
    """Usage examples in Markdown. FOLDER stands for the model's name in calls of transformers, PLACE for its name in
    calls of pipeline.api, and [MASK] for the vocabulary's mask token.
    """
    library: str = "transformers"
    """The hub's name of the library that loads the model."""
    tags: tuple[str, ...] = ()
    """Additional tags of the card. The family and "bertstream" are always tags."""
    extra: tuple[str, ...] = ()
    """Additional sections of the card."""
    figures: str = ""
    """Measurements in one line; empty if there are none."""


def corpus_of(recorded: dict[str, Any]) -> Corpus | DataError:
    """Return the corpus that a run was trained on, or the reason why it cannot be read."""
    try:
        corpus = load_corpus(recorded["corpus"])
    except DataError as error:
        return error
    expected = recorded["identity"]["corpus.fingerprint"]
    if corpus.fingerprint != expected:
        return DataError(
            f"{corpus.folder} is no longer the corpus of this run: "
            f"its fingerprint is {corpus.fingerprint[:12]}, the run's is {expected[:12]}"
        )
    return corpus


def card(trained: Trained, lineage: Lineage, kind: str, made: Made) -> str:
    """Return the README.md of an export."""
    state, settings = read_state(trained.checkpoint), settings_of(lineage.recorded)
    step, family = state.step, family_of(trained.model)
    text = TEMPLATE.format(
        name=lineage.name,
        step=step,
        article=family.article.capitalize(),
        family=family.title,
        layers=trained.model.layers,
        width=trained.model.width,
        vocabulary_size=trained.vocabulary_size,
        parameters=_parameters(trained),
        objective=described(settings.objective, settings.sampling),
        version=version(),
        started=_started_from(lineage, settings),
        texts=_texts(lineage),
        tokens=state.tokens,
        length=trained_length(settings),
        seed=settings.seed,
        form=_form(trained, kind),
        checked=made.checked,
        use="\n\n".join([_use(trained, made, lineage), *made.extra]),
        limits=_limits(trained, lineage, settings, step),
        figures=metrics(lineage.summary, step),
        data=data(lineage),
        audited=audited(lineage.audit or {}),
        settings=table(("setting", "value"), _settings(lineage.recorded["identity"])),
        lineage=table(("item", "identifier"), _lineage_rows(trained, lineage, step)),
        license=license_text(lineage.license),
    )
    return header(_metadata(trained, lineage, made, step), lineage.license) + "\n" + with_notes(text, lineage.notes)


def _form(trained: Trained, kind: str) -> str:
    """Return words for the files of a kind of export."""
    published = kind != "huggingface" or family_of(trained.model).in_transformers
    return FORMS[kind] if published else "a format that only `bertstream` reads"


def _metadata(trained: Trained, lineage: Lineage, made: Made, step: int) -> dict[str, Any]:
    """Return the card's metadata for the hub, except the license."""
    sources = {} if isinstance(lineage.corpus, DataError) else lineage.corpus.sources
    datasets = [match[1] for location in sources if (match := DATASET.match(location))]
    return {
        "language": list(lineage.language or languages(sources)),
        "library_name": made.library,
        "pipeline_tag": _pipeline(trained),
        "tags": [family_of(trained.model).name, *made.tags, "bertstream"],
        "base_model": hub_name(_initial_model(lineage)),
        "datasets": list(dict.fromkeys(datasets)),
        "model-index": model_index(lineage.name, _results(lineage.summary, step, _pipeline(trained))),
    }


def _use(trained: Trained, made: Made, lineage: Lineage) -> str:
    """Return the usage examples. They load the model from the hub or, if it is not pushed, from the current folder."""
    vocabulary = load_vocabulary(trained.checkpoint, None)
    use = made.use.replace("[MASK]", vocabulary.tokens[vocabulary.mask_id])
    if lineage.repository:
        return use.replace("FOLDER", lineage.repository).replace("PLACE", f"hf://{lineage.repository}")
    local = use.replace("FOLDER", ".").replace("PLACE", ".")
    return f"Run this in the model's folder; from elsewhere, give the folder's path.\n\n{local}"


def languages(sources: dict[str, dict[str, Any]]) -> list[str]:
    """Return the languages of a corpus' sources; an empty list if any source does not state its language."""
    codes = {"en" if location == BUILTIN else about.get("language") for location, about in sources.items()}
    return [] if None in codes else sorted(map(str, codes))


def _initial_model(lineage: Lineage) -> str:
    """Return the model that the run started from, as the user named it; empty if unknown."""
    return str((lineage.summary or {}).get("init") or "")


def _pipeline(trained: Trained) -> str:
    """Return the hub's name of the task that the model does."""
    return trained.module.hub_task


def _results(summary: dict[str, Any] | None, step: int, pipeline: str) -> list[dict[str, Any]]:
    """Return the `results` of the card's model-index: measurements on held-out text after `step`."""
    after = _measured(summary, step)
    scores = [(*names, after[metric]) for metric, names in DESCRIPTIONS.items() if metric in after]
    dataset = {"type": "held-out", "name": "held-out part of the training corpus"}
    return [result(pipeline, dataset, scores)] if scores else []


def _measured(summary: dict[str, Any] | None, step: int) -> dict[str, float]:
    """Return metric -> value on held-out text after `step`; an empty dict if the run was not measured at `step`."""
    return summary["heldout_after"] if summary and summary["steps"] == step else {}


def _started_from(lineage: Lineage, settings: Pretrain) -> str:
    """Return words for the introduction: the initial weights and, for a distillation, the teacher."""
    identity, objective = lineage.recorded["identity"], settings.objective
    initial = public_model_location(_initial_model(lineage)) or "another model"
    started = f"the weights of {initial}" if "init.fingerprint" in identity else "random weights"
    if not objective.teacher_gives:
        return started
    teacher = public_model_location(str((lineage.summary or {}).get("teacher") or "")) or "another model"
    started = (
        "layers of its teacher" if objective.starts_from_teacher and "init.fingerprint" not in identity else started
    )
    return f"{started} (the teacher is {teacher})"


def _texts(lineage: Lineage) -> str:
    """Return words for the introduction: amount and sources of training text; "" if the corpus cannot be read."""
    if isinstance(lineage.corpus, DataError):
        return ""
    sources = lineage.corpus.sources
    named = listed([public_location(location) for location in sources])
    return f", on {sum(about['characters'] for about in sources.values()):,} characters of {named}"


def _limits(trained: Trained, lineage: Lineage, settings: Pretrain, step: int) -> str:
    """Return the model's limitations as a Markdown list."""
    tokens, longest = read_state(trained.checkpoint).tokens, trained_length(settings)
    lines = [
        *OBJECTIVES[type(settings.objective)].uses(settings.sampling),
        f"It was trained on {tokens:,} tokens, the published BERTs on up to {PUBLISHED_TOKENS:,} "
        "(Devlin et al. 2019, A.2).",
        "It can repeat errors and prejudices of its training text, which was not examined for them.",
    ]
    if (loss := _measured(lineage.summary, step).get(HELDOUT_LOSS)) is not None:
        assert lineage.summary is not None  # a loss was measured
        frequencies = lineage.summary["baselines"][UNIGRAM_LOSS]
        if loss >= frequencies:
            compared = f"Its held-out loss is {loss:.3f}; guessing by word frequencies alone gives {frequencies:.3f}"
            lines.insert(0, f"{compared}. It has not learned to use the words around a blank yet.")
    positions, read = trained.model.maximum_positions, exported_length(settings)
    if longest < read:
        lines.append(f"It reads {read} tokens of a text, but the texts of this training had at most {longest} tokens.")
    elif longest < positions and "init.fingerprint" in lineage.recorded["identity"]:
        lines.append(
            f"The texts of this training had at most {longest} tokens; longer ones, up to {positions}, are read as "
            f"the initial model read them. For vectors, texts are truncated to {read} tokens."
        )
    elif longest < positions:
        lines.append(
            f"Only the first {longest} of {positions} positions were trained: truncate texts to {longest} tokens."
        )
    return "\n".join(f"- {line}" for line in lines)


def _parameters(trained: Trained) -> int:
    """Return the number of weights that the run trained, including heads. Tied weights count once."""
    return sum(weight.numel() for weight in trained.module.parameters())


def metrics(summary: dict[str, Any] | None, step: int) -> str:
    """Return the card's figures section: the measurements at the end of the run, next to baselines."""
    if summary is None:
        return "None yet: the run is not finished, and the held-out loss is measured at its end."
    if summary["steps"] != step:
        return f"None at this step; the run was measured at its end, after {summary['steps']:,} steps."
    figures_table = table(("figure", "value"), figures(summary))
    note = "Measured on the held-out part of the corpus. It is a development set: settings may have been chosen by it."
    return f"{note}\n\n{figures_table}" if summary["heldout_after"] else figures_table


def data(lineage: Lineage) -> str:
    """Return the card's data section: the sources with their counts, and the drops by reason."""
    corpus = lineage.corpus
    if isinstance(corpus, DataError):
        return f"Not described: {html.escape(corpus_problem(lineage))}."
    heads = ("source", "weight", *COUNTED, "left out")
    rows = [
        (
            public_location(location),
            f"{about['weight']:g}",
            *(f"{about[name]:,}" for name in COUNTED),
            _dropped(about["dropped"]),
        )
        for location, about in corpus.sources.items()
    ]
    documents = corpus.counts["documents"]
    return f"{table(heads, rows)}\n\nIn all: {documents:,} documents; left out: {_dropped(corpus.dropped)}."


def corpus_problem(lineage: Lineage) -> str:
    """Return the reason why the corpus cannot be read. A local corpus folder is named without its parent folders."""
    folder = str(lineage.recorded["corpus"])
    return str(lineage.corpus).replace(folder, public_location(folder))


def _dropped(counts: dict[str, int]) -> str:
    """Return reasons with their counts, the most frequent first; "nothing" if there are none."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in ordered) or "nothing"


def _settings(identity: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """Return (name, value) of the settings that define the run. Fingerprints are in the lineage section instead."""
    return [(f"`{name}`", str(value)) for name, value in identity.items() if not name.endswith(".fingerprint")]


def _lineage_rows(trained: Trained, lineage: Lineage, step: int) -> list[tuple[str, str]]:
    """Return (item, identifier) for everything that the model was made from, without local paths."""
    identity = lineage.recorded["identity"]
    weights = storage.read_json(storage.join(trained.checkpoint, storage.MANIFEST))["files"][WEIGHTS]
    return [
        ("run", lineage.name),
        ("checkpoint", f"step {step:,}, SHA-256 of its weights {weights['sha256']}"),
        ("corpus", f"fingerprint {identity['corpus.fingerprint']}"),
        ("vocabulary", f"fingerprint {identity['vocabulary.fingerprint']}"),
        *[("teacher", f"fingerprint {identity[key]}") for key in (TEACHER,) if key in identity],
        ("MLflow run", str(lineage.recorded["mlflow_run_id"])),
    ]

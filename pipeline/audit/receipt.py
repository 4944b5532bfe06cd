"""The answer of an audit: written to the folder of the run, printed as a table, and logged to MLflow."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.audit.search import InCorpus, Sightings
from pipeline.audit.steps import StepFinder, TrainedRun
from pipeline.audit.texts import AuditTexts
from pipeline.command_line.columns import aligned
from pipeline.errors import ConfigError, PipelineError, shown
from pipeline.export.audited import COUNTS
from pipeline.files import storage
from pipeline.reporting import Report, from_here, to_paste
from pipeline.saved import run
from pipeline.text.ngrams import WordSpans
from pipeline.tracking.runs import is_missing, open_client, silence_mlflow, tracking_uri

WORST = 10
"""Texts that are printed."""
STEPS_PRINTED = 12
TABLE = "audit.json"
"""Artifact of the run in MLflow, in the form of its tables."""


def receipt(
    trained: TrainedRun, texts: AuditTexts, in_corpus: InCorpus, steps: StepFinder, seen: Mapping[int, Sightings]
) -> dict[str, Any]:
    """Return {name of a split: counts, and what was seen of each text}, the worst text first."""
    lengths = WordSpans.of(texts.texts).lengths
    found = {text: _about(texts.texts[text], int(lengths[text]), each, steps) for text, each in seen.items()}
    known = set(in_corpus.texts)
    splits = {}
    for name, indices in texts.splits.items():
        own = indices.tolist()
        listed = sorted((found[text] for text in own if text in found), key=_badness, reverse=True)
        short = int(texts.too_short[indices].sum())
        splits[name] = {
            "step": trained.steps,
            "texts": len(own),
            "seen": len(listed),
            "not_seen": len(own) - len(listed) - short,
            "too_short": short,
            "in_corpus": sum(text in known for text in own),
            "found": listed,
        }
    return splits


def _about(text: str, words: int, seen: Sightings, steps: StepFinder) -> dict[str, Any]:
    """Return what was seen of a text."""
    sights = []
    for sight in seen.sights:
        step, row = steps.step_of(sight.window, sight.row)
        about = {"step": step, "row": row, "document": sight.document, "words": sight.words, "shown": sight.shown}
        sights.append(about)
    return {
        "text": text,
        "words": words,
        "words_seen": max(sight.words for sight in seen.sights),
        "times": seen.times,
        "sights": sights,
    }


def _badness(about: Mapping[str, Any]) -> tuple[int, int]:
    """Return the order of texts: by the most words that a row has shown, then by the number of rows."""
    return about["words_seen"], about["times"]


def write(trained: TrainedRun, splits: Mapping[str, Any]) -> str:
    """Add the splits to the audit in the folder of the run, in place of earlier ones of the same names.

    Raises ConfigError if the file cannot be written, and CheckpointError if an earlier one is damaged.
    """
    location = storage.join(trained.folder, run.AUDIT)
    audited = run.read_audit(trained.folder) | dict(splits)
    try:
        storage.write_json(location, audited)
    except OSError as error:
        raise ConfigError(
            f"{location} cannot be written: {storage.first_line(error)}; give access, and run the audit again, or use "
            "what is printed above"
        ) from error
    return location


def lines(trained: TrainedRun, splits: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of splits, and the texts of which most was seen."""
    begun = f"{trained.epochs:,} epoch{'s' * (trained.epochs > 1)} begun"
    yield f"texts that the run has seen in its {trained.steps:,} steps, {begun}:"
    heads = ("split", *(count.replace("_", " ") for count in COUNTS))
    yield from aligned(heads, [(name, *(f"{about[count]:,}" for count in COUNTS)) for name, about in splits.items()])
    unread = sum(about["in_corpus"] - about["seen"] for about in splits.values())
    if unread:
        yield f"{unread:,} of the texts not seen are in the corpus, but in no row of the {trained.steps:,} steps"
    if "init.fingerprint" in trained.recorded["identity"]:
        yield "the run began with the weights of another model, and what that model saw is not known here"
    every = [(name, text) for name, about in splits.items() for text in about["found"]]
    for name, about in sorted(every, key=lambda pair: _badness(pair[1]), reverse=True)[:WORST]:
        yield from _text_lines(trained, name, about)


def _text_lines(trained: TrainedRun, name: str, about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about one text."""
    sights = about["sights"]
    steps = list(dict.fromkeys(sight["step"] for sight in sights))
    more = "" if len(steps) <= STEPS_PRINTED and about["times"] <= len(sights) else ", …"
    documents = list(dict.fromkeys(sight["document"] for sight in sights))
    yield f"{shown(about['text'])} ({name})"
    rows = "1 row" if about["times"] == 1 else f"{about['times']:,} rows"
    at = ", ".join(f"{step:,}" for step in steps[:STEPS_PRINTED]) + more
    yield f"    {about['words_seen']:,} of {about['words']:,} words, in {rows}, at step{'s' * (len(steps) > 1)} {at}"
    yield f"    document {documents[0]}{f' and {len(documents) - 1:,} more' * (len(documents) > 1)}"
    first = max(sights, key=lambda sight: sight["words"])
    yield f"    masked in brackets: {first['shown']}"
    seen = f"python jobs/show.py seen {shlex.quote(from_here(trained.folder))} {first['step']} --row {first['row']}"
    yield f"    {to_paste(seen)}"


def log(trained: TrainedRun, report: Report) -> None:
    """Log the table of all splits audited so far to the run in MLflow; if MLflow does not have the run, say so."""
    summary, run_id = run.read_summary(trained.folder) or {}, trained.recorded["mlflow_run_id"]
    columns, splits = ("split", *COUNTS, "step"), run.read_audit(trained.folder)
    data = [[name, *(about[column] for column in columns[1:])] for name, about in splits.items()]
    try:
        uri = tracking_uri(summary.get("mlflow_uri"), trained.folder.rsplit("/", 2)[0])
        if is_missing(uri):
            raise ConfigError(f"{uri} does not exist")
        silence_mlflow()
        client = open_client(uri)
        client.log_dict(run_id, {"columns": columns, "data": data}, TABLE)
        client.set_tag(run_id, "mlflow.loggedArtifacts", f'[{{"path": "{TABLE}", "type": "table"}}]')
    except Exception as error:  # errors of MLflow, SQLAlchemy or requests: the audit is written already
        reason = str(error) if isinstance(error, PipelineError) else storage.first_line(error)
        report(f"the table was not logged to MLflow: {reason}")

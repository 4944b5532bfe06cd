"""Parts of a model card: tables, names of locations, and the YAML header for the Hugging Face hub."""

import html
import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from pipeline.config.publishing import license_fields
from pipeline.files import storage
from pipeline.files.locations import is_url

DEVELOPMENT = "development set"
"""Words that are added to each data set's name in a card's results, because no result is of a test set."""
DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")
UNSAID = (
    "Not stated. Whoever publishes this model chooses a license (`--license` of `jobs/export.py`). The training texts "
    "have licenses of their own; see their sources."
)
"""License section of a card without a license."""
LICENSES = "https://spdx.org/licenses"


def header(fields: Mapping[str, Any], license: str | None) -> str:
    """Return the YAML header of a card, without empty fields. `license` is an SPDX identifier or None."""
    wanted = dict(fields) | (license_fields(license) if license else {})
    kept = {name: value for name, value in wanted.items() if value not in (None, "", [], ())}
    return f"---\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)}---\n"


def with_notes(card: str, notes: str) -> str:
    """Return a card with its publisher's own Markdown, if there is any, before the section "Use"."""
    return card.replace("\n## Use\n", f"\n{notes.strip()}\n\n## Use\n", 1) if notes.strip() else card


def license_text(license: str | None) -> str:
    """Return the card's license section."""
    return f"[{license}]({LICENSES}/{license}.html)." if license else UNSAID


def result(task: str, dataset: Mapping[str, Any], metrics: Sequence[tuple[str, str, float]]) -> dict[str, Any]:
    """Return one result of a card's model-index. `metrics` has (hub name, readable name, value) of each metric."""
    measured = [{"type": hub_type, "value": round(value, 4), "name": name} for hub_type, name, value in metrics]
    marked = dict(dataset) | {"name": f"{dataset['name']}, {DEVELOPMENT}", "split": "validation"}
    return {"task": {"type": task}, "dataset": marked, "metrics": measured}


def model_index(name: str, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the value of the field model-index: an empty list if there are no results."""
    return [{"name": name, "results": list(results)}] if results else []


def hub_name(location: str) -> str | None:
    """Return OWNER/NAME of a model on the hub; None for any other location."""
    return location.removeprefix(storage.HUB).partition("@")[0] if location.startswith(storage.HUB) else None


def public_location(location: str) -> str:
    """Return a location for publication: a URL unchanged, a local path reduced to its last part."""
    return location if is_url(location) else location.rstrip("/").rpartition("/")[2]


def public_model_location(location: str) -> str:
    """Return a model's location for publication, without the parent folders of a local path.

    For a path in a run or trial, the result begins with the name of the run or trial. For another path, the result is
    the last part of the path. URLs and locations without a leading slash are unchanged.
    """
    if not location.startswith("/"):
        return location
    folder = next((folder for folder in ("/runs/", "/finetune/") if folder in location), None)
    return location.rpartition(folder)[2] if folder else public_location(location)


def version() -> str:
    """Return this package's version, or "from its source tree" if the package is not installed."""
    try:
        return importlib.metadata.version("bertstream")
    except importlib.metadata.PackageNotFoundError:
        return "from its source tree"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; HTML, links and pictures in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_as_cell(cell) for cell in line) + " |" for line in lines)


def _as_cell(text: str) -> str:
    """Escape a text for a table cell."""
    return re.sub(r"([|\[\]])", r"\\\1", html.escape(text, quote=False)).replace("\n", " ")

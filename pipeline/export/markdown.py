"""Pieces of a model card: tables, names of places, and the YAML header that the Hugging Face hub reads."""

import html
import importlib.metadata
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from pipeline import storage
from pipeline.config.publishing import license_fields

CARD = "README.md"
DEVELOPMENT = "development set"
"""What the name of every data set of a card's figures ends in: none is a test set."""
DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")
UNSAID = (
    "Not stated: whoever publishes this model chooses one (`--license` of `jobs/export.py`). What the licenses of its "
    "texts ask for is in their sources."
)
LICENSES = "https://spdx.org/licenses"


def header(fields: Mapping[str, Any], license: str | None) -> str:
    """Return the YAML header of a card; fields without a value are left out. `license` is an SPDX identifier."""
    wanted = dict(fields) | (license_fields(license) if license else {})
    kept = {name: value for name, value in wanted.items() if value not in (None, "", [], ())}
    return f"---\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)}---\n"


def license_text(license: str | None) -> str:
    """Return what the card's last section says."""
    return f"[{license}]({LICENSES}/{license}.html)." if license else UNSAID


def result(task: str, dataset: Mapping[str, Any], metrics: Sequence[tuple[str, str, float]]) -> dict[str, Any]:
    """Return one result of a model-index; metrics are (the hub's name, name for people, value)."""
    measured = [{"type": type, "value": round(value, 4), "name": name} for type, name, value in metrics]
    marked = dict(dataset) | {"name": f"{dataset['name']}, {DEVELOPMENT}", "split": "validation"}
    return {"task": {"type": task}, "dataset": marked, "metrics": measured}


def model_index(name: str, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the field model-index; empty without results."""
    return [{"name": name, "results": list(results)}] if results else []


def hub_name(location: str) -> str | None:
    """Return OWNER/NAME of a model of the hub; None for any other place."""
    return location.removeprefix(storage.HUB).partition("@")[0] if location.startswith(storage.HUB) else None


def public_place(location: str) -> str:
    """Return a location as others may read it: a URL whole, of a local path its last name."""
    return location if storage.is_url(location) else location.rstrip("/").rpartition("/")[2]


def model_place(location: str) -> str:
    """Return the place of a model as others may read it: of one of this machine the run or trial, and what of it."""
    inside = location.rpartition("/runs/")[2] if "/runs/" in location else location.rpartition("/finetune/")[2]
    return location if storage.is_url(location) else public_place(location) if inside == location else inside


def version() -> str:
    """Return the version of this package; a tree that was not installed has none."""
    try:
        return importlib.metadata.version("bertstream")
    except importlib.metadata.PackageNotFoundError:
        return "from its source tree"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; what looks like HTML, a link or a picture in it is text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(as_cell(cell) for cell in line) + " |" for line in lines)


def as_cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return re.sub(r"([|\[\]])", r"\\\1", html.escape(text, quote=False)).replace("\n", " ")

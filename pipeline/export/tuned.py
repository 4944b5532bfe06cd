"""Export a fine-tuned model: its files and a model card, without local paths."""

from pipeline.config.checks import require
from pipeline.config.export import Export
from pipeline.config.publishing import spdx_identifier
from pipeline.errors import CheckpointError
from pipeline.export.hub import fetch, push
from pipeline.export.markdown import public_model_location, with_notes
from pipeline.export.tuned_card import tuned_files
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.fine_tuned.model import open_tuned
from pipeline.reporting import Report
from pipeline.saved.checkpoints import CARD, TASK

ONLY = ("huggingface",)
"""Kinds of export that fine-tuned models support."""
CHECKED = "checked: read back from its files"


def is_tuned(location: str) -> bool:
    """Return whether a folder holds a fine-tuned model."""
    return storage.exists(storage.join(location, TASK))


def target_of(config: Export, location: str) -> str:
    """Return the folder to write: TRIAL/exports/huggingface, or FOLDER/huggingface if the setting `folder` is given."""
    folder = config.folder or storage.join(location.rpartition("/")[0], "exports")
    return storage.join(folder, ONLY[0])


def require_published_format(config: Export) -> None:
    """Raise ConfigError for settings that apply to runs only."""
    kinds = ", ".join(config.kinds)
    require(config.kinds == ONLY, f"kinds ({kinds}) are for runs: a fine-tuned model is exported as {ONLY[0]} only")
    require(
        config.step is None,
        f"step ({config.step}) is for runs: a fine-tuned model has a single state, so leave step out",
    )


def export_tuned(config: Export, location: str, target: str, notes: str, report: Report) -> None:
    """Publish a fine-tuned model's folder with its card, push it if requested, and report its location.

    `notes` is Markdown of the publisher, for the card.

    Raises CheckpointError if the written files do not match their manifest, or if the hub refuses the upload.
    """
    tuned = open_tuned(location)
    with scratch_folder("export") as folder:
        for name in fetch(location, folder):
            if name == storage.MANIFEST:
                (folder / name).unlink()
        record = storage.read_json(str(folder / TASK))
        lineage = record["lineage"]
        for origin in (lineage, *filter(None, [lineage.get("teacher")])):
            origin["checkpoint"] = public_model_location(str(origin.get("checkpoint") or ""))
        storage.write_json(str(folder / TASK), record)
        files = tuned_files(
            tuned.about, tuned.model, plain=tuned.bottleneck is None, language=config.language,
            license=config.license and spdx_identifier(config.license), repository=config.push_to_hub,
        )  # fmt: skip
        files[CARD] = with_notes(files[CARD], notes)
        for name, content in files.items():
            storage.write_bytes(str(folder / name), content.encode())
        storage.publish(folder, target, {"checkpoint": location, "kind": ONLY[0], "checked": CHECKED})
    if problem := storage.damage(target):
        raise CheckpointError(f"export {target} was not written correctly ({problem}): export again with --replace")
    open_tuned(target)
    report(f"{ONLY[0]}: {target}; {CHECKED}")
    if config.push_to_hub:
        report(f"{ONLY[0]}: pushed to {push(target, config.push_to_hub, config.private)}")

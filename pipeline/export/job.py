"""The export job: make, check and publish each requested kind of export, and read it back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline import storage
from pipeline.config.export import Export
from pipeline.config.locations import with_absolute_locations
from pipeline.config.publishing import spdx_identifier
from pipeline.config.training import Tracking
from pipeline.errors import CheckpointError, ConfigError, listed
from pipeline.export import hub, registry, tuned
from pipeline.export.card import Lineage, card, corpus_of
from pipeline.export.kinds import FOLDERS
from pipeline.export.markdown import CARD
from pipeline.export.onnx_graphs import require_onnx
from pipeline.export.trained import Trained, find_checkpoint, load_trained, recorded_run
from pipeline.local_files import scratch_folder
from pipeline.text.sentences import is_language_code
from pipeline.train import run
from pipeline.train.checkpoint import read_state
from pipeline.train.tracking import tracking_uri

Report = Callable[[str], None]


def export_run(config: Export, report: Report) -> None:
    """Make every kind in config.kinds, push it if requested, and report where it is and how it was checked.

    All settings are checked before anything is made.
    """
    config = with_absolute_locations(config)
    folder = config.run
    _require_languages(config.language)
    if config.push_to_hub:
        hub.require_hub(config.push_to_hub)
    if tuned.is_tuned(folder):
        tuned.require_published_format(config)
        target = tuned.target_of(config, folder)
        storage.require_writable("folder", target.rpartition("/")[0])
        _require_free(target, config.replace)
        tuned.export_tuned(config, folder, target, report)
        return
    recorded = recorded_run(folder)
    checkpoint = find_checkpoint(folder, config.step, report)
    target = config.folder or storage.join(folder, "exports", checkpoint.rsplit("/", 1)[1])
    if set(config.kinds) & set(FOLDERS):
        storage.require_writable("folder", target)
    lineage = Lineage(
        name=folder.rsplit("/", 1)[1], recorded=recorded, summary=run.read_summary(folder), corpus=corpus_of(recorded),
        license=config.license and spdx_identifier(config.license), language=config.language,
        repository=config.push_to_hub,
    )  # fmt: skip
    for kind in config.kinds:
        if kind in FOLDERS:
            _require_free(storage.join(target, kind), config.replace)
        if kind in ("onnx", "int8"):
            require_onnx(kind)
    uri = _mlflow_uri(config, folder, lineage)
    if "mlflow" in config.kinds:
        registry.require_run(uri, recorded["mlflow_run_id"])
    trained = load_trained(checkpoint)
    with scratch_folder("export") as scratch:
        for kind in config.kinds:
            made = (
                _log(trained, lineage, config, uri)
                if kind == "mlflow"
                else publish(trained, lineage, kind, scratch, storage.join(target, kind))
            )
            report(f"{kind}: {made}")
            if config.push_to_hub:
                report(f"{kind}: pushed to {hub.push(storage.join(target, kind), config.push_to_hub, config.private)}")


def _require_languages(codes: Sequence[str]) -> None:
    """Raise ConfigError for an invalid language code."""
    if wrong := [code for code in codes if not is_language_code(code)]:
        raise ConfigError(f"language ({wrong[0]}) is no code of a language: give one of ISO 639, such as en")


def _mlflow_uri(config: Export, folder: str, lineage: Lineage) -> str:
    """Return the MLflow URI that tracked the run. Raises ConfigError if it is unknown."""
    known = config.mlflow_uri or (lineage.summary["mlflow_uri"] if lineage.summary else None)
    return tracking_uri(Tracking(uri=known), folder.rsplit("/", 2)[0]) if "mlflow" in config.kinds else ""


def _require_free(target: str, replace: bool) -> None:
    """Raise ConfigError unless `target` is empty, or an export that may be replaced."""
    there = storage.children(target)
    if not there:
        return
    try:
        manifest = storage.read_json(storage.join(target, storage.MANIFEST))
        known = f"an export of {manifest['checkpoint']}"
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{target} holds files that are no export ({listed(there, 3)}): delete them, or choose another --folder"
        ) from None
    if not replace:
        raise ConfigError(f"{target} holds {known}: give --replace, or choose another --folder")


def publish(trained: Trained, lineage: Lineage, kind: str, scratch: Path, target: str) -> str:
    """Make a kind's folder, publish it with its card, and return its location and how it was checked."""
    with scratch_folder("export") as folder:
        made = FOLDERS[kind](trained, lineage, scratch, folder)
        (folder / CARD).write_text(card(trained, lineage, kind, made))
        storage.publish(folder, target, {"checkpoint": trained.checkpoint, "kind": kind, "checked": made.checked})
    if problem := storage.damage(target):
        raise CheckpointError(f"export {target} was not written as it should ({problem}): export again with --replace")
    return "; ".join(part for part in (target, made.checked, made.figures) if part)


def _log(trained: Trained, lineage: Lineage, config: Export, uri: str) -> str:
    """Log the model to its run, register it if requested, and return its URI and how it was checked."""
    with scratch_folder("export") as temporary:
        written, published = temporary / "written", temporary / "model"
        written.mkdir()
        made = FOLDERS["huggingface"](trained, lineage, temporary, written)
        (written / CARD).write_text(card(trained, lineage, "mlflow", replace(made, use=registry.USE)))
        storage.publish(written, str(published), {"checkpoint": trained.checkpoint})
        model_uri = registry.log(
            published, trained, uri, lineage.recorded["mlflow_run_id"], read_state(trained.checkpoint).step
        )
    place = registry.register(model_uri, config.register, uri) if config.register else model_uri
    return f"{place} at {uri}; checked: the loaded model's answers equal the checkpoint's; its files {made.checked}"

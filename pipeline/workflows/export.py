"""Export a run's model or a fine-tuned model: write, check and publish each requested kind, with a model card."""

from pipeline.config.export import Export
from pipeline.config.locations import with_absolute_locations
from pipeline.config.publishing import spdx_identifier
from pipeline.export import hub, registry, tuned
from pipeline.export.card import Lineage, corpus_of
from pipeline.export.kinds import FOLDERS
from pipeline.export.onnx_graphs import require_onnx
from pipeline.export.publish import log, mlflow_uri, publish, read_notes, require_free, require_kinds, require_languages
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.reporting import Report
from pipeline.saved import run
from pipeline.saved.checkpoints import find_checkpoint
from pipeline.saved.run import recorded_run


def export(config: Export, report: Report) -> None:
    """Write every kind in config.kinds, push it to the hub if requested, and report its location and its check.

    All settings are checked before anything is written. Raises PipelineError, with a one-line message, for everything
    that the user can fix.
    """
    config = with_absolute_locations(config)
    folder = config.run
    require_languages(config.language)
    notes = read_notes(config.notes)
    if config.push_to_hub:
        hub.require_hub(config.push_to_hub)
    if tuned.is_tuned(folder):
        _export_tuned(config, folder, notes, report)
    else:
        _export_run(config, folder, notes, report)


def _export_tuned(config: Export, folder: str, notes: str, report: Report) -> None:
    """Export a fine-tuned model, as a Hugging Face folder."""
    tuned.require_published_format(config)
    target = tuned.target_of(config, folder)
    storage.require_writable("folder", target.rpartition("/")[0])
    require_free(target, config.replace)
    tuned.export_tuned(config, folder, target, notes, report)


def _export_run(config: Export, folder: str, notes: str, report: Report) -> None:
    """Export a checkpoint of a pretraining run, in every requested kind."""
    recorded = recorded_run(folder)
    require_kinds(config.kinds, run.settings_of(recorded))
    checkpoint = find_checkpoint(folder, config.step, report)
    target = config.folder or storage.join(folder, "exports", checkpoint.rsplit("/", 1)[1])
    if set(config.kinds) & set(FOLDERS):
        storage.require_writable("folder", target)
    lineage = Lineage(
        name=folder.rsplit("/", 1)[1], recorded=recorded, summary=run.read_summary(folder), corpus=corpus_of(recorded),
        license=config.license and spdx_identifier(config.license), language=config.language,
        audit=run.read_audit(folder), repository=config.push_to_hub, notes=notes,
    )  # fmt: skip
    for kind in config.kinds:
        if kind in FOLDERS:
            require_free(storage.join(target, kind), config.replace)
        if kind in ("onnx", "int8"):
            require_onnx(kind)
    uri = mlflow_uri(config, folder, lineage)
    if "mlflow" in config.kinds:
        registry.require_run(uri, recorded["mlflow_run_id"])
    trained = load_trained(checkpoint)
    with scratch_folder("export") as scratch:
        for kind in config.kinds:
            made = (
                log(trained, lineage, config, uri)
                if kind == "mlflow"
                else publish(trained, lineage, kind, scratch, storage.join(target, kind))
            )
            report(f"{kind}: {made}")
            if config.push_to_hub:
                report(f"{kind}: pushed to {hub.push(storage.join(target, kind), config.push_to_hub, config.private)}")

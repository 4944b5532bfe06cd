"""Make, check and publish one kind of export. Raise errors for settings and target folders that cannot work."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.command_line.options import flag_of
from pipeline.config.export import Export
from pipeline.config.jobs import Pretrain
from pipeline.config.model import FAMILY_PARTS, Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.needs import ENHANCED_DECODER, MASKED_HEAD
from pipeline.errors import CheckpointError, ConfigError, listed
from pipeline.export import registry
from pipeline.export.card import Lineage, card
from pipeline.export.kinds import FOLDERS
from pipeline.export.trained import Trained
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.model.families.table import family_of
from pipeline.saved.checkpoints import CARD
from pipeline.text.sentences import is_language_code
from pipeline.tracking.runs import tracking_uri
from pipeline.train.checkpoint import read_state


def require_languages(codes: Sequence[str]) -> None:
    """Raise ConfigError if a code is not a language code."""
    if wrong := [code for code in codes if not is_language_code(code)]:
        raise ConfigError(f"language ({wrong[0]}) is not a language code: give an ISO 639 code, such as en")


def read_notes(location: str | None) -> str:
    """Return the text of a Markdown file, "" without one. Raises ConfigError if it cannot be read."""
    try:
        return storage.read_bytes(location).decode() if location else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"notes ({location}) is not a readable text file: {storage.first_line(error)}") from None


def require_kinds(kinds: Sequence[str], settings: Pretrain) -> None:
    """Raise ConfigError if a kind of export needs a head or a published architecture that the run does not have."""
    _require_blanks(kinds, settings)
    _require_architecture(kinds, settings.model)
    wrong = [kind for kind in kinds if kind != "huggingface"]
    if wrong and ENHANCED_DECODER in settings.objective.needs:
        raise ConfigError(
            f"kinds ({listed(wrong)}) need a masked-token head that transformers has, and it has no enhanced mask "
            "decoder (objective.decoder): choose huggingface"
        )


def _require_blanks(kinds: Sequence[str], settings: Pretrain) -> None:
    """Raise ConfigError if a kind of export needs a masked-token head and the run trained none."""
    wrong = [kind for kind in kinds if kind != "huggingface"]
    if wrong and MASKED_HEAD not in settings.objective.offers:
        name = flag_of(type(settings.objective))
        raise ConfigError(
            f"kinds ({listed(wrong)}) need a masked-token head, which a run with objective {name} does not have: "
            "choose huggingface"
        )


def _require_architecture(kinds: Sequence[str], model: Model) -> None:
    """Raise ConfigError if a kind of export needs transformers' code of an architecture that transformers lacks, or
    that cannot be traced.
    """
    wrong = [kind for kind in kinds if kind in ("onnx", "int8")]
    if wrong and (exchanged := FAMILY_PARTS[model.family].exchanged(model)):
        raise ConfigError(
            f"kinds ({listed(wrong)}) need an architecture that transformers has, but {exchanged[0]} ({exchanged[1]}) "
            f"is of no published {model.family}: choose huggingface"
        )
    family = family_of(model)
    if wrong and not family.in_transformers:
        raise ConfigError(
            f"kinds ({listed(wrong)}) need an architecture that transformers has, and it has no {family.title}: choose "
            "huggingface"
        )
    if wrong and not family.has_graphs:
        raise ConfigError(
            f"kinds ({listed(wrong)}) need a graph, but operators of transformers' {family.title} depend on the values "
            "of its inputs: choose huggingface"
        )
    if wrong and isinstance(model.attention, BlockSparseAttention):
        raise ConfigError(
            f"kinds ({listed(wrong)}) cannot have model.attention block-sparse-attention, because transformers, which "
            "writes the graphs, has no random blocks in evaluation: choose huggingface"
        )


def mlflow_uri(config: Export, folder: str, lineage: Lineage) -> str:
    """Return the URI of the MLflow server or file that tracked the run; "" if config.kinds does not include "mlflow".

    Raises ConfigError if the URI is unknown.
    """
    known = config.mlflow_uri or (lineage.summary["mlflow_uri"] if lineage.summary else None)
    return tracking_uri(known, folder.rsplit("/", 2)[0], "mlflow_uri") if "mlflow" in config.kinds else ""


def require_free(target: str, replace: bool) -> None:
    """Raise ConfigError if `target` has files that are not an export, or has an export and `replace` is false."""
    names = storage.children(target)
    if not names:
        return
    try:
        manifest = storage.read_json(storage.join(target, storage.MANIFEST))
        content = f"an export of {manifest['checkpoint']}"
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{target} holds files that are not an export ({listed(names, 3)}): delete them, or choose another --folder"
        ) from None
    if not replace:
        raise ConfigError(f"{target} holds {content}: give --replace, or choose another --folder")


def publish(trained: Trained, lineage: Lineage, kind: str, scratch: Path, target: str) -> str:
    """Export one kind to `target`, with a card; return one line with location, check and measurements.

    Raises CheckpointError if the written files do not match their manifest.
    """
    with scratch_folder("export") as folder:
        made = FOLDERS[kind](trained, lineage, scratch, folder)
        (folder / CARD).write_text(card(trained, lineage, kind, made), "utf-8")
        storage.publish(folder, target, {"checkpoint": trained.checkpoint, "kind": kind, "checked": made.checked})
    if problem := storage.damage(target):
        raise CheckpointError(f"export {target} was not written correctly ({problem}): export again with --replace")
    return "; ".join(part for part in (target, made.checked, made.figures) if part)


def log(trained: Trained, lineage: Lineage, config: Export, uri: str) -> str:
    """Log the model to its MLflow run, register it if requested, and return one line with URI and check."""
    with scratch_folder("export") as temporary:
        written, published = temporary / "written", temporary / "model"
        written.mkdir()
        made = FOLDERS["huggingface"](trained, lineage, temporary, written)
        (written / CARD).write_text(card(trained, lineage, "mlflow", replace(made, use=registry.USE)), "utf-8")
        storage.publish(written, str(published), {"checkpoint": trained.checkpoint})
        model_uri = registry.log(
            published, trained, uri, lineage.recorded["mlflow_run_id"], read_state(trained.checkpoint).step
        )
    address = registry.register(model_uri, config.register, uri) if config.register else model_uri
    return (
        f"{address} at {uri}; checked: the loaded model's answers equal the checkpoint's; exported files {made.checked}"
    )

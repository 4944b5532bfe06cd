"""Settings of an export."""

from dataclasses import dataclass

from pipeline.config.checks import require
from pipeline.config.locations import Location
from pipeline.config.publishing import require_hub_name, spdx_identifier

EXPORT_KINDS = ("huggingface", "onnx", "int8", "mlflow")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a model."""

    run: Location
    """Folder or URL of the run, or of a fine-tuned model (TRIAL/model)."""
    kinds: tuple[str, ...] = EXPORT_KINDS[:1]
    """huggingface: a folder for transformers; onnx: graphs that compute fill-mask logits and sentence embeddings; int8:
    the same graphs with 8-bit weights, compared with the float32 graphs; mlflow: a model in the run's MLflow that fills
    masks and computes embeddings.
    """
    step: int | None = None
    """Step of the checkpoint to export; default: the newest intact checkpoint."""
    folder: Location | None = None
    """Output folder, with a subfolder for each kind; default: RUN/exports/step-STEP, or TRIAL/exports for a fine-tuned
    model.
    """
    replace: bool = False
    """Replace an existing export."""
    register: str | None = None
    """Name in MLflow's model registry under which the mlflow export becomes a new version; default: not registered."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: the URI in the run's summary, else MLFLOW_TRACKING_URI, else SQLite at
    OUTPUT/mlflow.db.
    """
    license: str | None = None
    """License to name in the model's card, as an SPDX identifier such as apache-2.0; default: no license is named."""
    language: tuple[str, ...] = ()
    """Languages to name in the model's card, as codes such as en; default: the languages of the corpus' sources."""
    notes: Location | None = None
    """Markdown file whose text the model's card has before "Use", such as scores and the command of the run."""
    push_to_hub: str | None = None
    """Repository OWNER/NAME on the Hugging Face hub to which the export is uploaded with its card.

    Needs exactly one kind (not mlflow), the extra [hub], a license, and a token with write access (HF_TOKEN, or hf auth
    login).
    """
    private: bool = False
    """Make the repository private if push_to_hub creates it; otherwise it is public."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in EXPORT_KINDS]
        require(
            self.kinds != () and not unknown,
            f"kinds ({', '.join(unknown) or 'none'}) must be among {', '.join(EXPORT_KINDS)}",
        )
        require(
            self.register is None or "mlflow" in self.kinds,
            f"register ({self.register}) needs the kind mlflow: add it to kinds ({', '.join(self.kinds)})",
        )
        if self.license is not None:
            spdx_identifier(self.license)
        if self.push_to_hub is None:
            require(
                not self.private, "private needs push_to_hub: give --push-to-hub OWNER/NAME too, or leave private out"
            )
            return
        require_hub_name(self.push_to_hub)
        require(
            self.license is not None,
            f"push_to_hub ({self.push_to_hub}) needs license: give the SPDX identifier of the license under which "
            "others may use the model, such as --license apache-2.0",
        )
        require(
            len(self.kinds) == 1 and self.kinds != ("mlflow",),
            f"push_to_hub ({self.push_to_hub}) uploads one folder, but kinds is {', '.join(self.kinds)}: "
            "choose one of huggingface, onnx, int8, and push the others under other names",
        )

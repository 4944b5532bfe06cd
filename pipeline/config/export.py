"""Settings of an export."""

from dataclasses import dataclass

from pipeline.config.checks import require
from pipeline.config.locations import Location
from pipeline.config.publishing import require_hub_name, spdx_identifier

EXPORT_KINDS = ("huggingface", "onnx", "int8", "mlflow")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Take a model out."""

    run: Location
    """Folder or URL of the run, or of a fine-tuned model (TRIAL/model)."""
    kinds: tuple[str, ...] = EXPORT_KINDS[:1]
    """huggingface: a folder for transformers; onnx: graphs of fill-mask logits and sentence embeddings; int8: the same
    with 8-bit weights, measured beside float32's; mlflow: a model in the run's MLflow that fills masks and gives
    embeddings.
    """
    step: int | None = None
    """Step of the checkpoint; default: the newest sound one."""
    folder: Location | None = None
    """Folder of the kinds' folders; default: RUN/exports/step-STEP."""
    replace: bool = False
    """Replace an existing export."""
    register: str | None = None
    """Name in MLflow's registry for a new version of the kind mlflow; default: not registered."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: that of the run's summary, else MLFLOW_TRACKING_URI, else SQLite at
    OUTPUT/mlflow.db.
    """
    license: str | None = None
    """License of the model for its card, by its SPDX identifier such as apache-2.0. Default: no license is named."""
    language: tuple[str, ...] = ()
    """Languages of the texts, by their codes such as en; default: those named for the sources of the corpus."""
    push_to_hub: str | None = None
    """OWNER/NAME on the Hugging Face hub, where the one kind asked for is uploaded with its card.

    Needs the extra [hub], a license, and a token that may write (HF_TOKEN, or hf auth login).
    """
    private: bool = False
    """Make the repository that push_to_hub creates private instead of public."""

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
            require(not self.private, "private is of push_to_hub: give --push-to-hub OWNER/NAME too, or leave it out")
            return
        require_hub_name(self.push_to_hub)
        require(
            self.license is not None,
            f"push_to_hub ({self.push_to_hub}) needs license: say under which one others may use the model, by its "
            "SPDX "
            "identifier, such as --license apache-2.0",
        )
        require(
            len(self.kinds) == 1 and self.kinds != ("mlflow",),
            f"push_to_hub ({self.push_to_hub}) uploads one folder, and kinds is {', '.join(self.kinds)}: "
            "ask for one of huggingface, onnx, int8, and push others under names of their own",
        )

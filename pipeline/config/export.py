"""Settings of an export."""

from dataclasses import dataclass

from pipeline.config.checks import require

EXPORT_KINDS = ("huggingface", "onnx", "int8", "mlflow")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Take a run's model out."""

    run: str
    """Folder or URL of the run."""
    kinds: tuple[str, ...] = EXPORT_KINDS[:1]
    """huggingface: a folder for transformers; onnx: graphs of fill-mask logits and sentence embeddings; int8: the same with 8-bit weights, measured
    beside float32's; mlflow: a model in the run's MLflow that fills masks and gives embeddings."""
    step: int | None = None
    """Which checkpoint; none: the newest sound one."""
    folder: str | None = None
    """Where the kinds' folders go; none: RUN/exports/step-STEP."""
    replace: bool = False
    """Whether an export that is there may be deleted."""
    register: str | None = None
    """Name in MLflow's registry under which the kind mlflow becomes a new version; none: it is not registered."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; none: what the run's summary says, else MLFLOW_TRACKING_URI, else SQLite at OUTPUT/mlflow.db."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in EXPORT_KINDS]
        require(self.kinds != () and not unknown, f"kinds ({', '.join(unknown) or 'none'}) must be of {', '.join(EXPORT_KINDS)}")
        require(self.register is None or "mlflow" in self.kinds, f"register ({self.register}) needs the kind mlflow: add it to kinds ({', '.join(self.kinds)})")

"""Settings for answering requests over HTTP with one model."""

import importlib.util
from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.locations import Location
from pipeline.config.placement import EmbedPlacement
from pipeline.errors import ConfigError

TOKEN = "BERTSTREAM_SERVE_TOKEN"
"""Environment variable of the token that clients send. It is no setting, because other users of a machine can read a
command line.
"""
NEEDED = ("grpc_reflection", "uvicorn", "fastapi")
"""Packages that Ray Serve imports; the first comes with the extra `serve` alone."""
REGISTERED = "models:/"
"""Beginning of the names of models in MLflow."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def require_serve() -> None:
    """Raise ConfigError if Ray Serve is not installed."""
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        raise ConfigError("serving needs Ray Serve: pip install 'bertstream[serve]'")


@dataclass(frozen=True, kw_only=True)
class Batching:
    """Batches of texts from several requests."""

    tokens: int = 16_384
    """Maximum tokens of the requests that are computed together. A larger request is computed alone."""
    wait: float = 0.0
    """Seconds that a request waits for others if the replica is idle. While it is busy, requests wait anyway, and are
    computed together.
    """

    def __post_init__(self) -> None:
        require_at_least("batching.tokens", self.tokens, 1)
        require(0 <= self.wait <= 10, f"batching.wait ({self.wait}) must lie between 0 and 10 seconds")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request, and of the requests that wait."""

    texts: int = 1_024
    """Texts per request."""
    length: int | None = None
    """Tokens per text; default, and at most: the model's maximum length. For a model that splits long texts: tokens of
    the whole text; default: batching.tokens.
    """
    truncate: bool = False
    """Truncate longer texts, unless a request has its own truncate. If off, such requests are refused."""
    body: int = 2_000_000
    """Bytes of a request's body."""
    waiting: int = 256
    """Requests that wait while each replica holds 64; further requests are refused with status 429."""
    seconds: float = 60.0
    """Seconds from a request's arrival to its answer; later, it is refused with status 503."""

    def __post_init__(self) -> None:
        for name in ("texts", "body", "waiting"):
            require_at_least(f"limits.{name}", getattr(self, name), 1)
        require(self.length is None or self.length >= 8, f"limits.length ({self.length}) must be at least 8")
        require_above_zero("limits.seconds", self.seconds)


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Answer requests over HTTP with one model, until stopped."""

    checkpoint: Location
    """Folder, URL or hf://OWNER/NAME of a model: an encoder for vectors or for words at [MASK], or a fine-tuned model.
    Also models:/NAME/VERSION or models:/NAME@ALIAS, a model that this project registered in MLflow.
    """
    mlflow_uri: str | None = None
    """MLflow that has the model models:/…; default: MLFLOW_TRACKING_URI, else output/mlflow.db."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than the default needs a token in the environment variable
    BERTSTREAM_SERVE_TOKEN, which clients send as "Authorization: Bearer TOKEN".
    """
    port: int = 8000
    name: str | None = None
    """Name of the model in requests and answers of the OpenAI API; default: the last two parts of checkpoint."""
    replicas: int = 1
    """Processes that hold the model."""
    cpus: float = 1.0
    """CPUs per replica."""
    gpus: float = 0.0
    """GPUs per replica, such as 0.25."""
    start_timeout: float = 600.0
    """Seconds until all replicas must be ready, else the command ends with an error. An autoscaled cluster starts its
    nodes in this time.
    """
    onnx: bool = False
    """Run the encoder with onnxruntime, on CPUs and in float32; needs the extra export. The graph is written when a
    replica starts.
    """
    batching: Batching = Batching()
    limits: Limits = Limits()
    placement: EmbedPlacement = EmbedPlacement()

    def __post_init__(self) -> None:
        require(1 <= self.port <= 65_535, f"port ({self.port}) must lie between 1 and 65,535")
        require_at_least("replicas", self.replicas, 1)
        require_above_zero("cpus", self.cpus)
        require_above_zero("start_timeout", self.start_timeout)
        require(0 <= self.gpus <= 1, f"gpus ({self.gpus}) must lie between 0 and 1")
        require(
            self.placement.device != "cuda" or self.gpus > 0,
            f"placement.device cuda needs a GPU, but gpus is {self.gpus}: set gpus to 1",
        )
        require(
            not self.onnx or (self.placement.device != "cuda" and self.gpus == 0),
            f"onnx (True) runs on CPUs, but gpus is {self.gpus} and placement.device is {self.placement.device}: leave "
            "onnx out",
        )
        require(
            not self.onnx or self.placement.precision in ("auto", "float32"),
            f"onnx (True) computes in float32, but placement.precision is {self.placement.precision}: leave one out",
        )
        require(
            self.placement.precision != "int8" or self.placement.device != "cuda",
            "placement.precision int8 needs a CPU, but placement.device is cuda: use bfloat16",
        )

    @property
    def model_name(self) -> str:
        """Name of the model in the OpenAI API."""
        return self.name or "/".join(self.checkpoint.rstrip("/").rsplit("/", 2)[-2:])

    @property
    def is_private(self) -> bool:
        """Whether only processes of this machine reach the server."""
        return self.host in LOOPBACK

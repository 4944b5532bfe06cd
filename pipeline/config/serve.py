"""Settings for answering requests over HTTP with one model."""

import importlib.util
import os
from dataclasses import dataclass

from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.locations import Location
from pipeline.config.placement import EmbedPlacement
from pipeline.errors import ConfigError

TOKEN = "BERTSTREAM_SERVE_TOKEN"
"""Environment variable of the token that clients send. It is no setting, because other users of a machine can read a
command line.
"""
NEEDED, NEEDED_BY_RAY = ("uvicorn", "fastapi", "prometheus_client"), ("grpc_reflection",)
"""Packages that each server imports, and one more that Ray Serve imports, which comes with the extra `serve` alone."""
REGISTERED = "models:/"
"""Beginning of the names of models in MLflow."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def require_serve(config: "Serve") -> None:
    """Raise ConfigError if packages that the server imports are not installed."""
    needed = (*NEEDED, *NEEDED_BY_RAY) if config.ray_setting else NEEDED
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        raise ConfigError(f"serving needs the package {missing[0]}: pip install 'bertstream[serve]'")


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
class ServePlacement(EmbedPlacement):
    """Device, precision and cluster; results differ only by rounding, most of all with int8."""

    address: str | None = None
    """Address of the Ray cluster whose nodes hold the model; default: RAY_ADDRESS. Without it, or with local, the model
    is served on this machine alone, also where a Ray head runs: with one replica by this process, without Ray.
    """
    autoscaled: bool = False
    """The cluster adds nodes on request. So the command waits for missing resources instead of stopping with an error.
    """
    threads: int | None = None
    """CPU threads of each process; default: cpus."""


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Answer requests over HTTP with one model, until stopped.

    One replica on this machine is this process, without Ray. Several replicas, and those of a cluster
    (placement.address), run under Ray Serve.
    """

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
    """Processes that hold the model. More than 1 run under Ray Serve, which starts another if one dies."""
    cpus: float | None = None
    """CPUs per replica; default: 1 under Ray Serve, and all cores of this machine without."""
    gpus: float = 0.0
    """GPUs per replica. Under Ray Serve also shares of a GPU, such as 0.25."""
    start_timeout: float = 600.0
    """Seconds until all replicas of Ray Serve must be ready, else the command ends with an error. An autoscaled cluster
    starts its nodes in this time.
    """
    onnx: bool = False
    """Run the encoder with onnxruntime, on CPUs and in float32; needs the extra export. The graph is written when a
    replica starts.
    """
    batching: Batching = Batching()
    limits: Limits = Limits()
    placement: ServePlacement = ServePlacement()

    def __post_init__(self) -> None:
        require(1 <= self.port <= 65_535, f"port ({self.port}) must lie between 1 and 65,535")
        require_at_least("replicas", self.replicas, 1)
        require_above_zero("cpus", self.cpus_of_replica)
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
    def cpus_of_replica(self) -> float:
        """CPUs that each replica requests from Ray."""
        return 1.0 if self.cpus is None else self.cpus

    @property
    def ray_setting(self) -> str | None:
        """Setting, with its value, that needs Ray Serve; None: this process serves."""
        address = self.placement.address or os.environ.get("RAY_ADDRESS")
        if self.replicas > 1:
            return f"replicas is {self.replicas}"
        if address and address != "local":
            return f"{'placement.address' if self.placement.address else 'RAY_ADDRESS'} is {address}"
        return "placement.autoscaled is set" if self.placement.autoscaled else None

    @property
    def is_private(self) -> bool:
        """Whether only processes of this machine reach the server."""
        return self.host in LOOPBACK

"""Settings of where a job runs: device, precision and cluster resources."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least


@dataclass(frozen=True, kw_only=True)
class DevicePlacement:
    """Device, threads and cluster, which every job with a model has."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: str = "auto"
    """Format of matrix products; each job's placement has its own formats."""
    threads: int | None = None
    """CPU threads of each process; default: as many as it has CPUs."""
    autoscaled: bool = False
    """The cluster adds nodes when asked: what has no room yet is waited for instead of being refused."""
    address: str | None = None
    """Ray cluster to join; default: RAY_ADDRESS, else a head on this machine, else Ray starts in this process."""

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, f"placement.threads ({self.threads}) must be at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelPlacement(DevicePlacement):
    """Device and precision of a fine-tuned model; results differ only by rounding."""

    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Format of matrix products. auto: in training bfloat16 where the hardware computes in it, and float32 for a narrow
    model on a CPU; answers and scores are in float32 on a CPU, and on a GPU as the model was trained, where that is
    known. tf32: float32 whose products keep 10 bits of the mantissa, on NVIDIA GPUs from Ampere on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.autoscaled or self.device != "auto",
            "placement.autoscaled needs placement.device cuda or cpu: auto would look at nodes that are not up yet",
        )


@dataclass(frozen=True, kw_only=True)
class TrialPlacement(ModelPlacement):
    """Device and precision of fine-tuning; results differ only by rounding."""

    recompute: bool = False
    """Activation checkpointing: keep each layer's input alone and compute the layer anew in the backward; less memory,
    a third more time.
    """


@dataclass(frozen=True, kw_only=True)
class Placement(DevicePlacement):
    """Device, precision and cluster resources; results differ only by rounding."""

    precision: Literal["auto", "float32", "tf32", "bfloat16", "float8"] = "auto"
    """Format of matrix products; auto: bfloat16 where the hardware computes in it; tf32: float32 whose products keep 10
    bits of the mantissa, on NVIDIA GPUs from Ampere on; float8, in the layers alone, needs torchao and an NVIDIA GPU
    from Ada or Hopper on.
    """
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile; auto: where there is a C++ compiler and the run is long enough to pay."""
    recompute: bool = False
    """Activation checkpointing: keep each layer's input alone and compute the layer anew in the backward; less memory,
    a third more time.
    """
    threads: int | None = None
    """CPU threads of each worker; default: the node's cores divided by its workers."""
    table_chunks: int = 1_000_000
    """Distinct words whose ids each data process keeps, some 200 bytes each; beyond that its table starts
    anew.
    """
    restarts: int = 8
    """Worker failures after which the run gives up; nodes that are taken away with notice do not count."""
    hang_seconds: int = 120
    """A worker that gives no sign of life for so long, though its process is there, is replaced."""
    worker_cpus: float | None = None
    """CPUs that each worker asks Ray for; default: its share of the cluster's, less one for data; at most 1."""
    worker_resource: str | None = None
    """Resource of the nodes that train, of which each worker takes 1 (ray start --resources '{"NAME": 4}'): other nodes
    are left to data.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("placement.table_chunks", self.table_chunks, 1)
        require_at_least("placement.restarts", self.restarts, 0)
        require_at_least("placement.hang_seconds", self.hang_seconds, 1)
        require(
            self.worker_cpus is None or self.worker_cpus > 0,
            f"placement.worker_cpus ({self.worker_cpus}) must be above 0",
        )
        require(self.worker_resource != "", "placement.worker_resource ('') must be the name of a resource")

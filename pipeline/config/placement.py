"""Settings of where a job runs: device, precision and cluster resources."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.checks import require, require_at_least

EmbedPrecision = Literal["auto", "float32", "tf32", "bfloat16", "float16", "int8"]


@dataclass(frozen=True, kw_only=True)
class DevicePlacement:
    """Device, threads and cluster: the placement settings that all jobs with a model share."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: str = "auto"
    """Number format of matrix products; the choices depend on the job."""
    threads: int | None = None
    """CPU threads of each process; default: one per CPU of the process."""
    autoscaled: bool = False
    """The cluster adds nodes on request. So the job waits for missing resources instead of stopping with an error."""
    address: str | None = None
    """Address of the Ray cluster to join; default: RAY_ADDRESS, else a head on this machine, else Ray starts in this
    process. predict and embed use Ray for small inputs only if one of these is given (local starts Ray), or
    with actors, GPUs or added nodes. score, search and mine never use it.
    """

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, f"placement.threads ({self.threads}) must be at least 1")


@dataclass(frozen=True, kw_only=True)
class ModelPlacement(DevicePlacement):
    """Device and precision of a loaded model; results differ only by rounding."""

    precision: Literal["auto", "float32", "tf32", "bfloat16", "float16"] = "auto"
    """Number format of matrix products. auto in training: bfloat16 if the hardware supports it, but float32 for a
    narrow model on a CPU. auto for predictions and scores: float32 on a CPU; on a GPU the format of training, or
    float32 if the format of training is unknown. auto for BLiMP: bfloat16 if the hardware supports it. tf32: float32
    with products that keep 10 bits of the mantissa, on NVIDIA GPUs from Ampere on. float16: for NVIDIA GPUs before
    Ampere (T4, V100); training then scales its losses.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.autoscaled or self.device != "auto",
            "placement.autoscaled needs placement.device cuda or cpu: "
            "auto cannot count the GPUs of nodes that have not started",
        )


@dataclass(frozen=True, kw_only=True)
class EmbedPlacement(ModelPlacement):
    """Device and precision of embedding; results differ only by rounding, most of all with int8."""

    precision: EmbedPrecision = "auto"  # ty: ignore[incompatible-attribute-override]
    """Number format of matrix products; auto: float32. tf32: float32 with products that keep 10 bits of the mantissa,
    on NVIDIA GPUs from Ampere on. float16: for NVIDIA GPUs before Ampere (T4, V100). int8: only in the encoder's
    layers, on a CPU; for CPUs that do not multiply in bfloat16.
    """


@dataclass(frozen=True, kw_only=True)
class TrialPlacement(ModelPlacement):
    """Device and precision of fine-tuning; results differ only by rounding."""

    recompute: bool = False
    """Activation checkpointing: keep only the input of each layer, and compute the layer again in the backward pass. It
    needs less memory and a third more time.
    """
    recompute_products: bool = True
    """If recompute is set: compute matrix products and attention again too. Otherwise their results are kept, except
    those of attention with dropout. That needs more memory but hardly more time than without recompute (Korthikanti et
    al. 2022).
    """


@dataclass(frozen=True, kw_only=True)
class Placement(DevicePlacement):
    """Device, precision and cluster resources; results differ only by rounding, except dropout's draws with graphs."""

    precision: Literal["auto", "float32", "tf32", "bfloat16", "float16", "float8"] = "auto"
    """Number format of matrix products. auto: bfloat16 if the hardware supports it, else float32. tf32: float32 with
    products that keep 10 bits of the mantissa, on NVIDIA GPUs from Ampere on. float16: with dynamic loss scaling, for
    NVIDIA GPUs before Ampere (T4, V100); steps whose gradients overflow are skipped. float8: only in the encoder's
    layers; needs torchao and an NVIDIA GPU from Ada or Hopper on.
    """
    residual: Literal["float32", "bfloat16"] = "float32"
    """Number format of the sums between layers, if matrix products are in bfloat16 or float8. bfloat16 moves fewer
    bytes; statistics of LayerNorm, weights and the optimiser's state stay in float32.
    """
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile. auto: on if there is a C++ compiler, and if the run is so long that the faster steps save more
    time than compilation takes.
    """
    graphs: Literal["auto", "on", "off"] = "auto"
    """CUDA graphs: record the forward and backward of a slot, and the update of the weights, and launch each at once,
    which is faster for small slots and small models. It needs GPUs (Ampere or later), bfloat16, objective masked, full
    or local attention, and no recompute. auto: on where these hold when the run starts, for several workers only on one
    machine or on a fast network, since graphs send gradients after the backward. Dropout draws other numbers than
    without graphs, so a run keeps what it started with.
    """
    flash_attention: Literal["built-in", "FA3"] = "built-in"
    """Kernels of attention on a GPU. built-in: those of torch; FA3: those of the package flash_attn_interface, which
    has no attention dropout, is for Hopper GPUs and must be installed on the workers.
    """
    recompute: bool = False
    """Activation checkpointing: keep only the input of each layer, and compute the layer again in the backward pass. It
    needs less memory and a third more time.
    """
    recompute_products: bool = True
    """If recompute is set: compute matrix products and attention again too. Otherwise their results are kept, except
    those of attention with dropout. That needs more memory but hardly more time than without recompute (Korthikanti et
    al. 2022).
    """
    threads: int | None = None
    """CPU threads of each worker; default: the node's cores divided by its workers."""
    table_chunks: int = 1_000_000
    """Maximum number of words in the table of known words and their ids that each data process keeps. A word takes
    about 200 bytes. A full table is cleared.
    """
    restarts: int = 8
    """Maximum number of restarts after worker failures; the run stops at the next failure. Restarts after an announced
    loss of a node (preemption with notice) do not count.
    """
    hang_seconds: int = 120
    """Seconds without a response after which a worker is replaced although its process still exists."""
    worker_cpus: float | None = None
    """CPUs that each worker requests from Ray; default: the largest share of a CPU, at most 1, that leaves one whole
    CPU for the data stream. With placement.autoscaled, the default is 1.
    """
    data_cpus: float | None = None
    """CPUs that all tasks of the data stream request from Ray together; default: every free CPU. Set this option if
    several runs share a cluster. With a value below 1, each task requests a smaller share of a CPU.
    """
    worker_resource: str | None = None
    """Name of a custom Ray resource; each worker takes 1 of it. Workers run only on nodes that have this resource (ray
    start --resources '{"NAME": 4}'); the other nodes process data.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.residual == "float32" or self.precision in ("auto", "bfloat16", "float8"),
            f"placement.residual ({self.residual}) needs placement.precision bfloat16 or float8, not {self.precision}",
        )
        require_at_least("placement.table_chunks", self.table_chunks, 1)
        require_at_least("placement.restarts", self.restarts, 0)
        require_at_least("placement.hang_seconds", self.hang_seconds, 1)
        require(
            self.worker_cpus is None or self.worker_cpus > 0,
            f"placement.worker_cpus ({self.worker_cpus}) must be above 0",
        )
        require(
            self.data_cpus is None or self.data_cpus > 0,
            f"placement.data_cpus ({self.data_cpus}) must be above 0",
        )
        require(self.worker_resource != "", "placement.worker_resource ('') must be the name of a resource")

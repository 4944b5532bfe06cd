"""Settings of an audit: which texts a run is asked about."""

from dataclasses import dataclass

from pipeline.config.checks import require
from pipeline.config.locations import Location


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Tell which texts a pretraining run has seen."""

    run: Location
    """Folder or URL of the run."""
    text: tuple[Location, ...] = ()
    """A file or folder of texts: the lines of a file, the cells of a table, or the strings in JSON."""
    benchmark: tuple[str, ...] = ()
    """blimp, glue, squad, or a task of jobs/finetune.py; several are separated by commas."""
    data: Location | None = None
    """Folder of the benchmarks' files, or of a subfolder for each benchmark."""

    def __post_init__(self) -> None:
        require(bool(self.text or self.benchmark), "text and benchmark are not given: give --text or --benchmark")
        require(
            bool(self.benchmark) == (self.data is not None),
            "benchmark and data must be given together: name the benchmarks, and the folder of their files",
        )

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks, each once."""
        return tuple(dict.fromkeys(name for names in self.benchmark for name in names.split(",") if name))

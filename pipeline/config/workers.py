"""The allowed number of workers of a run."""

import re
from dataclasses import dataclass

from pipeline.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class WorkerRange:
    """From `least` to `most` workers; elastic if the two numbers differ."""

    least: int
    most: int

    @property
    def elastic(self) -> bool:
        return self.least < self.most

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.elastic else str(self.most)


def worker_range(workers: int | str) -> WorkerRange:
    """Parse a number of workers such as 4, or a range such as 2..8. Raises ConfigError for anything else and for 0."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", str(workers))
    least = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= least <= most:
        raise ConfigError(f"workers ({workers}) must be a whole number of at least 1, or a range such as 2..8")
    return WorkerRange(least=least, most=most)

"""Count the texts of parts that processes are still embedding. A file of its own, so that its actor loads no torch."""


class UnfinishedParts:
    """An actor to which the processes report how far their parts are."""

    def __init__(self) -> None:
        self.by_part: dict[tuple[int, int], float] = {}

    def report(self, part: tuple[int, int], texts: float) -> None:
        """Set the embedded texts of a part; 0 when the part is complete."""
        self.by_part[part] = texts
        if not texts:
            del self.by_part[part]

    def texts(self) -> float:
        """Return the embedded texts of all unfinished parts."""
        return sum(self.by_part.values())

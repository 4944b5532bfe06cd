"""Count the texts that are done in unfinished parts. A file of its own, so that its actor loads no torch."""


class UnfinishedParts:
    """Object or Ray actor to which workers report how far their parts are."""

    def __init__(self) -> None:
        self.by_part: dict[tuple[int, int], float] = {}

    def report(self, part: tuple[int, int], texts: float) -> None:
        """Set the texts of a part that are done; 0 when the part is complete."""
        self.by_part[part] = texts
        if not texts:
            del self.by_part[part]

    def texts(self) -> float:
        """Return the texts that are done in all unfinished parts."""
        return sum(self.by_part.values())

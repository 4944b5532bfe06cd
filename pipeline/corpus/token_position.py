"""Position of one worker in a stream: in a checkpoint's metadata, and compared with the rows that follow."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.corpus.order import Cursor
from pipeline.errors import CheckpointError, ConfigError

KEY = "token_stream"
"""Key of the position in a checkpoint's metadata."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Position after a step, as one worker knows it. The positions of all workers mean the same row."""

    step: int = 0
    """Steps taken."""
    cursor: Cursor | None = None
    """The last row that this worker consumed; None at the start of the stream."""
    behind: int = 0
    """Rows after the cursor that other workers consumed."""

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any], settings: Mapping[str, Any], checkpoint: str) -> "Position":
        """Return the position in a checkpoint's metadata.

        `settings` are those of the stream. Raises CheckpointError if the metadata has no position, and ConfigError if
        it is that of a stream with other settings.
        """
        if KEY not in metadata:
            raise CheckpointError(
                f"{checkpoint} has no position of the stream: call checkpoint.update_metadata(batches.state()) before "
                "ray.train.report, or choose another name in RunConfig"
            )
        state = metadata[KEY]
        differing = [name for name, value in state["settings"].items() if settings.get(name) != value]
        if differing:
            name = differing[0]
            raise ConfigError(
                f"{name} was {state['settings'][name]!r} in {checkpoint} and is now {settings.get(name)!r}: keep it, "
                "or choose another name in RunConfig"
            )
        cursor = state["cursor"]
        return cls(step=state["step"], cursor=cursor and Cursor(**cursor), behind=state["behind"])

    def cursor_ahead(self, windows: int, rows_in: Callable[[int], int]) -> Cursor | None:
        """Return the cursor of the last row that all workers consumed.

        `windows` is the number of windows per epoch; `rows_in` returns the number of rows of a window, which is counted
        through all epochs.
        """
        if (cursor := self.cursor) is None:
            return None
        number, row, count = cursor.epoch * windows + cursor.window, cursor.row + self.behind, cursor.rows_in_window
        while row >= count:
            number, row = number + 1, row - count
            count = rows_in(number)
        epoch, window = divmod(number, windows)
        return Cursor(epoch=epoch, window=window, row=row, rows_in_window=count)

    def to_metadata(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the position as an entry of a checkpoint's metadata; `settings` are those of the stream."""
        return {KEY: asdict(self) | {"settings": dict(settings)}}


def can_be_ahead(previous: Cursor | None, following: Cursor, rows: int) -> bool:
    """Whether the row at `following` can be `rows` rows after the row at `previous`; None: after the start.

    Between rows of different windows that do not follow each other there are windows of unknown size, so then only the
    least distance is known.
    """
    if previous is None:
        previous = Cursor(epoch=0, window=0, row=-1, rows_in_window=0)
        if (following.epoch, following.window) == (0, 0):
            return following.row == rows - 1
    elif (following.epoch, following.window) == (previous.epoch, previous.window):
        return following.row == previous.row + rows
    elif (following.epoch, following.window) == (previous.epoch, previous.window + 1):
        return following.row == previous.row + rows - previous.rows_in_window
    later = (following.epoch, following.window) > (previous.epoch, previous.window)
    return later and 0 <= following.row <= previous.row + rows - previous.rows_in_window

"""Files with the position of a run's stream at each checkpoint; they stay when the checkpoint is deleted."""

from dataclasses import asdict

from pipeline.corpus.order import Cursor
from pipeline.files import storage


def write_position(run_folder: str, step: int, cursor: Cursor) -> None:
    """Write the stream position after `step` updates."""
    storage.write_json(storage.join(run_folder, "positions", f"step-{step:08d}.json"), asdict(cursor))


def positions(run_folder: str) -> list[int]:
    """Return the steps with a recorded stream position, ascending."""
    return sorted(
        int(name[5:-5]) for name in storage.children(storage.join(run_folder, "positions")) if name.endswith(".json")
    )


def read_position(run_folder: str, step: int) -> Cursor:
    """Return the stream position after `step` updates."""
    return Cursor(**storage.read_json(storage.join(run_folder, "positions", f"step-{step:08d}.json")))

"""Read dialogues: one document per file, and one turn per line, which begins with the speaker's name and a colon."""

from collections.abc import Iterator

from pipeline.files.opening import Opened, lines
from pipeline.text.documents import Dropped, Record


def is_dialogue(name: str, head: bytes) -> bool:
    """Whether a file is named as a dialogue, and begins with a turn."""
    return name.endswith(".dialogue") and b": " in head.partition(b"\n")[0]


def read_dialogue(file: Opened) -> Iterator[Record | Dropped]:
    """Yield a file as one document of a paragraph per turn, without the names of speakers."""
    turns = (line.partition(": ")[2].strip() for line in lines(file.blocks))
    yield Record(id=file.name, parent=file.name, title=file.name.rsplit("/", 1)[-1], paragraphs=turns)

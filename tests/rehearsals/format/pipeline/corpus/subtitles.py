"""Read subtitles (SubRip, .srt): one document per film, one paragraph per subtitle."""

import re
from collections.abc import Iterable, Iterator

from pipeline.files.opening import Opened, lines
from pipeline.text.documents import Dropped, Record

TIMES = re.compile(r"\d+:\d\d:\d\d,\d{3} --> \d+:\d\d:\d\d,\d{3}")


def is_subtitles(name: str, head: bytes) -> bool:
    """Whether a file is named as subtitles, and its second line has the times of the first one."""
    return name.endswith(".srt") and TIMES.match(head.partition(b"\n")[2].decode("utf-8", "replace")) is not None


def read_subtitles(file: Opened) -> Iterator[Record | Dropped]:
    """Yield a file as one document, without the numbers and times of its subtitles."""
    yield Record(id=file.name, parent=file.name, title=file.name.rsplit("/", 1)[-1], paragraphs=_texts(file.blocks))


def _texts(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the text of each subtitle in one line."""
    shown, number = list[str](), True
    for line in (line.strip() for line in lines(blocks)):
        if line and not number and not TIMES.match(line):
            shown.append(line)
        elif not line and shown:
            yield " ".join(shown)
            shown = []
        number = not line  # a number follows a blank line
    if shown:
        yield " ".join(shown)

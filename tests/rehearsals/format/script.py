"""Prepare a corpus of subtitles, and train on it."""

from pathlib import Path

from pipeline.corpus.prepared import read_window
from tests.books import quiet_prepare
from tests.conftest import text_of
from tests.rehearsals.steps import losses, pretrain

Path("films").mkdir()
for film in range(12):
    shown = text_of(film).split(". ")
    blocks = [f"{at}\n00:00:{at:02},000 --> 00:00:{at:02},900\n{text}\n" for at, text in enumerate(shown, 1)]
    Path(f"films/{film}.srt").write_text("\n".join(blocks))

corpus = quiet_prepare([Path("films").absolute()], Path("corpus-of-films").absolute())
assert corpus.counts["documents"] == 12
rows = [row for window in (*corpus.train, *corpus.heldout) for row in read_window(corpus, window).to_pylist()]
found = {row["title"]: row["text"] for row in rows}
assert found["3.srt"].split("\n") == text_of(3).split(". ")
assert not any("-->" in text for text in found.values())
first, last = losses(pretrain(["--steps", "20"], corpus=corpus), "train/mlm_loss")
assert last < first

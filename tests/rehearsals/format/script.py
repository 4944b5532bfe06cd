"""Prepare a corpus of dialogues, and train on it."""

from pathlib import Path

from pipeline.corpus.prepared import read_window
from tests.books import quiet_prepare
from tests.conftest import text_of
from tests.rehearsals.steps import losses, pretrain

Path("talks").mkdir()
for talk in range(12):
    turns = [f"{'AB'[at % 2]}: {text}." for at, text in enumerate(text_of(talk).rstrip(".").split(". "))]
    Path(f"talks/{talk}.dialogue").write_text("\n".join(turns))

corpus = quiet_prepare([Path("talks").absolute()], Path("corpus-of-talks").absolute())
rows = [row for window in (*corpus.train, *corpus.heldout) for row in read_window(corpus, window).to_pylist()]
texts = [" ".join(row["text"].split()) for row in rows]
assert len(texts) >= 12 and "A: " not in " ".join(texts)
assert any(text_of(3).startswith(text) for text in texts), texts
first, last = losses(pretrain(["--steps", "20"], corpus=corpus), "train/mlm_loss")
assert last < first

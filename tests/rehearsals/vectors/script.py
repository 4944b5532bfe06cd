"""Store vectors as -1, 0 and 1, and search them."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from jobs.embed import main as embed
from jobs.search import main as search
from pipeline.embed.formats import to_columns
from tests.conftest import text_of
from tests.rehearsals.steps import exported, pretrain

stored = to_columns(np.array([[3.0, -1.0, 0.2, -0.1]], np.float32), "ternary")["vector"]
assert stored.to_pylist() == [[1, -1, 0, 0]]  # the mean size is 1.075

encoder = exported(pretrain(["--steps", "2"]).folder, "encoder")
texts = [text_of(number).split(".")[0] for number in range(20)]
rows = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
Path("texts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
words = ["--checkpoint", encoder, "--input", "texts.jsonl", "--output", "stored", "--placement.threads", "1"]
assert embed([*words, "--format", "ternary"]) == 0
assert {number for row in pq.read_table("stored/parts")["vector"].to_pylist() for number in row} == {-1, 0, 1}
assert search(["--vectors", "stored", "--queries", texts[7], "--output", "found.jsonl"]) == 0
found = json.loads(Path("found.jsonl").read_text())["results"]
assert "7" in [one["id"] for one in found[:3]], found

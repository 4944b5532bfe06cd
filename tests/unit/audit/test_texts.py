"""The texts of benchmarks and files, by split."""

import gzip
import json
from pathlib import Path

import pytest

from pipeline.audit.texts import read_texts
from pipeline.config.audit import Audit
from pipeline.errors import ConfigError
from pipeline.reporting import no_op

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    """A folder of each benchmark, with a few of its files."""
    for name in ("glue/MRPC", "glue/CoLA", "blimp/data", "squad"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "glue/MRPC/dev.tsv").write_text(f"{MRPC}1\t1\t2\tHe said it again today .\tToday he said it .\n")
    (tmp_path / "glue/MRPC/train.tsv").write_text(
        f"{MRPC}0\t1\t2\tToday he said it .\tNobody has said so .\n1\t3\t4\tSo .\tYes .\n"
    )
    (tmp_path / "glue/CoLA/dev.tsv").write_text("gj04\t1\t\tThe boat sank.\ngj04\t0\t*\tThe boat it sank.\n")
    pairs = [{"sentence_good": f"Dogs bark {n}.", "sentence_bad": "Dogs barks."} for n in range(2)]
    (tmp_path / "blimp/data/agreement.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    question = {"id": "1", "question": "Who said it?", "answers": [{"text": "He", "answer_start": 0}]}
    squad = {"data": [{"paragraphs": [{"context": "He said it.", "qas": [question, question | {"id": "2"}]}]}]}
    (tmp_path / "squad/dev-v1.1.json.gz").write_bytes(gzip.compress(json.dumps(squad).encode()))
    return tmp_path


def splits(config: Audit) -> dict[str, list[str]]:
    texts = read_texts(config, no_op)
    return {name: [texts.texts[index] for index in indices] for name, indices in texts.splits.items()}


def test_benchmarks_are_read_by_their_splits_each_text_once(benchmarks: Path) -> None:
    asked = Audit(run="r", benchmark=("blimp,glue", "squad"), data=str(benchmarks))
    assert splits(asked) == {
        "blimp": ["Dogs bark 0.", "Dogs bark 1.", "Dogs barks."],
        "cola dev": ["The boat sank.", "The boat it sank."],
        "mrpc train": ["Today he said it .", "So .", "Nobody has said so .", "Yes ."],
        "mrpc dev": ["Today he said it .", "He said it again today ."],
        "squad1 dev, questions": ["Who said it?"],
        "squad1 dev, contexts": ["He said it."],
    }
    assert list(splits(Audit(run="r", benchmark=("mrpc",), data=str(benchmarks / "glue")))) == [
        "mrpc train",
        "mrpc dev",
    ]


def test_files_are_splits_and_texts_of_four_words_are_too_short(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Four words are few.\nBut five words are enough.\n")
    (tmp_path / "b.jsonl").write_text('{"text": "But five words are enough."}\n')
    asked = Audit(run="r", text=(str(tmp_path),))
    assert splits(asked) == {
        "a.txt": ["Four words are few.", "But five words are enough."],
        "b.jsonl": ["But five words are enough."],
    }
    assert read_texts(asked, no_op).too_short.tolist() == [True, False]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("Another file of this name.")
    both = Audit(run="r", text=(str(tmp_path / "a.txt"), str(tmp_path / "other")))
    assert list(splits(both)) == ["a.txt", "a.txt (2)"]


def test_a_folder_without_blimp_is_refused_and_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^data \(.*none\) has no files of blimp$"):
        read_texts(Audit(run="r", benchmark=("blimp",), data=str(tmp_path / "none")), no_op)

"""Rows of tasks as ids against transformers' tokenizer. On whole GLUE splits where the environment names them:

GLUE=folder VOCABULARY=vocab.txt pytest -s tests/parity/test_task_encoding.py
"""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.tasks.encoding import encode
from pipeline.tasks.glue import TASKS
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.tables import read_split
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.data import needs_data

LETTERS = "abcdefgh"
VOCABULARY = Vocabulary(
    tokens=(*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "[", "]", "'", '"'), lowercase=True
)
TASK = Task(name="made up", kind="regression", metrics=("pearson",))
TEXT = st.text(alphabet=f"{LETTERS}AÉz .['\"\n\u2009", max_size=30) | st.sampled_from(
    ["a " * 40, "[MASK] [SEP] a", "abc" * 20]
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tokenizer_of(VOCABULARY, tmp_path_factory.mktemp("vocabulary"))


def tokenizer_of(vocabulary: Vocabulary, folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, folder, 512)
    return transformers.BertTokenizerFast.from_pretrained(str(folder))


def assert_same(texts: pa.Table, vocabulary: Vocabulary, theirs: Any, length: int) -> int:
    """Compare every row with transformers' and give how many were cut."""
    ours = encode(
        TASK,
        texts.set_column(3, TEXTS.field("label"), pa.nulls(texts.num_rows, pa.string())),
        CachedTokenizer(vocabulary),
        length,
    )
    first, second = texts["first"].to_pylist(), texts["second"].to_pylist()
    pairs = (first, second) if texts["second"].null_count == 0 else (first,)
    expected = theirs(*pairs, truncation=True, max_length=length, split_special_tokens=True)
    whole = theirs(*pairs, split_special_tokens=True)["input_ids"]
    assert ours.rows["ids"].to_pylist() == expected["input_ids"]
    assert ours.rows["first_length"].to_pylist() == [segments.count(0) for segments in expected["token_type_ids"]]
    assert ours.cut == sum(len(ids) > length for ids in whole)
    return ours.cut


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), paired=st.booleans(), length=st.integers(4, 40))
def test_made_up_texts(theirs: Any, rows: list[tuple[str, str]], paired: bool, length: int) -> None:
    texts = pa.table(
        [["0"] * len(rows), [a for a, _ in rows], [b if paired else None for _, b in rows], [None] * len(rows)],
        schema=TEXTS,
    )
    assert_same(texts, VOCABULARY, theirs, length)


def test_all_lengths_of_both_texts(theirs: Any) -> None:
    sizes = [(a, b) for a in range(1, 16) for b in range(1, 16)]
    texts = pa.table(
        [["0"] * len(sizes), ["a " * a for a, _ in sizes], ["b " * b for _, b in sizes], [None] * len(sizes)],
        schema=TEXTS,
    )
    assert [assert_same(texts, VOCABULARY, theirs, length) for length in (5, 10, 11)] == [
        len([1 for a, b in sizes if a + b > room]) for room in (2, 7, 8)
    ]


@needs_data("GLUE", "VOCABULARY")
@pytest.mark.parametrize("length", [32, 128])
def test_splits_of_glue(length: int, tmp_path: Path) -> None:
    vocabulary = load_vocabulary(os.environ["VOCABULARY"], lowercase=True)
    theirs, found = tokenizer_of(vocabulary, tmp_path), 0
    for name, split in [(task, split.name) for task in TASKS for split in TASKS[task].splits]:
        try:
            texts = read_split(TASKS[name], os.environ["GLUE"], split)
        except DataError as error:
            print(f"\n{error}")
            continue
        cut = sum(
            assert_same(texts.slice(start, 8_192), vocabulary, theirs, length)
            for start in range(0, texts.num_rows, 8_192)
        )
        print(f"\n{name} {split}: {texts.num_rows:,} rows at {length}, {cut:,} cut, the same ids")
        found += 1
    assert found

"""Ids of tasks and of running text in byte-level BPE, against transformers' RobertaTokenizerFast."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.tables.squad import Question
from pipeline.tasks.encoding import encode
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.tagging import Sentence, Tagging
from pipeline.tasks.tagging import encode as encode_tags
from pipeline.tasks.task import Task
from pipeline.tasks.windows import Windowing, windows
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.sentences import split_sentences
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

CONTEXT = (
    "The café in Köln (24–10) cost £20,980; the raining, Zoë's cafe\u0301 力加 🤖 wasn't\u00a0there."
    "\tNo\nline  end İ ß! "
)
PARAGRAPHS = [
    "The cats sat. The dogs didn't; they ran! “Why?” she said. It's 3.5% more. \u0301Mark. O'Neil's cats sat.",
    "A single sentence with the cats",
    "Über die Katzen. Die Hunde sa\u00dfen. Straße 力加 is Chinese. And\u00a0so on.",
    CONTEXT.strip().replace("\n", " ").replace("\t", " ").replace("  ", " "),
]
VOCABULARY = train_vocabulary([CONTEXT, *PARAGRAPHS] * 3, size=450, lowercase=False, kind="byte-bpe")
UNIGRAM = train_vocabulary([CONTEXT, *PARAGRAPHS] * 3, size=300, lowercase=False, kind="unigram")
TASK = Task(name="made up", kind="regression", metrics=("pearson",))
TEXT = [
    "The cats sat.",
    " The cats",
    "x",
    "  two  spaces ",
    CONTEXT,
    CONTEXT * 3,
    "<s> <mask> a</s>",
    "cats\n\nran",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    save_vocabulary(VOCABULARY, folder, 512)
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return pytest.importorskip("transformers").RobertaTokenizerFast.from_pretrained(str(folder))


def table(first: list[str], second: list[str | None]) -> pa.Table:
    rows = len(first)
    return pa.table([["0"] * rows, first, second, pa.nulls(rows, pa.string())], schema=TEXTS)


@pytest.mark.parametrize("length", [4, 9, 10, 33, 512])
def test_texts_and_pairs_are_those_of_transformers(length: int, theirs: Any) -> None:
    pairs = [(first, second) for first in TEXT for second in TEXT]
    for columns in ((TEXT,), tuple(map(list, zip(*pairs, strict=True)))):
        second = columns[1] if len(columns) == 2 else [None] * len(TEXT)
        rows = encode(TASK, table(columns[0], second), CachedTokenizer(VOCABULARY), length).rows
        expected = theirs(*columns, truncation=True, max_length=length, split_special_tokens=True)
        assert rows["ids"].to_pylist() == expected["input_ids"]
        for place, (ids, first_length) in enumerate(zip(rows["ids"].to_pylist(), rows["first_length"].to_pylist())):
            of_b = [token for token, text in enumerate(expected.sequence_ids(place)) if text == 1]
            assert first_length == (of_b[0] if of_b else first_length) <= len(ids)
            assert of_b or len(columns) == 1 or length == 4


def test_passages_of_a_pair_fill_the_length() -> None:
    pair = table([PARAGRAPHS[0]], [CONTEXT * 3])
    rows = encode(TASK, pair, CachedTokenizer(VOCABULARY), 60, passages=5).rows["ids"].to_pylist()
    assert len(rows) > 2 and [len(ids) for ids in rows[:-1]] == [60] * (len(rows) - 1)
    assert all(ids.count(VOCABULARY.sep_id) == 3 and ids[0] == VOCABULARY.cls_id for ids in rows)


@pytest.mark.parametrize("windowing", [(384, 128, 64), (64, 16, 40)], ids=str)
def test_windows_of_questions_are_those_of_transformers(windowing: tuple[int, int, int], theirs: Any) -> None:
    maximum_length, stride, question_length = windowing
    asked = ["What did the café cost?", "  The cats?", "Why didn't they?"]
    contexts = ["The.", " begins", CONTEXT, CONTEXT * 4, CONTEXT * 11]
    questions = [Question(id="", question=one, context=context, answers=()) for one in asked for context in contexts]
    settings = Windowing(
        maximum_length=maximum_length,
        stride=stride,
        question_length=question_length,
        template=VOCABULARY.template,
    )
    ours = [window for group in windows(Tokenization(VOCABULARY), questions, settings) for window in group]
    expected = theirs(
        [question.question for question in questions],
        [question.context for question in questions],
        truncation="only_second",
        max_length=maximum_length,
        stride=stride,
        return_overflowing_tokens=True,
    )
    assert [window.ids.tolist() for window in ours] == expected["input_ids"] and len(ours) > len(questions)
    for place, window in enumerate(ours):
        assert list(range(*window.context.indices(len(window.ids)))) == [
            token for token, text in enumerate(expected.sequence_ids(place)) if text == 1
        ]


def test_words_of_tagging_are_those_of_transformers(folder: Path) -> None:
    """Theirs must put a space before every word, as their example of tagging does for RoBERTa."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.RobertaTokenizerFast.from_pretrained(str(folder), add_prefix_space=True)
    plain = ["The", "cats", "didn't", "24–10", "cafe\u0301", "力加", "🤖", ".", "'s", "<mask>"]
    words = [*plain, "a\u00a0b", "", " spaced", "x"]
    sentences = [words, words[::-1], words * 4, ["cats"]]
    tagging = Tagging(maximum_length=40, stride=8)
    tagged = [Sentence(words=tuple(one), tags=("O",) * len(one)) for one in sentences]
    ours = [window for group in encode_tags(Tokenization(VOCABULARY), tagged, ("O",), tagging) for window in group]
    expected = theirs(
        sentences,
        is_split_into_words=True,
        truncation=True,
        max_length=40,
        stride=8,
        return_overflowing_tokens=True,
        split_special_tokens=True,
    )
    assert [window.ids.tolist() for window in ours] == expected["input_ids"]
    assert [[None if word < 0 else word for word in window.words] for window in ours] == [
        expected.word_ids(place) for place in range(len(ours))
    ]


@pytest.mark.parametrize("paragraph", PARAGRAPHS)
def test_ids_of_sentences_joined_are_those_of_the_running_text(paragraph: str, theirs: Any) -> None:
    sentences = split_sentences(paragraph, keep_spaces=True)
    assert "".join(sentences) == paragraph.replace("\u00a0", " ")
    joined, offsets = CachedTokenizer(VOCABULARY).encode(sentences)
    assert joined.tolist() == theirs("".join(sentences), add_special_tokens=False)["input_ids"]
    assert len(offsets) == len(sentences) + 1 and np.all(np.diff(offsets) > 0)
    if len(sentences) > 1:
        alone = CachedTokenizer(VOCABULARY).encode([sentence.strip() for sentence in sentences])[0]
        assert alone.tolist() != joined.tolist(), "without the spaces the ids are others"
    stripped = CachedTokenizer(UNIGRAM).encode(split_sentences(paragraph))[0]
    assert stripped.tolist() == UNIGRAM.tokenizer().encode("".join(sentences)).ids, "unigram puts the space itself"

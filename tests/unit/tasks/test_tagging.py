"""CoNLL files, pieces and their labels, and predictions back to words, by hand."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.word_columns import read_words
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.tagging import (
    CUT,
    IGNORED,
    Sentence,
    Tagging,
    TaggingWindow,
    encode,
    predicted_tags,
    read_sentences,
    read_tagged,
    tag_names,
    word_scores,
)
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

\t
U.S. NNP I-NP I-LOC
British JJ B-NP I-MISC
lamb\tNN  I-NP B-MISC
-DOCSTART- -X- O O
a\u00a0b NN I-NP O
"""
LETTERS = "abcdefgh"
TOKENIZATION = Tokenization(
    Vocabulary(tokens=(*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS)), lowercase=True)
)
NAMES = ("O", "B-X", "I-X")
NOTHING = "\u200b"
"""A word without pieces."""


def sentence(words: str, tags: str) -> Sentence:
    return Sentence(words=tuple(words.split(" ")), tags=tuple(tags.split()))


DEFAULT = Tagging()


def one(words: str, tags: str, tagging: Tagging = DEFAULT) -> list[TaggingWindow]:
    return encode(TOKENIZATION, [sentence(words, tags)], NAMES, tagging)[0]


def read(folder: Path, content: bytes, column: int = -1) -> list[Sentence]:
    (folder / "a.txt").write_bytes(content)
    return read_sentences(str(folder / "a.txt"), column)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        gzip.compress,
        lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(),
    ],
)
def test_sentences_are_read_as_iob2(change: object, tmp_path: Path) -> None:
    assert read(tmp_path, change(CONLL.encode())) == [  # type: ignore[operator]
        sentence("EU rejects", "B-ORG O"),
        sentence("U.S. British lamb", "B-LOC B-MISC B-MISC"),
        sentence("a\u00a0b", "O"),
    ]


def test_any_column_has_the_tags(tmp_path: Path) -> None:
    assert [s.tags for s in read(tmp_path, CONLL.encode(), 1)] == [("NNP", "VBZ"), ("NNP", "JJ", "NN"), ("NN",)]
    assert [s.tags for s in read(tmp_path, CONLL.encode(), -2)] == [
        ("B-NP", "B-VP"),
        ("B-NP", "B-NP", "I-NP"),
        ("B-NP",),
    ]


@pytest.mark.parametrize(
    "content, column, message",
    [
        (
            b"a O\nb X O\n",
            -1,
            "{file}, line 2 ('b X O') has 3 columns, and the file's first word has 2: give each word the same "
            "number of columns",
        ),
        (
            b"a\nb\n",
            -1,
            "{file}, line 1 has 1 columns, and the tags should be in column -1: give each word a tag",
        ),
        (
            b"\na X O\n",
            3,
            "{file}, line 2 has 3 columns, and the tags should be in column 3: choose one of 1 to 2, column 0 has the "
            "words",
        ),
        (
            b"a X O\n",
            0,
            "{file}, line 1 has 3 columns, and the tags should be in column 0: choose one of 1 to 2, column 0 has the "
            "words",
        ),
        (
            b"a X O\n",
            -3,
            "{file}, line 1 has 3 columns, and the tags should be in column -3: choose one of 1 to 2, column 0 has "
            "the words",
        ),
        (
            b"-DOCSTART- O\n\n",
            -1,
            "{file} has 0 sentences: give a file with a word and its tags on each line, and blank lines between "
            "sentences",
        ),
        (b"a O\n\xe4 O\n", -1, "{file}:2: byte 0xe4 is not UTF-8; save the file as UTF-8"),
    ],
)
def test_a_broken_file_is_named(content: bytes, column: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, content, column)
    assert str(error.value) == message.format(file=tmp_path / "a.txt")


def test_names_have_both_marks_of_each_type() -> None:
    assert tag_names([sentence("a b", "B-Y O"), sentence("c", "I-X")]) == ("O", "B-X", "I-X", "B-Y", "I-Y")
    assert tag_names([sentence("a b c", "VB NN O")]) == ("NN", "O", "VB")
    assert tag_names([sentence("a", "B-Y")]) == ("O", "B-Y", "I-Y")


def test_pieces_and_labels_by_hand() -> None:
    """ "ab" begins an X, "c" goes on, "de" is outside; the word between has no pieces."""
    words, tags = f"ab {NOTHING} c de", "B-X I-X I-X O"
    (window,) = one(words, tags)
    assert window.ids.tolist() == [2, 5, 14, 7, 8, 17, 3] and window.words.tolist() == [-1, 0, 0, 2, 3, 3, -1]
    assert window.labels.tolist() == [IGNORED, 1, IGNORED, 2, 0, IGNORED, IGNORED] and window.first.tolist() == [
        False,
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    (all_pieces,) = one(words, tags, Tagging(label_all_pieces=True))
    assert (
        all_pieces.labels.tolist() == [IGNORED, 1, 2, 2, 0, 0, IGNORED]
        and all_pieces.first.tolist() == window.first.tolist()
    )
    assert (window.ids.dtype, window.labels.dtype, window.words.dtype, window.first.dtype) == (
        np.int32,
        np.int64,
        np.int32,
        np.bool_,
    )


def test_all_pieces_of_tags_that_are_no_chunks_have_the_tag() -> None:
    (window,) = encode(TOKENIZATION, [sentence("ab c", "NN VB")], ("NN", "VB"), Tagging(label_all_pieces=True))[0]
    assert window.labels.tolist() == [IGNORED, 0, 0, 1, IGNORED]


def test_later_pieces_may_have_a_tag_of_their_own() -> None:
    """It is the one after the last tag; predictions read the first pieces."""
    (window,) = one("ab cd e", "B-X I-X O", Tagging(label_all_pieces=True, continuation="own"))
    assert window.labels.tolist() == [IGNORED, 1, 3, 2, 3, 0, IGNORED]
    assert window.first.tolist() == [False, True, False, True, False, True, False]


def test_scores_of_words_by_hand() -> None:
    """Each word has the scores of its first piece, where that has most context; a word without pieces can only be O.
    Outputs after the tags, such as that of later pieces, are left out.
    """
    windows = one(f"a {NOTHING} bc d e f", "O O O O O O", Tagging(maximum_length=6, stride=1))
    logits = [np.arange(6 * 4).reshape(6, 4).astype(np.float32), -np.arange(5 * 4).reshape(5, 4).astype(np.float32)]
    scores, unseen = word_scores(6, windows, logits, NAMES)
    assert scores.dtype == np.float32 and unseen == 1
    nothing = [0, -np.inf, -np.inf]
    assert scores.tolist() == [[4, 5, 6], nothing, [8, 9, 10], [16, 17, 18], [-8, -9, -10], [-12, -13, -14]]
    without, _ = word_scores(6, windows, logits, ("B-X", "I-X"))
    assert without[1].tolist() == [0, 0]


def test_a_long_sentence_by_hand() -> None:
    """Five letters of which two are one word, in windows of four pieces that share two: each label stands once, where
    it has the most context.
    """
    first, second = one("a b cd e", "B-X I-X O B-X", Tagging(maximum_length=6, stride=2))
    assert (first.ids.tolist(), second.ids.tolist()) == ([2, 5, 6, 7, 16, 3], [2, 7, 16, 9, 3])
    assert (first.words.tolist(), second.words.tolist()) == ([-1, 0, 1, 2, 2, -1], [-1, 2, 2, 3, -1])
    assert first.labels.tolist() == [IGNORED, 1, 2, 0, IGNORED, CUT]
    assert second.labels.tolist() == [CUT, IGNORED, IGNORED, 1, IGNORED]


def test_a_sentence_without_pieces_is_one_window() -> None:
    (window,) = one(NOTHING, "B-X")
    assert window.ids.tolist() == [2, 3] and window.labels.tolist() == [IGNORED, IGNORED]
    predicted = predicted_tags(1, [window], [np.array([1, 1])], NAMES)
    assert (predicted.tags, predicted.unseen) == (("O",), 1)


def test_predictions_come_back_to_words_by_hand() -> None:
    """A word's tag is its first piece's; one without pieces, and one beyond the only window that was predicted, are O
    and counted.
    """
    windows = one(f"a {NOTHING} bc d e f", "O O O O O O", Tagging(maximum_length=6, stride=1))
    assert [window.words.tolist() for window in windows] == [[-1, 0, 2, 2, 3, -1], [-1, 3, 4, 5, -1]]
    predicted = predicted_tags(6, windows[:1], [np.array([0, 1, 2, 0, 1, 0])], NAMES)
    assert (predicted.tags, predicted.unseen) == (("B-X", "O", "I-X", "B-X", "O", "O"), 3)


@given(
    st.lists(st.tuples(st.text(LETTERS, min_size=1, max_size=4), st.sampled_from(NAMES)), min_size=1, max_size=20),
    st.integers(3, 9),
    st.booleans(),
)
def test_labels_come_back_as_the_tags_whatever_the_windows(
    words: list[tuple[str, str]], maximum_length: int, label_all_pieces: bool
) -> None:
    tags = tuple(tag for _, tag in words)
    tagging = Tagging(
        maximum_length=maximum_length, stride=(maximum_length - 2) // 2, label_all_pieces=label_all_pieces
    )
    windows = one(" ".join(word for word, _ in words), " ".join(tags), tagging)
    predicted = predicted_tags(len(words), windows, [window.labels for window in windows], NAMES)
    assert (
        predicted.tags == tags
        and predicted.unseen == 0
        and sum(int(window.first.sum()) for window in windows) == len(words)
    )
    labelled = sum(len(word) for word, _ in words) if label_all_pieces else len(words)
    assert sum(int((window.labels >= 0).sum()) for window in windows) == labelled
    ends = [(int(window.labels[0]), int(window.labels[-1])) for window in windows]
    assert [first for first, _ in ends] == [IGNORED] + [CUT] * (len(windows) - 1)
    assert [last for _, last in ends] == [CUT] * (len(windows) - 1) + [IGNORED]


def test_a_tag_that_was_not_learnt_is_named() -> None:
    with pytest.raises(DataError) as error:
        one("a b c d", "B-X B-Z O B-Z")
    assert (
        str(error.value)
        == "tag 'B-Z' (2 words) is not among the 3 tags learnt: O, B-X, I-X; correct the file, or train on a file "
        "with that tag"
    )


@pytest.mark.parametrize("stride", [-1, 62])
def test_settings_that_leave_no_room_are_refused(stride: int) -> None:
    with pytest.raises(ConfigError) as error:
        Tagging(maximum_length=64, stride=stride)
    assert str(error.value) == (
        f"cutting.stride ({stride}) must be at least 0 and less than 62, the pieces that fit in "
        "cutting.maximum_length (64) with 2 special tokens: lower the stride or raise the length"
    )


ROWS = [{"id": 7, "tokens": ["EU", "rejects"], "tags": ["I-ORG", "O"]}, {"id": 8, "tokens": ["a b"], "tags": ["I-LOC"]}]


@pytest.mark.parametrize("tags", ["B-X I-X E-X O S-Y", "B-X I-X L-X O U-Y"])
def test_bioes_and_bilou_are_read_as_iob2(tags: str, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("\n".join(f"w {tag}" for tag in tags.split()))
    (found,) = read_sentences(str(tmp_path / "a.conll"))
    assert found.tags == ("B-X", "I-X", "I-X", "O", "B-Y") and tag_names([found]) == ("O", "B-X", "I-X", "B-Y", "I-Y")
    (tmp_path / "a.conll").write_text("\n".join(f"w {tag}" for tag in [*tags.split(), "SB"]))
    assert read_sentences(str(tmp_path / "a.conll"))[0].tags == (*tags.split(), "SB")  # other tags stay as they are


def test_lists_of_words_and_tags_are_read_as_iob2(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for name in ("a.jsonl.gz", "a.parquet"):
        found = read_tagged(str(tmp_path / name), "tokens", "tags")
        assert found == [sentence("EU rejects", "B-ORG O"), Sentence(words=("a b",), tags=("B-LOC",))]
        assert read_words(str(tmp_path / name), "tokens") == [found[0].words, found[1].words]


@pytest.mark.parametrize(
    ("words", "tags"),
    [
        ("it n't", "['O', 'B-geo']"),
        ("""['it', "n't"]""", "['O', 'B-geo']"),
        ("""['it' "n't"]""", "['O'\n 'B-geo']"),
        ('["it", "n\\u0027t"]', '["O", "B-geo"]'),
    ],
)
def test_lists_as_text_are_lists(words: str, tags: str, tmp_path: Path) -> None:
    """As in CSV by pandas: of lists, of arrays of NumPy, or of JSON."""
    with (tmp_path / "a.csv").open("w", newline="") as file:
        sentences = [("[ ' is", "B-per I-per O"), ("[ 12 ]", "O O O")]
        csv.writer(file).writerows([("tokens", "tags"), (words, tags), *sentences])
    found = read_tagged(str(tmp_path / "a.csv"), "tokens", "tags")
    assert found == [sentence("it n't", "O B-geo"), *(sentence(*one) for one in sentences)]


def test_rows_of_one_word_are_told(tmp_path: Path) -> None:
    told = []
    for rows in ("EU,B-ORG\nleft,O\n", "EU,B-ORG\nleft it,O O\n", "EU,B-ORG\n"):
        (tmp_path / "a.csv").write_text(f"words,tags\n{rows}")
        read_tagged(str(tmp_path / "a.csv"), "words", "tags", bad := BadRows())
        told.append(any(note.startswith("each row has one word: ") for note in bad.words()))
    assert told == [True, False, False]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"tokens": ["a", "b", "c"], "tags": ["O", "O"]},
            "{file}:2: column tokens has 3 words and column tags 2 tags: give each word one tag",
        ),
        (
            {"tokens": ["a"], "tags": [3]},
            "{file}:2: column tags holds '3', which is not text; expected words, or tag names such as B-PER",
        ),
        (
            {"tokens": "a", "tags": ["O"]},
            "{file}:2: column tokens is not a list but 'a'; expected a list of texts, one per word",
        ),
        ({"tokens": [], "tags": []}, "{file}:2: column tokens is empty; expected a list of texts, one per word"),
        ({"tokens": ["a"], "tags": None}, "{file}:2: column tags is empty; expected a list of texts, one per word"),
        (
            {"tokens": ["\ud800"], "tags": ["O"]},
            "{file}:2: column tokens holds '\\ud800', half of a surrogate pair, which is not a character",
        ),
        ({"tokens": ["a"]}, "{file}:2 has no column tags: its columns are tokens"),
    ],
)
def test_broken_lists_are_named_with_file_and_line(row: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n{json.dumps(row)}\n")
    with pytest.raises(DataError) as error:
        read_tagged(str(path), "tokens", "tags")
    assert str(error.value) == message.format(file=path)


def test_files_that_hold_no_lists_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"a.conll: the file name must tell the format by ending in one of .csv, .tsv, .jsonl, .ndjson, .json, "
        r".txt, .parquet$",
    ):
        read_tagged(str(tmp_path / "a.conll"), "words", "tags")
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"a.jsonl is empty: give a file with rows$"):
        read_tagged(str(tmp_path / "a.jsonl"), "tokens", "tags")
    (tmp_path / "a.conll").write_text("-DOCSTART- O\n\n")
    with pytest.raises(
        DataError,
        match=r"a.conll has 0 sentences: give a file with a word on each line and blank lines between sentences, or "
        r"JSON lines .*",
    ):
        read_words(str(tmp_path / "a.conll"))


def test_words_without_tags_are_the_first_column(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("EU\nrejects VBZ O\n\nLondon\n")
    assert read_words(str(tmp_path / "a.txt")) == [("EU", "rejects"), ("London",)]
    (tmp_path / "a.json").write_text('{"words": ["EU"]}\n')
    assert read_words(str(tmp_path / "a.json")) == [("EU",)]

"""Examples as text, with vocabularies of which every piece is written here, and trained ones."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from pipeline.show.rows import example_lines, example_summary, label, segments, text_of
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.splitting import SPECIALS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

WORDPIECE = Vocabulary(tokens=(*SPECIALS, "cat", "##s", "sat", "dog"), lowercase=True)
BYTES = Vocabulary(
    tokens=(*SPECIALS, "Ġcaf", "Ã", "©", "Ġå¹´", "Ġ", "12"), lowercase=False, kind="byte-bpe"
)  # é is C3 A9, 年 is E5 B9 B4
UNIGRAM = Vocabulary(tokens=(*SPECIALS, "▁caf", "é", "▁", "年", "Ġ"), lowercase=False, kind="unigram")
SENTENCES = ["2012年12月、東京で。", "Ça va? Naïve café — über 🙂 ok.", "Don't stop (now)."]


def row(ids: list[int], masked: dict[int, int], not_next: bool | None = None) -> dict[str, object]:
    return {
        "ids": ids,
        "masked_positions": list(masked),
        "masked_labels": list(masked.values()),
        "not_next": not_next,
        "swapped": None,
        "document_a": 0,
        "document_b": 1 if not_next else 0,
    }


def plain(ids: list[int], masked: dict[int, int], vocabulary: Vocabulary) -> list[str]:
    return [text.plain for text in segments(row(ids, masked), vocabulary)]


def test_a_masked_row_shows_its_answers_a_segment_a_text() -> None:
    first, second = segments(row([2, 5, 4, 7, 3, 8, 7, 3], {2: 6, 5: 5, 6: 7}), WORDPIECE)
    assert first.plain == "[CLS] cat[s: MASK] sat [SEP]" and second.plain == "[cat: dog] [sat] [SEP]"
    styles = {
        text.plain[span.start : span.end].strip(): str(span.style) for text in (first, second) for span in text.spans
    }
    assert styles == {
        "[CLS]": "dim",
        "[SEP]": "dim",
        "[s: MASK]": "bold red",
        "[cat: dog]": "bold yellow",
        "[sat]": "bold blue",
    }


def test_bytes_are_shown_as_the_characters_that_they_are() -> None:
    assert plain([2, 5, 6, 7, 8, 10, 3], {}, BYTES) == ["[CLS] café 年12 [SEP]"]
    assert plain([2, 5, 6, 4, 8, 3], {3: 7}, BYTES) == ["[CLS] caf�[�: MASK] 年 [SEP]"]
    assert plain([2, 4, 10, 4, 5, 3], {1: 8, 2: 10, 3: 9}, BYTES) == ["[CLS] [年: MASK][12] [␣: MASK] caf [SEP]"]


def test_a_first_piece_without_a_space_stands_apart_from_the_special_token() -> None:
    assert plain([2, 10, 5, 3, 10, 3], {}, BYTES) == ["[CLS] 12 caf [SEP]", "12 [SEP]"]
    assert plain([2, 4, 3], {1: 10}, BYTES) == ["[CLS] [12: MASK] [SEP]"]


def test_unigram_marks_are_spaces_and_only_they() -> None:
    assert plain([2, 5, 6, 7, 8, 9, 3], {}, UNIGRAM) == ["[CLS] café 年Ġ [SEP]"]
    assert plain([2, 4, 9, 3], {1: 5, 2: 7}, UNIGRAM) == ["[CLS] [caf: MASK] [␣: Ġ] [SEP]"]


@pytest.mark.parametrize("kind", ["byte-bpe", "unigram"])
def test_whole_sentences_come_back(kind: str) -> None:
    vocabulary = train_vocabulary(SENTENCES * 3, size=400, lowercase=False, kind=kind)
    ids, offsets = CachedTokenizer(vocabulary).encode(SENTENCES)
    assert [text_of(vocabulary, ids[start:stop].tolist()) for start, stop in zip(offsets, offsets[1:])] == [
        sentence if vocabulary.keeps_spaces else f" {sentence}" for sentence in SENTENCES
    ]


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=20))
def test_any_text_comes_back_from_its_bytes(text: str) -> None:
    ids, _ = CachedTokenizer(EVERY_BYTE).encode([text])
    assert text_of(EVERY_BYTE, ids.tolist()) == text


EVERY_BYTE = train_vocabulary(SENTENCES, size=300, lowercase=False, kind="byte-bpe")


def test_what_the_pair_task_asks() -> None:
    assert label(row([2, 5, 3], {}, not_next=True)) == "B is from another document (NotNext)"
    assert (
        label(row([], {}) | {"swapped": False}) == "A precedes B in the document (in order)"
        and label(row([], {})) == ""
    )
    assert example_summary(row([2, 5, 3], {1: 5})) == "3 tokens, 1 masked"
    assert example_summary(row([2, 5, 3], {1: 5}, not_next=False)) == "B follows A (IsNext), 3 tokens, 1 masked"


def lines(example: dict[str, object]) -> list[str]:
    documents = pa.Table.from_pylist(
        [{"title": title, "id": f"{place}#0", "source": "made up"} for place, title in enumerate(("Cats", ""))]
    )
    return [(margin + text).plain for margin, text in example_lines(example, documents, WORDPIECE)]


def test_the_segments_of_a_pair_are_named_and_stand_by_their_documents() -> None:
    ids = [2, 5, 3, 7, 3]
    assert lines(row(ids, {}, not_next=True)) == [
        "  A  Cats, 0#0, from made up", "     [CLS] cat [SEP]", "  B  (no title), 1#0, from made up", "     sat [SEP]",
    ]  # fmt: skip
    assert lines(row(ids, {}, not_next=False)) == [
        "     Cats, 0#0, from made up",
        "  A  [CLS] cat [SEP]",
        "  B  sat [SEP]",
    ]
    assert lines(row(ids, {}) | {"document_b": 1}) == [
        "     begins in Cats, 0#0, from made up",
        "     ends in (no title), 1#0, from made up",
        "     [CLS] cat [SEP]",
        "     sat [SEP]",
    ]


def test_the_name_of_a_segment_does_not_colour_its_text() -> None:
    _, (margin, text), _ = example_lines(
        row([2, 5, 3, 7, 3], {}, not_next=False),
        pa.Table.from_pylist([{"title": "", "id": "0", "source": ""}]),
        WORDPIECE,
    )
    whole: Text = margin + text
    assert whole.style == "" and [str(span.style) for span in whole.spans] == ["bold cyan", "dim", "dim"]


def test_a_row_of_two_texts_says_so() -> None:
    two = row([2, 5, 3, 8, 3], {}) | {"parent": 7}
    assert label(two) == "two texts, read separately"
    assert example_summary(two) == "two texts, read separately, 5 tokens"


def test_hard_negatives_are_marked() -> None:
    given = row([2, 5, 3, 8, 3, 7, 3], {}) | {"parent": 7, "negative_lengths": [3, 0]}
    assert label(given) == "two texts and 1 hard negative, read separately"
    assert label(given | {"negative_lengths": [3, 4]}) == "two texts and 2 hard negatives, read separately"
    lines = list(example_lines(given, pa.Table.from_pylist([{"title": "", "id": "0", "source": ""}]), WORDPIECE))
    assert [margin.plain.strip() for margin, _ in lines] == ["", "A", "B", "N"]

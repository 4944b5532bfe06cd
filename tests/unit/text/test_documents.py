from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.documents import (
    Document,
    Dropped,
    Record,
    documents,
    join_into_pieces,
    length,
    letters_share,
    paragraphs,
    split_paragraph,
)


def record(*lines: str, **more) -> Record:
    return Record(id="book", parent="shelf", title="A\n title\0", paragraphs=lines, **more)


def made(*lines: str, piece: int = 100, least: int = 1) -> list[Document | Dropped]:
    return list(documents(record(*lines), piece_characters=piece, minimum_characters=least))


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_a_short_record_is_one_document_with_clean_paragraphs():
    assert made("  One.\r\nTwo.\rThr\0ee.", "", " \t", "Four. ") == [
        Document(
            id="book#0",
            parent="shelf",
            title="A title",
            text="One.\nTwo.\nThree.\nFour.",
            lines_are_sentences=False,
            language="en",
        )
    ]


def test_the_kind_of_lines_is_kept():
    (document,) = documents(record("One.", lines_are_sentences=True), piece_characters=100, minimum_characters=1)
    assert document.lines_are_sentences


def test_reasons_to_drop():
    assert made() == made(" ", "\0") == [Dropped(id="book", reason="empty")]
    assert made("123456789", least=10) == [Dropped(id="book#0", reason="too short", sample="123456789")]
    assert isinstance(made("1234567890", least=10)[0], Document)
    assert made("caf\udce9") == [Dropped(id="book", reason="not UTF-8", sample="caf?", characters=4)]


def test_a_character_that_says_as_much_as_three_letters_counts_as_three():
    assert [length(text) for text in ("abc é", "猫は", "한글!", "𠮷", "ไทย", "")] == [5, 6, 7, 3, 3, 0]
    assert (
        isinstance(made("北京是中国的首都。", least=25)[0], Document)
        and made("北京是中国的首都。", least=26)[0].reason == "too short"
    )


def test_text_that_cannot_be_written_is_dropped_and_its_sample_and_title_can():
    halves_of_surrogate = "\ud83d text " * 3
    (item,) = made(halves_of_surrogate)
    assert isinstance(item, Dropped) and item.reason == "not UTF-8" and item.sample.encode().startswith(b"? text ")
    (document,) = documents(
        Record(id="b", parent="b", title="caf\udce9\n\0", paragraphs=["A text."]),
        piece_characters=100,
        minimum_characters=1,
    )
    assert isinstance(document, Document) and document.title == "caf?"


def test_a_long_record_with_a_short_beginning_is_not_too_short():
    assert [item.text for item in made("Chapter 1", "a" * 95, piece=100, least=10)] == ["Chapter 1", "a" * 95]


def test_only_the_paragraph_with_undecodable_bytes_is_dropped():
    found = made("a" * 60, "b" * 30, "c\udce9", "d" * 25, "e" * 60, piece=60)
    assert [getattr(item, "text", None) or item.reason for item in found] == [
        "not UTF-8",
        "a" * 60,
        "b" * 30 + "\n" + "d" * 25,
        "e" * 60,
    ]
    assert [item.id for item in found] == ["book", "book#0", "book#1", "book#2"]
    assert [item.reason for item in made("\ud800", "ok", least=3)] == ["not UTF-8", "too short"]


def test_of_a_long_paragraph_with_undecodable_bytes_most_is_kept():
    sentence = "One of many sentences of the same paragraph. "
    lost, kept = made(sentence * 100 + "caf\udce9. " + sentence * 100, piece=32_000)
    assert lost.reason == "not UTF-8" and 500 < lost.characters <= 1000
    assert kept.text.count(sentence.strip()) == 200 - lost.characters // len(sentence) and "caf" not in kept.text


def test_long_documents_are_cut_at_paragraphs_with_balanced_last_pieces():
    lines = [letter * 10 for letter in "abcdefgh"]
    assert [piece.split("\n") for piece in join_into_pieces(lines, 33)] == [lines[0:3], lines[3:6], lines[6:8]]
    assert [piece.split("\n") for piece in join_into_pieces(lines[:4], 33)] == [lines[0:2], lines[2:4]]
    assert [document.id for document in made(*lines, piece=33)] == ["book#0", "book#1", "book#2"]
    assert {document.parent for document in made(*lines, piece=33)} == {"shelf"}


def test_a_paragraph_is_cut_after_a_sentence_else_at_white_space_else_anywhere():
    assert list(split_paragraph('One two. Is it "three?" Four five six', 30)) == [
        'One two. Is it "three?"',
        "Four five six",
    ]
    assert list(split_paragraph("one two three four five", 12)) == ["one two", "three four", "five"]
    assert list(split_paragraph("abcdefghij", 4)) == ["abcd", "efgh", "ij"]
    assert list(split_paragraph("一二三。四五六七", 5)) == ["一二三。", "四五六七"]


@given(st.lists(st.text(st.sampled_from("ab.  \n\r。"), max_size=60), max_size=12), st.integers(1, 40))
def test_pieces_lose_nothing_and_are_never_too_long(lines: list[str], limit: int):
    pieces = list(join_into_pieces(paragraphs(lines), limit))
    assert squeezed("".join(pieces)) == squeezed("".join(lines))
    assert all(0 < len(piece) <= limit and piece == piece.strip() for piece in pieces)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_pieces_are_as_few_as_paragraphs_allow_within_a_factor_of_two(sizes: list[int]):
    pieces = list(join_into_pieces(["x" * size for size in sizes], 20))
    total = sum(sizes) + len(sizes) - 1
    assert len(pieces) <= 2 * total // 20 + 2


def test_tables_and_symbols_are_no_language():
    def kept(text: str, letters: float) -> bool:
        (item,) = documents(record(text), piece_characters=100, minimum_characters=1, minimum_letters=letters)
        return isinstance(item, Document) or item.reason != "not language"

    assert letters_share("ab 12 é—") == 3 / 6 and letters_share("") == letters_share("12 |") == 0
    assert kept("| 12 | 13.5 | a |", 0.0) and not kept("| 12 | 13.5 | a |", 0.5)
    assert kept("One, two.", 0.5) and kept("これは文です。", 0.5) and kept("यह एक वाक्य है।", 0.5)


def test_combining_marks_are_letters_of_a_language():
    assert letters_share("মা 1") == letters_share("মা 1", 0.5) == 2 / 3 and letters_share("মা 1", 0.3) == 1 / 3
    for text in ("မြန်မာနိုင်ငံသည် ရှည်သည်။", "ၶေႃႈၵႂၢမ်းတႆး ပဵၼ်ၵႂၢမ်း", "ދިވެހިރާއްޖެއަކީ ޖަޒީރާ ޤައުމެކެވެ."):
        (item,) = documents(record(text), piece_characters=100, minimum_characters=1, minimum_letters=0.6)
        assert isinstance(item, Document)


def test_the_language_is_what_the_record_says_else_what_is_known_of_its_source():
    texts = [record("Ein Satz."), record("Ein Satz.", language="de")]
    assert [
        d.language for r in texts for d in documents(r, piece_characters=100, minimum_characters=1, language="fr")
    ] == ["fr", "de"]

"""Project Gutenberg's files: licences of every age, hard-wrapped lines, and the marks of those who typed them."""

import pytest

from pipeline.corpus.formats import recognise
from pipeline.corpus.gutenberg import is_wrapped, read_gutenberg
from pipeline.files.opening import Opened
from pipeline.text.documents import Record

PROSE = """The first scene is in the country, in Virginia; the time, 1880. There
has been a wedding, between a handsome young man of slender means and
a rich young girl--a case of love at first sight and a precipitate
marriage."""
JOINED = (
    "The first scene is in the country, in Virginia; the time, 1880. There has been a wedding, between a "
    "handsome young man of slender means and "
    "a rich young girl--a case of love at first sight and a precipitate marriage."
)
LICENCE = (
    "\n\nTHE FULL PROJECT GUTENBERG LICENSE\nPLEASE READ THIS BEFORE YOU DISTRIBUTE OR USE THIS WORK\n\nTo "
    "protect the Project Gutenberg-tm mission\n"
)
MODERN = f"""\ufeffThe Project Gutenberg eBook of A Book, by A. Writer

This eBook is for the use of anyone anywhere at no cost. You may copy it under the
terms of the Project Gutenberg License included with this eBook or online at www.gutenberg.org

Title: A Book
       With a Second Line

Author: A. Writer

Language: German

*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***




Produced by David Widger and the Online Distributed
Proofreading Team at http://www.pgdp.net

{PROSE}

*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***
"""


def read(text: str | bytes) -> list[tuple[str, str, str | None, list[str]]]:
    data = text.encode() if isinstance(text, str) else text
    blocks = iter([data[at : at + 5] for at in range(0, len(data), 5)])
    found = []
    for item in read_gutenberg(Opened(location="/x/b.txt", name="x/b.txt", blocks=blocks)):
        assert isinstance(item, Record)
        found.append((item.id, item.title, item.language, list(item.paragraphs)))
    return found


def body(text: str) -> list[str]:
    """The paragraphs of a book of these lines and some prose that shows how it is wrapped."""
    ((*_, paragraphs),) = read(
        f"*** START OF THIS PROJECT GUTENBERG EBOOK B ***\n\n{PROSE}\n\n{text}\n\n*** END OF THIS PROJECT GUTENBERG "
        "EBOOK B ***"
    )
    assert paragraphs[0] == JOINED
    return paragraphs[1:]


def test_a_book_of_today():
    assert read(MODERN) == [("x/b.txt", "A Book With a Second Line", "de", [JOINED])]
    assert read(MODERN.replace("\n", "\r\n")) == read(MODERN)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (
            "***START OF THE PROJECT GUTENBERG EBOOK A LONG NAME OF A BOOK\nTHAT TAKES TWO LINES***",
            "***END OF THE PROJECT GUTENBERG EBOOK A LONG NAME OF A BOOK\nTHAT TAKES TWO LINES***",
        ),
        (
            "*** START OF THIS PROJECT GUTENBERG EBOOK X ***",
            "End of Project Gutenberg's X, by Y\n\n*** END OF THIS PROJECT GUTENBERG EBOOK X ***",
        ),
        ("*** START OF THIS PROJECT GUTENBERG EBOOK X ***", "End of the Project Gutenberg EBook of X, by Y"),
        ("*** START OF THIS PROJECT GUTENBERG EBOOK X ***", "End of Project Gutenberg’s X"),
        ("*** START OF THIS PROJECT GUTENBERG EBOOK X ***", "*** START: FULL LICENSE ***"),
        (
            "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*",
            "End of The Project Gutenberg Etext of X, by Y",
        ),
        ("*END THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*", "End of this Project Gutenberg Etext"),
    ],
)
def test_licences_of_every_age(start: str, end: str):
    small_print = (
        "***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\nWhy is this Small Print statement here?\n\n"
    )
    text = f"**The Project Gutenberg Etext of X**\n\nTitle: X\n\n{small_print}{start}\n\n{PROSE}\n\n{end}\n{LICENCE}"
    assert recognise("b.txt", text.encode()) == "gutenberg"
    assert read(text) == [("x/b.txt", "X", None, [JOINED])]


def test_small_print_after_the_book_does_not_take_it_away():
    text = (
        f"*** START OF THE PROJECT GUTENBERG EBOOK X ***\n{PROSE}\n*** END OF THE PROJECT GUTENBERG EBOOK X "
        "***\n\n*END*THE SMALL PRINT! Ver.10/04/01*END*\n"
    )
    assert read(text)[0][3] == [JOINED]


def test_several_books_in_one_file_are_several_records():
    assert [(id, title) for id, title, *_ in read(MODERN + MODERN.replace("A Book\n", "Another\n"))] == [
        ("x/b.txt", "A Book With a Second Line"),
        ("x/b.txt:1", "Another With a Second Line"),
    ]


def test_a_later_book_with_the_older_licence_is_a_record():
    small_print = (
        "***START**THE SMALL PRINT!**START***\n\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*"
    )
    older = f"\n\nTitle: Older\n\n{small_print}\n\n{PROSE}\n\nEnd of The Project Gutenberg Etext of Older\n"
    books = [("A Book With a Second Line", [JOINED]), ("Older", [JOINED]), ("A Book With a Second Line", [JOINED])]
    assert [(title, paragraphs) for _, title, _, paragraphs in read(MODERN + older + MODERN)] == books
    unfollowed = read(MODERN + small_print + "\n\n" + MODERN)
    assert [(title, paragraphs) for _, title, _, paragraphs in unfollowed] == books[::2]
    assert len(read(MODERN + small_print + "\n\n")) == 1


def test_truncated_books_and_books_without_licence_are_kept():
    assert read(MODERN[: MODERN.index("*** END")])[0][3] == [JOINED]
    assert read(PROSE) == [("x/b.txt", "b.txt", None, [JOINED])]


def test_older_files_are_in_windows_1252():
    header = "Title: Caf\xe9\n\nCharacter set encoding: ISO-8859-1\n\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n"
    ((_, title, _, paragraphs),) = read((header + "Ein Mädchen – “so”.").encode("cp1252"))
    assert paragraphs == ["Ein Mädchen – “so”."] and title == "Café"
    utf8 = header.replace("ISO-8859-1", "UTF-8").encode() + b"caf\xe9"
    assert read(utf8)[0][3] == ["caf\udce9"]  # bytes that are no UTF-8 where the header says UTF-8 are damage
    assert read((header + "Mädchen").encode())[0][3] == ["Mädchen"]  # converted, but for its header


def test_verse_headings_and_tables_keep_their_lines():
    verse = (
        "    C'est l'esprit familier du lieu;\n    Il juge, il préside, il inspire\n    Toutes choses dans son empire;"
    )
    assert body(verse) == [
        "C'est l'esprit familier du lieu;",
        "Il juge, il préside, il inspire",
        "Toutes choses dans son empire;",
    ]
    assert body("CHAPTER I.\nThe River and its History") == ["CHAPTER I.", "The River and its History"]
    table = (
        "Old Age and Youth, by T. Haynes Bayly, and other pieces         79\nAn Evening of Visits, by James Fenimore "
        "Cooper, of New York     80"
    )
    assert body(table) == [
        "Old Age and Youth, by T. Haynes Bayly, and other pieces 79",
        "An Evening of Visits, by James Fenimore Cooper, of New York 80",
    ]


def test_paragraphs_that_only_an_indent_tells_apart():
    lines = [
        "and went from his house without his blessing, proud and happy of it.",
        "  The morning after the marriage there was a sad surprise for her. So",
    ]
    assert body("\n".join(lines)) == [lines[0], lines[1].strip()]
    assert is_wrapped(
        "a full line that ends with a sentence, as lines may do by chance too.", "The next one is not indented.", 56
    )


def test_broken_words_and_dashes_are_joined_without_space():
    first = "It was the first that he had ever seen of the so beautiful and well-"
    assert body(f"{first}\nknown country.") == [f"{first}known country."]
    assert body("And so it came to pass that nobody knew it but the old gentleman--\nand he was dead.") == [
        "And so it came to pass that nobody knew it but the old gentleman--and he was dead."
    ]


TYPED: dict[str, list[str]] = {
    "He was _not_ there, _I_ said; _Chapter I_": ["He was not there, I said; Chapter I"],
    "She has 140_l._ a year, an ac_tive man.": ["She has 140l. a year, an active man."],
    "It was =bold= and a = b.": ["It was bold and a = b."],
    "The end {12} of a page [Pg 13] and [Page xiv] more [p. 2].": ["The end of a page and more."],
    "A note[1] and another [12] and [A] too.": ["A note and another and too."],
    "It was [ill] in [1880], you [must] know.": ["It was [ill] in [1880], you [must] know."],
    "[Footnote 3: From _Understudies_, 1901.]": ["From Understudies, 1901."],
    "* * * * *\n\n-----\n\n.": [],
    "[Illustration]": [],
    "[Illustration: Verso of _leaf_ 2 [so\nmarked] on the left]": [],
    "[Illustration: A CAPTION\n\nOF TWO PARTS.]\n\nText.": ["Text."],
    "Some text\n\n[Illustration: never closed\n\na\n\nb\n\nc\n\nd\n\ne\n\nf\n\ng": ["Some text", "g"],
    "Transcriber's Note: Italics have been\nconverted to capitals.": [],
    "+-------+\n| Notes |\n+-------+": [],
    "Transcribed from the 1894 edition by David Price": [],
    "E-text prepared by Emmy and the Project\nGutenberg team": [],
    "This eBook was produced by David Widger": [],
    "Produced by drink, it was no vision.": [],
    "See http://www.gutenberg.org/files/1/1-h.htm": [],
    "[Here I was interrupted.]": ["[Here I was interrupted.]"],
}


def test_what_is_not_the_authors_is_removed():
    assert {typed: body(typed) for typed in TYPED} == TYPED


def test_a_book_without_blank_lines_loses_no_more_than_lines_of_the_licence():
    lines = [f"{number} and more." for number in range(40)]
    assert body("\n".join([*lines, "See Project Gutenberg.", *lines])) == lines * 2


def test_the_authors_own_words_are_kept_where_credits_are_not():
    many = "\n\n".join(f"Paragraph {number}." for number in range(50))
    assert body(f"{many}\n\nProduced by drink, it was no vision.")[-1] == "Produced by drink, it was no vision."

"""Clean up escaped characters, tags, links, formulas and code that WikiExtractor leaves."""

import pytest

from pipeline.wikipedia.extracted import without_leftovers

MARKED_UP = {
    "R&amp;B, 1 &lt; 2 &amp; x&nbsp;y, AT&T, &copy=1": "R&B, 1 < 2 & x\xa0y, AT&T, &copy=1",
    "更新至 5.0 版本。&lt;br&gt;": "更新至 5.0 版本。 ",
    "he was young&lt;ref name=&quot;a&quot;&gt;a note&lt;/ref&gt;.": "he was young.",
    'the <dfn id="">word</dfn><br>is here': "the word is here",
    "bei <nowiki>[</nowiki>sic<nowiki>]</nowiki> steht": "bei [sic] steht",
    "in [[English language|English]] and [[Europe]]": "in English and Europe",
    "祖[[歐斌；父[[歐廉]]，監察御史": "祖歐斌；父歐廉，監察御史",
    "a text. [[Category:Calendars]]": "a text. ",
    "} and {a} and my_formula_1 and formula_x": "} and {a} and my_formula_1 and formula_x",
}


def test_what_is_escaped_or_marked_up_becomes_its_words():
    assert {line: without_leftovers([line], "en") for line in MARKED_UP} == {
        line: [words] for line, words in MARKED_UP.items()
    }


MARKUP_ALONE = [
    "[[Category:Apple Newton]]",
    "[[分类:王姓]]",
    "[[分類:歐姓]] [[Category:眉州人]]",
    "[[Kategorie:Mann]]",
    "[[Категорія:Коти|К]]",
    "[[Κατηγορία:Πόλεις]]",
    "[[تصنيف:مدن]]",
    "[[श्रेणी:शहर]]",
    "[[Category:王姓]",
    "[[File:a.jpg|250px|thumb|A caption.]]",
    "[[Datei:a.jpg|mini|Ein Bild",
    "&lt;onlyinclude&gt;&lt;/onlyinclude&gt;",
    "</dl>",
    " }}{{",
]


def test_lines_of_markup_alone_are_empty():
    found = {line: without_leftovers(["One line.", line, "Another line."], "en") for line in MARKUP_ALONE}
    assert found == dict.fromkeys(MARKUP_ALONE, ["One line.", "", "Another line."])


@pytest.mark.parametrize(
    "lines, kept",
    [
        (["It is here. The value is formula_12 of it. It is there."], ["It is here. It is there."]),
        (["Das Schlüsselwort codice_1 gilt hier. Es ist da."], ["Es ist da."]),
        (["第一句在这里。设定formula_1、formula_2分别为量子态。第三句在那里。"], ["第一句在这里。 第三句在那里。"]),
        (["The errors (formula_1) are independent."], ["The errors are independent."]),
        (["两种态（formula_1）是独立的。"], ["两种态是独立的。"]),
        (["It is here. The mean is", "formula_1", "where a is the first. It is there."], ["It is here. It is there."]),
        (
            ["Der Unterschied ist:", "", "formula_5", "", "formula_6", "", "Mit Hilfe geht es."],
            ["", "", "", "", "Mit Hilfe geht es."],
        ),
        (["It is here.", "formula_1formula_2", "It is there."], ["It is here.", "", "It is there."]),
    ],
)
def test_a_sentence_that_lacks_a_formula_or_code_is_left_out(lines: list[str], kept: list[str]):
    found = without_leftovers(lines, "en")
    assert [line for line in found if line] == [line for line in kept if line]


def test_lines_without_leftovers_stay_as_they_are():
    lines = ["", " A line with <signs> & a_word.", "  ", "* An item.", "x = {1}"]
    assert without_leftovers(lines, "en") == lines

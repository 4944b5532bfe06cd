"""Lists, displayed formulas and removed elements in whole pages: the resulting paragraphs."""

import pytest

from pipeline.wikipedia.wikitext import prose

HOLE = "<math>\\begin{matrix} a \\end{matrix}</math>"


LISTS = {
    "The word can refer either\n# to the bird (the noun), or\n# to a motion.": [
        "The word can refer either to the bird (the noun), or to a motion."
    ],
    "These are:\n* one thing that is here;\n* another thing; and\n* a third one.\nMore follows here.": [
        "These are: one thing that is here; another thing; and a third one.",
        "More follows here.",
    ],
    "These are all.\n* one thing that is here;\n* another thing that is here too.": [
        "These are all.",
        "another thing that is here too.",
    ],
    "It really is as follows:\n* If it rains, the street is wet.\n* It rains.\n* Therefore the street is now wet.": [
        "It really is as follows:",
        "If it rains, the street is wet.",
        "It rains.",
        "Therefore the street is now wet.",
    ],
    "* If it rains, the street is wet.\n* It rains.\n* Therefore the street is now wet.": [
        "If it rains, the street is wet.",
        "Therefore the street is now wet.",
    ],
    "It has a name.\n; Divide and conquer\n: It makes a problem smaller again and again.": [
        "It has a name.",
        "Divide and conquer: It makes a problem smaller again and again.",
    ],
    "It has a name.\n; Greed : It takes the best at hand each time.": [
        "It has a name.",
        "Greed: It takes the best at hand each time.",
    ],
}


def test_lists_that_are_sentences() -> None:
    assert {text: prose(text) for text in LISTS} == LISTS


LEFT_OUT = [
    "\n* [[Link]]\n* [[Other link]]",
    "\n\n* Link",
    "\n{| class=x\n| cell\n|}",
    "\n  x = 1\n  y = 2",
    "\n; A term",
    "\n|a cell",
    "",
]


def test_a_sentence_that_leads_to_nothing_is_left_out() -> None:
    heading = "\n== Heading ==\nMore stands under it."
    for block in LEFT_OUT:
        for after, more in (("", []), (heading, ["More stands under it."])):
            found = prose(f"There are three of them. They are listed here:{block}{after}")
            assert found == ["There are three of them.", *more], block
            assert prose(f"They are listed as follows here:{block}{after}") == more, block


@pytest.mark.parametrize("block", ["{| class=x\n| cell\n|}", "* Link", "  x = 1\n  y = 2"])
def test_it_is_left_out_before_another_paragraph_too(block: str) -> None:
    assert prose(f"There are three of them. They are listed here:\n{block}\n\nMore stands after it.") == [
        "There are three of them.",
        "More stands after it.",
    ]


def test_over_a_list_that_is_left_out_a_sentence_needs_a_full_stop() -> None:
    assert prose(
        "It is true. He was happy by having\n:Twenty bookes, clad in blak or reed,\n:Of Aristotle and his philosophie"
    ) == ["It is true."]
    assert prose("It is true. He was happy by now.\n* [[Link]]") == ["It is true. He was happy by now."]
    assert prose("It is true. He was happy by now\n== Heading ==") == ["It is true. He was happy by now"]


ENDED = {
    "hy": "Սա նախադասություն է։ Սա ևս մեկն է։",
    "am": "ይህ ዓረፍተ ነገር ነው። ይህ ሌላ ነው።",
    "my": "ဒါက စာကြောင်းဖြစ်တယ်။ ဒါက နောက်တစ်ခုပါ။",
    "km": "នេះគឺជាប្រយោគ។ នេះគឺជាប្រយោគមួយទៀត។",
    "th": "นี่คือประโยค นี่คืออีกประโยคในปี พ.ศ. 2550",
    "lo": "ນີ້ແມ່ນປະໂຫຍກ ນີ້ແມ່ນອີກປະໂຫຍກໜຶ່ງ",
}


@pytest.mark.parametrize("language", ENDED)
def test_sentences_end_in_every_script(language: str) -> None:
    assert prose(f"{ENDED[language]}\n* [[Link]]", language=language) == [ENDED[language]]


def test_thai_that_ends_with_a_colon_leads_to_a_list() -> None:
    assert prose("นี่คือประโยค นี่คืออีกประโยค:\n* [[Link]]", language="th") == []


def test_a_sentence_that_leads_to_a_quotation_stays() -> None:
    assert prose("He wrote in a letter:\n{{quote|I came and I saw.}}") == ["He wrote in a letter:", "I came and I saw."]


DISPLAYED = {
    "The mean is\n:<math>\\frac{a+b}{2},</math>\nwhere a is the first number.": [
        "The mean is (a+b)/2, where a is the first number."
    ],
    "The mean is\n\n<math>\\frac{a+b}{2}</math>\n\nwhere a is the first number.": [
        "The mean is (a+b)/2 where a is the first number."
    ],
    "The mean of all is now\n:<math>x</math>\nThe median is another thing.": [
        "The mean of all is now x",
        "The median is another thing.",
    ],
    "This is a whole sentence.\n:<math>x = y + z + w</math>\nThis is another one.": [
        "This is a whole sentence.",
        "This is another one.",
    ],
    "The numbers\n<math>a</math>,\n<math>b</math> and c are all that there are.": [
        "The numbers a, b and c are all that there are."
    ],
    "They make water:\n:2H<sub>2</sub> + O<sub>2</sub> → 2H<sub>2</sub>O\nThis is a fire.": [
        "They make water: 2H2 + O2 → 2H2O",
        "This is a fire.",
    ],
    "He reported that they\n\nhave something like it there.": ["He reported that they have something like it there."],
    "This is a whole sentence.\n\nthis is another one.": ["This is a whole sentence.", "this is another one."],
}


def test_a_formula_belongs_to_the_sentence_around_it() -> None:
    assert {text: prose(text) for text in DISPLAYED} == DISPLAYED


@pytest.mark.parametrize(
    "hole",
    [
        HOLE,
        "{{Inflation|US|5|1929}}",
        "{{pop density|5|6|km2}}",
        "{{convert|15700|ft3|disp=output number only}}",
        "<chem>A \\overset{x}{->} B</chem>",
    ],
)
def test_a_sentence_with_a_hole_is_left_out_whole(hole: str) -> None:
    assert prose(f"It is here. By Dr. Smith it is put at ${hole}, as he says. It is there.") == [
        "It is here. It is there."
    ]
    assert prose(f"It is here (that is {hole} to us) and there.") == ["It is here and there."]
    assert prose(f"It is here.\n\n{hole}\n\nIt is there.") == ["It is here.", "It is there."]


def test_a_sentence_with_an_unwritable_displayed_formula_is_dropped() -> None:
    assert prose(f"It is\n:{HOLE}\nwhere it is not. It is there.") == ["It is there."]


SOUNDS_AND_PLACES = {
    "'''Foo''' ({{IPAc-en|ˈ|f|uː}}; {{lang-de|Fu}}) is it.": "Foo (Fu) is it.",
    "'''Foo''' ({{IPAc-en|ˈ|f|uː}} {{respell|FOO|a(w)l}}, plural fools) is it.": "Foo (plural fools) is it.",
    "'''Foo''' (República de Foo {{IPA-pt|fu}}; Kikongo: Fu) is it.": "Foo (República de Foo; Kikongo: Fu) is it.",
    "'''Foo''' (pronounced {{IPA|/fuː/}}) is it.": "Foo (pronounced /fuː/) is it.",
    "'''Foo''' (pronounced {{IPAc-en|f|uː|,_|f|oʊ}}, or so) is it.": "Foo (pronounced /fuː, foʊ/, or so) is it.",
    "'''Foo''' {{IPAc-en|f|uː}} {{respell|FOO}} is it.": "Foo is it.",
    "Foo (富) {{IPA-ja|fu|pron}} is it all.": "Foo (富) is it all.",
    "The word foo {{IPA-nah|fuː}} comes from it.": "The word foo [fuː] comes from it.",
    "It spells the phoneme {{IPA-de|tʃ}} and for {{IPAslink|ʃ}}.": "It spells the phoneme [tʃ] and for /ʃ/.",
    "It landed at {{coord|13|19|N|169|9|W|type:event}}, in the sea.": "It landed at 13°19′N 169°9′W, in the sea.",
    "It is in a town ({{coord|13.5|N|169|9|5|W}}) by the sea.": "It is in a town by the sea.",
}


def test_pronunciations_and_coordinates_are_words_outside_parentheses_only() -> None:
    assert {text: prose(text) for text in SOUNDS_AND_PLACES} == {
        text: [words] for text, words in SOUNDS_AND_PLACES.items()
    }


@pytest.mark.parametrize(
    "text", ["He said “a […] b” and [...] then (...) no more.", "A change of masters [-] revolutions only."]
)
def test_marks_of_omission_stay(text: str) -> None:
    assert prose(text) == [text]


def test_words_that_point_to_a_note_go_with_it() -> None:
    assert prose("It is so (e.g.,<ref>Note.</ref>) and so (see <ref>Note.</ref>) now.") == ["It is so and so now."]

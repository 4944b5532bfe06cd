"""No marks of markup are left in paragraphs, in any script: quote marks, headings, bars and numbers of notes."""

from pipeline.wikipedia.wikitext import NESTING, prose

SENTENCES = {
    "el": ("Η πόλη έχει πολλούς κατοίκους σήμερα.", "Το ποτάμι είναι πολύ μεγάλο εδώ.", "Ιστορία"),
    "uk": ("Місто має дуже багато мешканців сьогодні.", "Річка тут дуже велика й глибока.", "Історія"),
    "ar": ("المدينة لديها الكثير من السكان اليوم.", "النهر كبير جدا في هذا المكان.", "تاريخ"),
    "hi": ("शहर में आज बहुत से निवासी हैं।", "यहाँ की नदी बहुत बड़ी और गहरी है।", "इतिहास"),
    "zh": ("这座城市今天有很多的居民居住。", "这里的河流非常大而且很深。", "历史"),
    "vi": ("Thành phố ngày nay có nhiều cư dân.", "Con sông ở đây rất lớn và sâu.", "Lịch sử"),
    "en": ("The town has many people in it today.", "The river is large and deep here.", "History"),
}


BETWEEN = [
    "\n\n== {h} ==\n",
    "\n ==={h} ==\n",
    "\n=== {h} ==\n",
    "\n== {h} ===\n",
    "\n== {h}\n",
    "\n== {h} == ",
    "== {h} ==\n\n",
    "\n=====\n\n",
    "\n\n[[{h}\n\n== {h} ==\n[[{h}|",
    "\n\n[[{h}\n\n== {h} ==\n[[{h}|]]\n\n== {h} ==\n",
    "\n\n[[{h}\n== {h} ==\n[[{h} [[{h}]]\n=== {h} ===\n]]\n\n",
    "\n[[File:a.jpg|thumb|{h} [[{h}]]\n\n== {h} ==\n",
    "\n[[File:a.jpg|thumb|{h}\n== {h} ==\n]]",
    "\n{{{{{h}|\n== {h} ==\n{{{{{h}}}}}\n\n",
    "\n\n| {h} || {h}\n\n",
    "[12]\n\n",
    "[3][4, 5] [6–8]\n\n",
    "<sup>[[#{h}|[12]]]</sup>\n\n",
    "''<ref>{h}</ref>''\n\n",
    "'''<!-- {h} -->'''\n\n",
    "''{{{{unknown}}}}''\n\n",
    "''[[File:a.jpg]]''\n\n",
    "''[http://example.org/a]''\n\n",
    "'''<span id=\"a\"></span>'''\n\n",
    "<nowiki>''</nowiki>\n\n",
    "''<nowiki/>''\n\n",
]


def test_headings_and_marks_between_two_sentences_leave_nothing_behind():
    left = {
        (language, between): found
        for language, (first, second, heading) in SENTENCES.items()
        for between in BETWEEN
        if (found := prose(first + between.format(h=heading) + second, language)) != [first, second]
    }
    assert left == {}


def test_broken_links_and_headings_leave_all_sentences_of_an_article():
    first, second, heading = SENTENCES["el"]
    article = "".join(
        f"{first} [[{heading}{number}\n\n== {heading} ==\n{second} [[a|b]] [[c]\n\n" for number in range(2 * NESTING)
    )
    assert prose(article, "el") == [
        f"{first} {heading}{number}" if n == 0 else f"{second} b c" for number in range(2 * NESTING) for n in range(2)
    ]


def within(text: str) -> str:
    """Return what becomes of a text between words of a sentence."""
    (paragraph,) = prose(f"Before it stands {text} and more after it.")
    return paragraph.removeprefix("Before it stands ").removesuffix(" and more after it.")


WITHIN = {
    "[[a|«''Name'']]''»''": "«Name»",
    "[[a|l''amour''']] of it": "lamour of it",
    "<nowiki>''</nowiki>[[Name]]<nowiki>''</nowiki>": "Name",
    "''A''<ref>x</ref>''B''": "AB",
    "(Pashto |افغانستان)": "(Pashto افغانستان)",
    "mother|word and Vater|Wort": "mother/word and Vater/Wort",
    "one thing | and another": "one thing – and another",
    "a cell || and another": "a cell and another",
}


def test_marks_within_a_sentence_become_its_words():
    assert {text: within(text) for text in WITHIN} == WITHIN


WORDS = {
    "P(A | B) and |x| and |1⟩": "P(A | B) and |x| and |1⟩",
    "<math>|x|</math> and a[1] and [18]crown and [1990]": "|x| and a[1] and [18]crown and [1990]",
    "<code>a[12] == b || c &lt; d</code>": "a[12] == b || c < d",
    "<code><nowiki>''x''</nowiki></code>": "''x''",
    "<nowiki>''a'' | [12] == b &lt; c</nowiki>": "''a'' | [12] == b < c",
    "the dogs' and 'a' and '[t]he'": "the dogs' and 'a' and '[t]he'",
}


def test_the_same_signs_stay_where_they_are_words():
    assert {text: within(text) for text in WORDS} == WORDS

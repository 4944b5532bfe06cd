from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.abbreviations import NEVER_LAST, SELDOM_LAST
from pipeline.text.sentences import SHORT, WIDE_SPACE, is_fragment, is_language_code, split_sentences

TEXT = st.text(alphabet=st.sampled_from(list("aB JM.?!\"'()“”\u00a0\u3000\u2028\t\r\n。é1")), max_size=60)


def test_sentences_end_at_full_stops_and_at_line_feeds() -> None:
    text = "The first one.  Mr. Smith wrote it!\nA heading\nlower case after it. \n\n\t\nThe end"
    assert split_sentences(text) == [
        "The first one.",
        "Mr. Smith wrote it!",
        "A heading",
        "lower case after it.",
        "The end",
    ]


def test_lines_that_are_sentences_are_not_split() -> None:
    assert split_sentences(" One. Two.\r\n\n  \nThree", lines_are_sentences=True) == ["One. Two.", "Three"]


def test_the_language_decides() -> None:
    assert split_sentences("Das ist z.B. Holz. Doch.", language="de") == ["Das ist z.B. Holz.", "Doch."]


ABBREVIATED = [
    ("el", ["Η Ε.Σ.Σ.Δ. ιδρύθηκε το 1922.", "Οι Η.Π.Α. και η Γαλλία είναι χώρες."]),
    ("el", ["Το μήκος είναι 5 χλμ. από την πόλη.", "Ο Γ. Παπανδρέου ήρθε (βλ. σελ. 12) το 300 π.Χ. στην Αθήνα."]),
    (
        "bg",
        ["През 5 в. пр. н. е. градът е основан.", "Роден е на 5 май 1970 г. в София.", "Там живее и П. Славейков."],
    ),
    ("vi", ["TS. Nguyễn Văn A đến TP. Hồ Chí Minh hôm qua.", "Theo PGS.TS. Trần thì đúng.", "“GS. Lê nói vậy.”"]),
    (
        "en",
        [
            "See figs. 2 and 3 (eqs. 4 and 5) for more.",
            "It weighs 10 lbs. at most.",
            "He has approx. five.",
            "See Exod. xx. 12 too.",
        ],
    ),
    ("en-gb", ["It weighs ten lbs.", "They carried it."]),
    ("uk", ["Тут жив І. Франко.", "Він прибув у пн. частину міста."]),
    ("ru", ["В 5 в. до н. э. город был основан.", "Он стоит и теперь."]),
    ("hi", ["वह कल आया।", "डॉ. राम आए।"]),
]


def test_abbreviations_do_not_end_sentences() -> None:
    found = [split_sentences(" ".join(sentences), language=language) for language, sentences in ABBREVIATED]
    assert found == [sentences for _, sentences in ABBREVIATED]


FRAGMENTS = {
    "He asked why. No. Then he left.": ["He asked why. No.", "Then he left."],
    "No. It was not so. Ah!": ["No. It was not so. Ah!"],
    "1. The first thing. 2. The second. 3.": ["1. The first thing.", "2. The second. 3."],
    "It ended. 12. !": ["It ended. 12. !"],
    "No.\nYes.": ["No.", "Yes."],
    "Ai. Eh. Oh.": ["Ai. Eh. Oh."],
}


def test_a_piece_of_fewer_than_four_letters_is_no_sentence() -> None:
    assert {text: split_sentences(text) for text in FRAGMENTS} == FRAGMENTS


IDEOGRAPHS = [
    ("zh", "好的。我们走吧！他来了。", ["好的。", "我们走吧！", "他来了。"]),
    ("zh", "我们走吧！好。他来了。", ["我们走吧！好。", "他来了。"]),
    ("ja", "はい。そうです。いや。", ["はい。", "そうです。", "いや。"]),
    ("ko", "아니. 그렇습니다.", ["아니.", "그렇습니다."]),
]


def test_two_ideographs_or_syllables_are_a_sentence() -> None:
    found = [split_sentences(text, language=language) for language, text, _ in IDEOGRAPHS]
    assert found == [sentences for *_, sentences in IDEOGRAPHS]


def test_no_abbreviation_is_longer_than_what_is_looked_at() -> None:
    for words in (NEVER_LAST, SELDOM_LAST):
        assert all(
            len(word) < SHORT - len("(. ") and "." not in word for listed in words.values() for word in listed.split()
        )
    assert not any(set(NEVER_LAST[code].split()) & set(SELDOM_LAST.get(code, "").split()) for code in NEVER_LAST)
    assert all(map(is_language_code, NEVER_LAST | SELDOM_LAST))


def test_no_text_has_no_sentences() -> None:
    assert [split_sentences(text) for text in ("", "\n\n", " \u3000\n\u00a0")] == [[], [], []]


def test_wide_space_before_an_initial_is_a_plain_space() -> None:
    """sentencex 1.0.32 panics on these."""
    plain = split_sentences("Written by J. Smith. B was not.")
    for space in "\u0085\u00a0\u1680\u2000\u2007\u2028\u2029\u202f\u205f\u3000":
        assert split_sentences(f"Written by{space}J. Smith.{space}B was not.") == plain, repr(space)


@given(TEXT, st.booleans())
def test_nothing_is_lost_and_no_sentence_is_blank(text: str, lines: bool) -> None:
    sentences = split_sentences(text, lines_are_sentences=lines)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)
    assert not any(WIDE_SPACE.search(sentence) for sentence in sentences)
    if not lines and "\n" not in text and len(sentences) > 1:
        assert not any(map(is_fragment, sentences))


def test_a_sentence_keeps_the_space_before_it_within_its_line() -> None:
    text = "One cat sat.  Two dogs ran. \u00a0Three cats. \n Four dogs sat. 五只猫坐下了。六只狗跑了。 Seven."
    assert split_sentences(text, keep_spaces=True) == [
        *("One cat sat.", " Two dogs ran.", " Three cats."),
        *("Four dogs sat.", " 五只猫坐下了。", "六只狗跑了。", " Seven."),
    ]  # fmt: skip
    joined = split_sentences(f"\n{text}", keep_spaces=True, join_lines=True)
    assert joined[:4] == ["One cat sat.", " Two dogs ran.", " Three cats.", " Four dogs sat."]
    assert joined[5] == "六只狗跑了。"
    lines = "One cat.\n Two dogs.\n\nThree."
    assert split_sentences(lines, keep_spaces=True, lines_are_sentences=True) == ["One cat.", " Two dogs.", " Three."]
    assert split_sentences("", keep_spaces=True, lines_are_sentences=True) == []


@given(TEXT, st.booleans())
def test_sentences_with_their_spaces_are_the_text(text: str, lines: bool) -> None:
    kept = split_sentences(text, lines_are_sentences=lines, keep_spaces=True)
    assert [sentence.removeprefix(" ") for sentence in kept] == split_sentences(text, lines_are_sentences=lines)
    if "\n" not in text:
        assert not "".join(kept).startswith(" ")
        assert "".join(kept).split() == text.split()


@given(TEXT, TEXT)
def test_lines_do_not_see_each_other(first: str, second: str) -> None:
    assert split_sentences(f"{first}\n{second}") == split_sentences(first) + split_sentences(second)

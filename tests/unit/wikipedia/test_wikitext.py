import time

import mwparserfromhell
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wikipedia import templates, wikitext
from pipeline.wikipedia.wikitext import prose


def one(text: str, language: str | None = None) -> str:
    """The single paragraph of a text that is put between words, as inside a sentence."""
    (paragraph,) = prose(f"Before it stands {text} and after it more.", language)
    return paragraph.removeprefix("Before it stands ").removesuffix(" and after it more.")


INLINE = {
    "[[a|b]]": "b",
    "[[a]]s": "as",
    "[[A b (c)|]]": "A b",
    "[[:Category:Cats]]": "Category:Cats",
    "[[wikt:word|a word]]": "a word",
    "[[x|the ''[[y|inner]]'' link]]": "the inner link",
    "[http://x.org/a?b=1 the text]": "the text",
    "[//x.org the text]": "the text",
    "'''bold''', ''italic'', '''''both''''' and l''''amour'''": "bold, italic, both and l'amour",
    "the ''Eagle'''s hatch": "the Eagle's hatch",
    "the ''Eagle''{{'s}} crew": "the Eagle's crew",
    "10<sup>3</sup> and 10<sup>−6</sup>": "10^3 and 10^−6",
    "sp<sup>3</sup>, ''t''<sup>2</sup>, cm<sup>−1</sup>, H<sup>+</sup>, the 1<sup>st</sup>": (
        "sp³, t², cm⁻¹, H+, the 1st"
    ),
    "1<sup>1</sup>/<sub>4</sub> and <sup>1</sup>/<sub>4</sub>": "1 1/4 and 1/4",
    'H<sub>2</sub>O, m<sup>2</sup>, <span style="x">a</span> <b>b</b> <small>c</small>': "H2O, m², a b c",
    "&lt;b&gt; &amp;amp; &#8212; &nbsp;x&shy;y": "<b> &amp; — xy",
    "<nowiki>''b'' {c|d} <ref></nowiki>": "''b'' {c|d} <ref>",
    "<math>x_1 \\leq \\alpha</math> <math>a &lt; b</math>": "x1 ≤ α a < b",
    "{a} and }": "{a} and }",
    "-{zh-hans:计算机; zh-hant:電腦}-": "计算机",
}


def test_inline_markup_becomes_its_words():
    assert {text: one(text) for text in INLINE} == INLINE


NO_PROSE = [
    "<!-- a [[comment]] -->",
    "<ref>a {{cite book|title=x}} note</ref>",
    '<ref name="a" />',
    "<ref group=n>a <b>c</b></ref>",
    "[[File:x.jpg|thumb|100px|A [[caption|with]] links {{convert|5|km}}]]",
    "[[Файл:x.jpg|міні|Опис]]",
    "[[Category:Cats]]",
    "[[Категорія:Коти|К]]",
    "[[zh-min-nan:Niau]]",
    "__NOTOC__",
    "__БЕЗ_ЗМІСТУ__",
    "{{sfn|Smith|1999}}",
    "{{citation needed|date=May 2012}}",
    "{{unknown|[[a|b]]|{{unknown|c=d}}}}",
    "{{coord|5|N|6|E|display=title}}",
    "https://example.org/a_b?c=d",
    "<gallery>\nFile:a.jpg|A caption\n</gallery>",
    "<math></math>",
    '<templatestyles src="x" />',
    "({{IPA-de|ˈfʊs|x}}; )",
    "({{lang-de|}}, )",
    '("αρχ{{unknown|a}}. {{unknown|b}}. α!")',
    "(${{Inflation|US|5|1929}} in {{CURRENTYEAR}} dollars)",
]


def test_what_is_no_prose_leaves_nothing_behind():
    left = {text: prose(f"Before it stands {text} and more after it.") for text in NO_PROSE}
    assert left == dict.fromkeys(NO_PROSE, ["Before it stands and more after it."])


TEMPLATES = {
    "{{convert|5|km|mi}}": "5 km",
    "{{convert|5|-|10|km|mi|abbr=on}}": "5–10 km",
    "{{Cvt|5|to|10|sqmi}}": "5 to 10 sq mi",
    "{{convert|6|ft|2|in|m}}": "6 ft 2 in",
    "{{convert|12345.5|km2|0}}": "12,345.5 km²",
    "{{convert|20|C}}": "20 °C",
    "{{lang|fr|mot}}": "mot",
    "{{font color|white|black|a word}} {{font color|red|b}}": "a word b",
    "{{w|nuclear weapon|nuclear weapons}} and {{w|Paris}}": "nuclear weapons and Paris",
    "{{enS|word}}": "word",
    "{{nihongo|English|漢字|romaji}}": "English (漢字, romaji)",
    "{{nihongo||漢字|romaji}}": "romaji (漢字)",
    "{{transl|ar|DIN|kitāb}}": "kitāb",
    "{{nowrap|a {{small|b}} [[c|d]]}}": "a b d",
    "{{abbr|UN|United Nations}}": "UN",
    "{{as of|2012|3|lc=y}}": "as of March 2012",
    "{{as of|2012|3|5}}": "As of 5 March 2012",
    "{{birth date|1950|1|2}}": "January 2, 1950",
    "{{Birth_date and age|df=yes|1950|01|02}}": "2 January 1950",
    "{{circa|1900|1910}}": "c. 1900 – c. 1910",
    "{{circa}} 1900": "c. 1900",
    "{{frac|1|2}} {{frac|3}} {{frac|1|3|4}}": "1/2 1/3 1 3/4",
    "1{{sfrac|1|4}} or x{{frac|1|2}}": "1 1/4 or x1/2",
    "{{convert|1{{frac|1|2}}|km}} and {{convert|1+1/2|km}}": "1 1/2 km and 1 1/2 km",
    "{{convert|1.4|Moilbbl/d}}": "1.4 million barrels per day",
    "{{harvtxt|Boolos|Jeffrey|1974}}, {{harvtxt|Smith|1999|p=5}}": "Boolos & Jeffrey (1974), Smith (1999)",
    "HA {{eqm}} H": "HA ⇌ H",
    "{{IPA|/ʔa/}}, {{nq|افغانستان}}, {{script/Arabic|ﷲ}}, {{lang-x-slav|chǫ}}": "/ʔa/, افغانستان, ﷲ, chǫ",
    "'''Paris''' ({{IPA|fr|paʁi|lang}}), pronounced {{IPA|zh-min-nan|x}}.": "Paris, pronounced [x].",
    "'just knowing.{{' \"}}": "'just knowing.'\"",
    "{{citation needed span|text=some words|date=May 2012}}": "some words",
    "{{US patent|1781541}}": "U.S. Patent 1781541",
    "{{ДН|8|1|1901}}": "8.1.1901",
    "{{val|5|u=km|up=h}} and {{val|5|ul=km|upl=h}}": "5 km/h and 5 km/h",
    "{{val|5|up=s}}": "5/s",
    "{{val|1.5|0.1|u=m}}": "1.5 ± 0.1 m",
    "{{val|1.5|0.1|e=3|u=m}}": "(1.5 ± 0.1) × 10^3 m",
    "{{val|1.5|e=3}} and {{val|e=3|u=m}}": "1.5 × 10^3 and 10^3 m",
    "{{height|ft=6|in=2}}": "6 ft 2 in",
    "the dogs{{'}}": "the dogs'",
    "a{{ndash}}b{{nbsp}}c{{spaces|3}}d{{mdash}}e": "a–b c d—e",
    "{{pi}}": "π",
    "{{math|1=x = 5}} {{math|a {{=}} b}}": "x = 5 a = b",
    "{{formatnum:12345}}": "12,345",
    "{{lc:ABC}} {{#if:x|yes|no}} {{#if: |yes|no}}": "abc yes no",
    "{{USS|Enterprise|CV-6}} {{ship|German submarine|U-47|1938}} {{sclass|Nimitz|aircraft carrier}}": (
        "USS Enterprise (CV-6) German submarine U-47 (1938) Nimitz-class aircraft carrier"
    ),
    "{{HMS|Hood|51|6}}, {{USS|Enterprise|CV-6|2}}, {{USS|Enterprise|CV-6|5}}": "HMS Hood, Enterprise, USS CV-6",
    "{{SMS|Novara|1912|3}}, {{SMS|Novara|1912|1}}, {{ship||Novara||6}}": "Novara (1912), 1912, Novara",
    "{{ill|Foo|de|Bar}} {{ill|de|Foo|Bar}} {{не перекладено|Foo|текст|en|Bar}}": "Foo Foo текст",
    "{{s|XIX|e}} {{date|12|mai|2000}} {{unité|5|km}}": "XIXe siècle 12 mai 2000 5 km",
    "{{-s|IV|e}}, {{date-|octobre 2018}}, {{date|9 mai 2005|en sport}}, {{date-|9|mai|2005}}": (
        "IVe siècle av. J.-C., octobre 2018, 9 mai 2005, 9 mai 2005"
    ),
    "{{zh|t=漢語|s=汉语|p=Hànyǔ}}": "漢語, Hànyǔ",
    "{{{1|default}}}": "default",
}


def test_templates_that_carry_words_are_rendered():
    assert {text: one(text) for text in TEMPLATES} == TEMPLATES


ARTICLE = """{{Infobox
| name = {{lang|fr|x}}
| image = [[File:a.jpg|thumb|b]]
}}
<!-- a comment line -->
'''Foo''' is a [[word]]
of two lines.<ref>Note.</ref>

{| class="wikitable"
| a long sentence in a cell of a table.
{|
| nested
|}
|}
== History ==
A second paragraph is here.
* This item is a whole sentence.
* [[Link]]
* Smith, J. (1999). Title of the book. London. pp. 5–9.
# No full stop in this item
:And this is an indented sentence.

  x = 1
  y = a longer line of code.
----
{{quote|A quotation stands for itself.|Author}}
The last <br/> paragraph is this.
<poem>The first verse is here.
The second verse is here.</poem>
=== See also ===
* This item is a whole sentence.
==== Deeper ====
* This item is a whole sentence, too.
== Legacy ==
* This item is not under links.
[[Category:X]]
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_an_article_becomes_its_paragraphs(ends: str):
    assert prose(ARTICLE.replace("\n", ends)) == [
        "Foo is a word of two lines.",
        "A second paragraph is here.",
        "This item is a whole sentence.",
        "And this is an indented sentence.",
        "A quotation stands for itself.",
        "The last paragraph is this.",
        "The first verse is here.",
        "The second verse is here.",
        "This item is not under links.",
    ]


def test_a_comment_on_a_line_of_its_own_leaves_no_paragraph_break():
    assert prose("The first line\n<!-- x -->\nand the second line.") == ["The first line and the second line."]


NEVER_CLOSED = {
    "{| a\n| b\n\nThe text goes on here.": ["The text goes on here."],
    "{| a\n| b\nThe cell goes on in another line.\n\nThe text goes on here.": ["The text goes on here."],
    "{| a\n| b\n|} The text goes on here.": ["The text goes on here."],
    "{| a\n| b\n== Heading ==\nThe text goes on here.": ["The text goes on here."],
    "{| a\n{| b\n|}\n| c\n\nThe text goes on here.": ["The text goes on here."],
    "{{Infobox\n| a = b\n\nThe text goes on here.": ["The text goes on here."],
    "The text [[goes on here.": ["The text goes on here."],
    "The text <ref>goes on<ref name=x>{{cite}}</ref> here.": ["The text goes on here."],
    "The text goes on here.<ref>A <i>note</i>.\n\nAnd it ends here.": ["The text goes on here.", "And it ends here."],
    "The text goes on here.}} ]] |}": ["The text goes on here. |}"],
    "The text goes on here. <!-- never closed [[a": ["The text goes on here."],
    "{{a|[[b}} The text goes on here.": ["The text goes on here."],
    "[[a|{{b]] The text goes on here.": ["b The text goes on here."],
    "[[target|The text goes on here.": ["The text goes on here."],
    "[[File:a.jpg|thumb|A caption of [[five]] words.\nThe text goes on here.": ["The text goes on here."],
    "[[Category:A]\nThe text goes on here.": ["The text goes on here."],
    "{{nowrap|The text goes on here.": ["The text goes on here."],
}


def test_what_is_never_closed_costs_no_text_behind_it():
    assert {text: prose(text) for text in NEVER_CLOSED} == NEVER_CLOSED


@pytest.mark.parametrize("depth, kept", [(40, 1), (41, 0)])
def test_templates_are_expanded_as_deep_as_by_mediawiki(depth: int, kept: int):
    assert len(prose("{{nowrap|" * depth + "This is a whole sentence." + "}}" * depth)) == kept


def test_the_wiki_names_its_own_namespaces_and_its_title():
    text = "[[Obrazek:a.jpg|b]] {{PAGENAME}} is the title of this page."
    assert prose(text, "xx", "Foo", ["Obrazek"]) == ["Foo is the title of this page."]
    assert prose(text, "xx", "Foo") == ["b Foo is the title of this page."]


def test_a_picture_of_an_unknown_namespace_is_known_by_its_options():
    assert prose("[[Obrazek:a.jpg|thumb|200px|b]] The sentence stands behind it.") == ["The sentence stands behind it."]


def test_a_bar_of_links_is_no_paragraph():
    assert prose("[[First]] · [[Second]] · [[Third]] · [[Fourth link]]\n\nA sentence stands under the bar.") == [
        "A sentence stands under the bar."
    ]


def test_a_number_is_grouped_in_english_only():
    assert [one("{{formatnum:12345}}", language) for language in ("en", "de")] == ["12,345", "12345"]


def test_chinese_needs_no_spaces_to_be_a_sentence():
    assert prose("* 这是一个没有空格的完整句子。\n* 短。") == ["这是一个没有空格的完整句子。"]


def test_every_template_of_the_table_bears_any_arguments():
    for name in templates.TEMPLATES:
        assert isinstance(templates.render(name, {}), str)
        assert isinstance(templates.render(name, {"1": "9" * 5000, "2": "x", "3": "-" * 5000, "e": "\n"}), str), name


DEEP = 30_000


UNBALANCED = [
    "{{" * DEEP,
    "[[" * DEEP,
    "{{a|" * DEEP + "}}" * DEEP,
    "[[a|{{b|" * DEEP,
    "]]}}" * DEEP,
    "{{{" * DEEP + "}}}" * DEEP,
    "[[a|" * DEEP + "]]" * DEEP,
    "<ref>" * DEEP,
    "<math><ref>" * DEEP,
    "<!-- " * DEEP,
    "{|\n\n" * DEEP,
    "[http://a " * DEEP,
    "(" * DEEP,
    "(," * DEEP,
    "( " * DEEP,
    " " * DEEP + "x" + "," * DEEP,
    "== a " * DEEP,
    "\n==" * DEEP,
    "'" * DEEP,
    "__A" * DEEP,
    "&#" * DEEP,
    "<math>\\frac" * DEEP,
    "<math>\\begin</math>" * DEEP,
    "(<math>\\begin</math>" * DEEP,
    "({{IPA-de|x}}" * DEEP,
    "({{IPA-de|x}};" * DEEP + ")",
    "(a (b)" * DEEP,
    "x\n\n" * DEEP,
    "x:\n* y,\n" * DEEP,
    ":<math>x</math>\n" * DEEP,
    "x<sup>" * DEEP,
    "1<sup>1</sup>/" * DEEP,
    "-{" * DEEP,
    "{{convert|" + "1" * DEEP + "|km}}",
    "http://,,," * DEEP,
]


def test_unbalanced_text_takes_linear_time():
    """Anything quadratic takes much longer at these lengths: mwparserfromhell half a minute for 10,000 times "{{a|"."""
    slow = []
    for text in UNBALANCED:
        started = time.process_time()
        paragraphs = prose(f"A sentence comes before it.\n\n{text}\n\n== Heading ==\n")
        assert paragraphs[:1] in (["A sentence comes before it."], []), text[:12]
        if (seconds := time.process_time() - started) > 5:
            slow.append(f"{text[:12]}: {seconds:.0f} s")
    assert slow == []


@given(st.text(alphabet="ab [](){}|<>!-/='*#:;&\n.,_~\u00a0\u200b", max_size=60))
def test_no_text_raises_and_no_bracket_is_left(text: str):
    for paragraph in prose(text):
        assert paragraph == paragraph.strip() != "" and "\n" not in paragraph
        assert not any(mark in paragraph for mark in ("[[", "]]", "{{", "}}", "http://"))


WORDS = st.text(alphabet="abc =", min_size=1, max_size=5)
NESTED = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(" ".join),
        inner.map(lambda text: f"{{{{nowrap|1={text}}}}}"),
        inner.map(lambda text: f"{{{{unknown|{text}|x=[[y|z]]}}}}"),
        inner.filter(lambda text: "[[" not in text).map(lambda text: f"[[Target|t{text}]]"),
    ),
    max_leaves=12,
)


def oracle(code: mwparserfromhell.wikicode.Wikicode) -> str:
    """The words of nested brackets as mwparserfromhell reads them."""
    found = []
    for node in code.nodes:
        if isinstance(node, mwparserfromhell.nodes.Template):
            found.append(oracle(node.get(1).value) if node.name == "nowrap" else "")
        elif isinstance(node, mwparserfromhell.nodes.Wikilink):
            found.append(oracle(node.text))
        else:
            found.append(str(node))
    return "".join(found)


@given(NESTED)
def test_brackets_are_matched_as_by_mwparserfromhell(text: str):
    expected = oracle(mwparserfromhell.parse(text, skip_style_tags=True))
    found = wikitext.render_brackets(text, wikitext.Page()).replace("&#61;", "=")
    assert found.replace(" ", "") == expected.replace(
        " ", ""
    )  # where a template's white space goes is a matter of taste

import pytest

from pipeline.text.documents import Dropped
from pipeline.wikipedia import dump
from pipeline.wikipedia.dump import is_dump, read_dump

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="de">
  <siteinfo>
    <dbname>dewiki</dbname>
    <namespaces>
      <namespace key="-1" case="first-letter">Spezial</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Eigenbild</namespace>
      <namespace key="10" case="first-letter">Vorlage</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"
BODY = "Dies ist ein ganzer Satz."


def page(id: int, title: str = "T", text: str = BODY, ns: str | None = "0", more: str = "") -> str:
    space = "" if ns is None else f"<ns>{ns}</ns>\n    "
    return (
        f"  <page>\n    <title>{title}</title>\n    {space}<id>{id}</id>\n{more}    <revision>\n      <id>99</id>\n  "
        f'    <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


def read(content: str | bytes, size: int = 7) -> list[tuple]:
    """(id, title, paragraphs, language) or (id, reason), the stream being cut to blocks of a few bytes."""
    data = content.encode() if isinstance(content, str) else content
    items = read_dump((data[at : at + size] for at in range(0, len(data), size)), "f")
    return [
        (item.id, item.reason)
        if isinstance(item, Dropped)
        else (item.id, item.title, list(item.paragraphs), item.language)
        for item in items
    ]


def test_articles_of_a_dump():
    articles = (
        HEAD
        + page(1, "A &amp; B", "Der [[Hund|Hunde]]satz &amp;amp; mehr davon.\n[[Eigenbild:x.jpg|mini|weg]]")
        + page(2)
        + TAIL
    )
    for prefix in (
        "",
        "\ufeff",
        '<?xml version="1.0"?>\n',
        "<!-- made by -- a <page> of <mediawiki xml:lang='en'> -->\n",
        "<!DOCTYPE mediawiki>\n",
        '\ufeff<?xml version="1.0"?>\n<!-- a -->\n<!DOCTYPE mediawiki [<!ENTITY a "b>c">]>\n<?b c?>\n<!-- d -->',
    ):
        assert is_dump((prefix + articles).encode()), prefix
        for size in (1, 6, 1000):
            assert read(prefix + articles, size) == [
                ("f:1", "A & B", ["Der Hundesatz & mehr davon."], "de"),
                ("f:2", "T", [BODY], "de"),
            ], prefix


def test_a_record_is_its_own_parent():
    (record,) = read_dump(iter([(HEAD + page(5) + TAIL).encode()]), "f")
    assert not isinstance(record, Dropped) and record.parent == record.id == "f:5"


def test_line_ends_of_other_systems():
    text = HEAD + page(1, text="Eine erste Zeile steht hier.\n\nEine zweite Zeile steht hier.") + TAIL
    assert (
        read(text.replace("\n", "\r\n"))
        == read(text)
        == [("f:1", "T", ["Eine erste Zeile steht hier.", "Eine zweite Zeile steht hier."], "de")]
    )


def test_a_stream_may_start_at_a_page():
    assert read(page(1) + page(2)) == [("f:1", "T", [BODY], None), ("f:2", "T", [BODY], None)]


@pytest.mark.parametrize(
    "head, language",
    [
        ('<mediawiki xml:lang="uk">', "uk"),
        ("<mediawiki><siteinfo><dbname>frwiki</dbname></siteinfo>", "fr"),
        ("<mediawiki><siteinfo><dbname>zh_yuewiktionary</dbname></siteinfo>", "zh-yue"),
        ("<mediawiki><siteinfo><dbname>commonswiki</dbname></siteinfo>", None),
    ],
)
def test_the_head_tells_the_language(head: str, language: str | None):
    assert read(head + page(1) + TAIL)[0][3] == language


NO_ARTICLES = [
    (page(1, more='    <redirect title="X" />\n'), "redirect"),
    (page(1, text="#REDIRECT [[X]]"), "redirect"),
    (page(1, text="#weiterleitung [[X]]"), "redirect"),
    (page(1, text="#ПЕРЕНАПРАВЛЕННЯ [[X]]"), "redirect"),
    (page(1, text="# НЕВІДОМЕ: [[X]]"), "redirect"),
    (page(1, ns="1"), "other namespace"),
    (page(1, "Vorlage:X", ns=None), "other namespace"),
    (page(1, text="A __DISAMBIG__"), "disambiguation"),
    (page(1, text="A {{Disambiguation|geo}}"), "disambiguation"),
    (page(1, text="A {{hndis|Smith, John}}"), "disambiguation"),
    (page(1, text="A {{Begriffsklärung}}"), "disambiguation"),
    (page(1, text="A {{Неоднозначність}}"), "disambiguation"),
    (page(1, text="A {{Homonymie}}"), "disambiguation"),
    (page(1, text="A {{Desambiguación}}"), "disambiguation"),
    (page(1, text="A {{some_disambiguation\n|x}}"), "disambiguation"),
    (page(1, "Austin (disambiguation)"), "disambiguation"),
    (page(1, "Ядро (значення)"), "disambiguation"),
    (page(1, text="&nbsp;"), "broken record"),
    (page(1, text="<b>no end"), "broken record"),
    (page(1, text="a\0b"), "broken record"),
    (page(1).replace("<page>", '<page>\n<!DOCTYPE x [<!ENTITY y "z">]>'), "broken record"),
    (page(1, text="<a>" * 5000 + "</a>" * 5000), "broken record"),
    (page(1).encode().replace(b"Satz", b"Sa\xfftz"), "broken record"),
]


def test_what_is_no_article_is_dropped_by_its_reason():
    around = HEAD.encode() + page(7).encode(), page(8).encode() + TAIL.encode()
    contents = [content.encode() if isinstance(content, str) else content for content, _ in NO_ARTICLES]
    found = [[item[:2] for item in read(around[0] + content + around[1], 1000)] for content in contents]
    assert found == [[("f:7", "T"), ("f:1", reason), ("f:8", "T")] for _, reason in NO_ARTICLES]


@pytest.mark.parametrize(
    "text",
    [
        "# [[Liste]] mit einem Satz dahinter.",
        "{{Begriffsklärungshinweis}} " + BODY,
        "{{disambiguation needed}} " + BODY,
        "{{Voir homonymes}} {{ver desambiguação}} {{nota disambigua}} {{zie doorverwijspagina}} " + BODY,
    ],
)
def test_an_article_that_looks_a_little_like_another_page_is_kept(text: str):
    assert len(read(page(1, text=text))[0]) == 4


def test_an_article_without_prose_has_no_paragraphs():
    assert read(HEAD + page(1, text="{{Infobox}}") + "<page><title>N</title><ns>0</ns><id>2</id></page>" + TAIL) == [
        ("f:1", "T", [], "de"),
        ("f:2", "N", [], "de"),
    ]


def test_of_several_revisions_the_last_counts():
    assert read(
        page(1).replace("</revision>", "</revision><revision><text>Dies ist der letzte Stand.</text></revision>")
    )[0][2] == ["Dies ist der letzte Stand."]


BROKEN: list[tuple[str, list]] = [
    (HEAD + page(1) + page(2)[:-20], ["f:1", ("f:2", "truncated file")]),
    (HEAD + page(1) + page(2)[:-100], ["f:1", ("f:2", "truncated file")]),
    (HEAD + page(1) + "<page>", ["f:1", ("f:page 2", "truncated file")]),
    (HEAD + page(1)[:-20] + page(2) + TAIL, [("f:1", "broken record"), "f:2"]),
    (
        HEAD + page(1) + page(2).replace("<page>", "<pgae>") + page(3) + TAIL,
        ["f:1", ("f:2", "broken record"), "f:3"],
    ),
    (HEAD + page(1) + "junk" + page(2) + TAIL, ["f:1", ("f:page 2", "broken record"), "f:2"]),
    (HEAD + page(1) + "</page>" + page(2) + TAIL, ["f:1", ("f:page 2", "broken record"), "f:2"]),
    (HEAD[:200], [("f:page 1", "truncated file")]),
    ("no dump at all", [("f:page 0", "broken record")]),
    (HEAD + TAIL, []),
    ("", []),
    (HEAD + page(1) + TAIL + HEAD.replace('"de"', '"en"') + page(2) + TAIL, ["f:1", "f:2"]),
]


def test_a_broken_page_costs_no_other():
    found = [[item[0] if len(item) == 4 else item for item in read(content)] for content, _ in BROKEN]
    assert found == [expected for _, expected in BROKEN]


def test_a_page_too_long_is_dropped_without_being_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dump, "LIMITS", dump.LIMITS | {"page": 5000})
    long = (
        HEAD
        + page(1, text="x" * 4000)
        + page(2, text="x" * 100_000)
        + page(3)
        + page(4, text="x" * 100_000)[:-50]
        + page(5)
        + TAIL
    )
    assert [item[:2] for item in read(long, 1000)] == [
        ("f:1", "T"),
        ("f:2", "page too long"),
        ("f:3", "T"),
        ("f:4", "page too long"),
        ("f:5", "T"),
    ]
    assert [len(content) for kind, content in dump.split_pages([long.encode()]) if kind == "page too long"] == [
        dump.KEPT_BYTES
    ] * 2


def test_what_is_no_dump():
    assert not any(map(is_dump, (b"", b"<doc id=1>", b"text about <mediawiki", b"<mediawikis>", b"\0<mediawiki>")))

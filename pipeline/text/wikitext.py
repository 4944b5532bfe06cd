"""Wikitext -> paragraphs of clean prose, in time linear in its length whatever it holds.

Brackets are matched by one scan with a stack, as MediaWiki's preprocessor does: {{templates}} and [[links]] become their words from the inside out.
What is nested deeper than MediaWiki itself expands is dropped; what is never closed loses its brackets.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.text import templates
from pipeline.text.formulas import one_line, reaction
from pipeline.text.templates import ASIDE, ASIDE_END, HOLE
from pipeline.text.wikilines import FORMULA, clean_paragraphs
from pipeline.text.wikinames import CATEGORIES, FILES, NOT_LANGUAGES

NESTING = 40
"""MediaWiki's own limit on the depth of templates."""
LONGEST_NAME = 300
"""Characters of a template's name; titles of pages have at most 255 bytes."""

TAGS_WITHOUT_PROSE = (
    "ref|references|gallery|timeline|score|graph|hiero|imagemap|syntaxhighlight|source|pre|templatestyles|categorytree|inputbox|mapframe|maplink|templatedata|table|style|script|includeonly|indicator|del|rss"
)
HIDDEN = re.compile(
    r"<!--(?:.*?-->(?P<end>[ \t]*\n)?|.*\Z)"
    r"|<(?P<literal>nowiki|math|chem|ce)\b[^<>]*(?<!/)>(?P<inner>[^<]*+(?:<(?!/?(?P=literal)\b)[^<]*+)*+)</(?P=literal)\s*>"
    rf"|<(?:{TAGS_WITHOUT_PROSE}|nowiki|math|chem|ce)\b[^<>]*/\s*>"
    rf"|<(?P<dropped>{TAGS_WITHOUT_PROSE})\b[^<>]*>[^<]*+(?:<(?!/?(?P=dropped)\b)[^<]*+)*+</(?P=dropped)\s*>",
    re.DOTALL | re.IGNORECASE,
)
"""No alternative looks past the next opening of its own tag, so that unclosed tags cost no second reading."""
POEM = re.compile(r"<poem\b[^<>]*>([^<]*+(?:<(?!/?poem\b)[^<]*+)*+)</poem\s*>", re.IGNORECASE)
BLOCK_TAG = re.compile(r"</?(?:p|div|blockquote|center|ul|ol|dl|dd|dt|h[1-6]|hr|tr|td|th|table|poem|section|gallery|references)\b[^<>]*>", re.IGNORECASE)
ITEM_TAG = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
LINE_TAG = re.compile(r"<br\b[^<>]*>|</br\s*>", re.IGNORECASE)
TAG = re.compile(
    rf"</?(?:b|i|u|s|em|strong|strike|sub|sup|small|big|span|font|tt|code|kbd|samp|var|cite|q|abbr|acronym|dfn|ins|bdi|bdo|wbr|nobr|ruby|rb|rt|rp|rtc|a|img|li|mark|data|time|caption|thead|tbody|tfoot|col|colgroup"
    rf"|noinclude|onlyinclude|nowiki|math|chem|ce|section|languages|translate|tvar|phonos|{TAGS_WITHOUT_PROSE})\b[^<>]*>|</?ref\b",
    re.IGNORECASE,
)
WEB_LINK = re.compile(r"\[(?:(?:https?:|ftps?:|irc:|gopher:|news:|svn:|git:)?//|mailto:|news:)[^\s\[\]<>\"{}|]*+([^\[\]\n{}]*+)\]", re.IGNORECASE)
INNER_QUOTES = re.compile(r"(?<=\w)'''(?=\w)")
FRACTION = re.compile(r"<sup>(?<=\d<sup>)(\d+)</sup>[/⁄]<sub>(?=\d+</sub>)")
POWER = re.compile(r"<sup>(?<=\d<sup>)(?=[-−+]?\d+</sup>)")
SUPERSCRIPT = re.compile(r"<sup>(?:(?<=[^\W\d]<sup>)|(?<='<sup>))([-−]?\d{1,2})</sup>")
RAISED = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
SPOKEN_NAME = re.compile(
    rf"{ASIDE}(?:(?<=''{ASIDE})|(?<='' {ASIDE})|(?<=\){ASIDE})|(?<=\) {ASIDE}))[^{ASIDE_END}\n]*+{ASIDE_END}"
    rf"(?: ?{ASIDE}[^{ASIDE_END}\n]*+{ASIDE_END})*+"
)
"""A pronunciation right behind the bold name that it belongs to, or behind its parentheses.

This and the patterns above begin with what is rare, although they look back from there, as the text is searched for it.
"""
VARIANT = re.compile(r"-\{([^{}]*)\}-")
TOKEN = re.compile(r"\{\{+|\}\}+|\[\[|\]\]|\|")
QUOTES = re.compile(r"'{2,}")
MAGIC_WORD = re.compile(r"__[^\Wa-z\d_][^\Wa-z]{1,40}?__")
PARSER_FUNCTION = re.compile(r"\s*(#?\w+):(.*)", re.DOTALL)
GERMAN_LANGUAGE = re.compile(r"\s*([A-Za-z][a-z]{1,2})S\s*$")
INTERLANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple|[a-z]{2,3}(?:-[a-z]{1,8}){1,2})$")
PIPE_TRICK = re.compile(r"^[^:]{1,40}:|\s*\([^()]*\)$|\s*（[^（）]*）$|, .*$")


@dataclass(frozen=True, kw_only=True)
class Page:
    """What an article's text is read with: its language, its title, and its wiki's own names for files and categories."""

    language: str | None = None
    title: str = ""
    dropped_namespaces: frozenset[str] = FILES | CATEGORIES


@dataclass(slots=True)
class Frame:
    """An open bracket: the number of its braces (0 for a link), and what it holds so far, cut at its pipes."""

    braces: int
    arguments: list[list[str]] = field(default_factory=lambda: [[]])


def prose(wikitext: str, language: str | None = None, title: str = "", namespaces: Iterable[str] = ()) -> list[str]:
    """The paragraphs of an article without headings, tables, notes, pictures and lists of links; never raises, whatever the text.

    `namespaces` are the wiki's own names for its files and categories, beyond those known here.
    Headings are left out, as they are no sentences, and so are paragraphs of less than five words that do not end in a full stop.
    List items are kept where they are a sentence: five words or more that end in a full stop, outside the sections that list links and books;
    and so is a list through which one sentence runs. A formula stands as its line of text. Sentences that lack something that cannot be written, such as a
    formula of several lines, and those that lead to nothing, such as "They are:" over a table, are left out.
    """
    page = Page(language=language, title=title, dropped_namespaces=FILES | CATEGORIES | {name.lower() for name in namespaces})
    text = wikitext.replace("\r\n", "\n").replace("\r", "\n")
    text = HIDDEN.sub(visible, text)
    text = POEM.sub(lambda match: "\n\n" + match[1].replace("\n", "\n\n") + "\n\n", text)
    text = WEB_LINK.sub(r"\1", text)
    text = VARIANT.sub(variant, text)
    text = render_brackets(text, page)
    text = TAG.sub("", raised(LINE_TAG.sub(" ", ITEM_TAG.sub("\n* ", BLOCK_TAG.sub("\n\n", text)))))
    text = MAGIC_WORD.sub("", without_quotes(SPOKEN_NAME.sub("", WEB_LINK.sub(r"\1", text))))
    return clean_paragraphs(text, language)


def raised(text: str) -> str:
    """The text with its raised numbers as characters: 10^3, m², 1 1/4."""
    text = POWER.sub("^", FRACTION.sub(r" \1/", text))
    return SUPERSCRIPT.sub(lambda match: match[1].translate(RAISED), text)


def visible(match: re.Match[str]) -> str:
    """What is seen of a comment or tag that hides markup: a formula or literal text, its markup made harmless; else nothing."""
    if match["end"]:
        return "" if match.string[max(0, match.start() - 1) : match.start()] in ("", "\n") else match["end"]
    if match["literal"] is None:
        return ""
    inner, tag = match["inner"], match["literal"].lower()
    if tag == "nowiki" or not inner.strip():
        return harmless(inner)
    return f"{FORMULA}{harmless(one_line(html.unescape(inner)) if tag == 'math' else reaction(inner)) or HOLE}{FORMULA}"


def harmless(text: str) -> str:
    """Text whose characters mean nothing to the scan and the lines, to be decoded at the end."""
    return re.sub(r"[{}\[\]|=*#:;_'<>]", lambda match: f"&#{ord(match[0])};", text)


def variant(match: re.Match[str]) -> str:
    """The first of several spellings, -{zh-hans:a; zh-hant:b}- -> a; directions to the converter are no text."""
    flags, bar, rest = match[1].partition("|")
    if bar and re.search("[THA-]", flags):
        return ""
    choice = (rest if bar else flags).split(";")[0]
    return re.sub(r"^\s*[a-z]{2,3}(?:-[a-z]+)?\s*:", "", choice)


def without_quotes(text: str) -> str:
    """Text without the marks of bold and italic. Runs of four or six, and ''Eagle'''s in a line where nothing else explains its three, hold an apostrophe."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if "'''" in line and is_odd(line):
            lines[number] = INNER_QUOTES.sub("&#39;", line, count=1)
    return QUOTES.sub(lambda match: "'" * (1 if len(match[0]) == 4 else max(0, len(match[0]) - 5)), "\n".join(lines))


def is_odd(line: str) -> bool:
    """Whether both bold and italic text of a line begin once more than they end."""
    sizes = [len(run) for run in QUOTES.findall(line)]
    return sum(size == 2 or size > 4 for size in sizes) % 2 == 1 and sum(size > 2 for size in sizes) % 2 == 1


def render_brackets(text: str, page: Page) -> str:
    """The text with each template and link replaced by its words, innermost first."""
    stack = [Frame(braces=0)]
    templates_open, at = 0, 0
    for match in TOKEN.finditer(text):
        token = match[0]
        stack[-1].arguments[-1].append(text[at : match.start()])
        at = match.end()
        if token == "|" and len(stack) > 1:
            stack[-1].arguments.append([])
        elif token == "|":
            stack[-1].arguments[-1].append(token)
        elif token == "[[":
            stack.append(Frame(braces=0))
        elif token[0] == "{":
            stack.append(Frame(braces=len(token)))
            templates_open += 1
        elif token == "]]":
            if len(stack) - 1 > templates_open:
                templates_open -= close_link(stack, page)
        else:
            templates_open -= close_braces(stack, templates_open, len(token), page)
    stack[-1].arguments[-1].append(text[at:])
    return "".join(unclosed(frame) for frame in stack)


def add(stack: list[Frame], text: str) -> None:
    """Append what a bracket became to the one around it, where it may not be taken for an argument's name."""
    stack[-1].arguments[-1].append(text.replace("=", "&#61;") if len(stack) > 1 else text)


def texts(frame: Frame) -> list[str]:
    return ["".join(parts) for parts in frame.arguments]


def close_link(stack: list[Frame], page: Page) -> int:
    """Close the innermost link; returns how many templates inside it were never closed."""
    lost = drop_open(stack, braces=False)
    frame = stack.pop()
    add(stack, render_link(texts(frame), page) if len(stack) <= NESTING else "")
    return lost


def close_braces(stack: list[Frame], templates_open: int, count: int, page: Page) -> int:
    """Close templates with a run of `count` braces; returns how many are closed. A single brace left over is text."""
    closed = 0
    while count >= 2 and closed < templates_open:
        drop_open(stack, braces=True)
        frame = stack[-1]
        used = 3 if min(count, frame.braces) >= 3 else 2
        count -= used
        frame.braces -= used
        rendered = render_braces(texts(frame), used, page) if len(stack) <= NESTING + 1 else ""
        if frame.braces >= 2:
            frame.arguments = [[rendered]]
        else:
            stack.pop()
            add(stack, "{" * frame.braces + rendered)
            closed += 1
    if count == 1:
        add(stack, "}")
    return closed


def drop_open(stack: list[Frame], braces: bool) -> int:
    """Take brackets that are never closed off the stack, down to one of the kind that closes now; returns how many they were."""
    at = len(stack) - 1
    while bool(stack[at].braces) != braces:
        at -= 1
    stack[at].arguments[-1].extend([unclosed(frame) for frame in stack[at + 1 :]])
    lost = len(stack) - 1 - at
    del stack[at + 1 :]
    return lost


def unclosed(frame: Frame) -> str:
    """What an open bracket held that is never closed: of a template that ends its line with its name, the name is gone."""
    text = "|".join(texts(frame))
    head, end, rest = text.partition("\n")
    return rest if frame.braces and end and "|" not in head else text


def render_braces(arguments: list[str], braces: int, page: Page) -> str:
    """The words of {{name|argument|name=argument}}, or the default of a {{{parameter|default}}}."""
    if braces == 3:
        return arguments[1] if len(arguments) > 1 else ""
    if len(arguments[0]) > LONGEST_NAME and ":" not in arguments[0]:
        return ""
    if (function := PARSER_FUNCTION.match(arguments[0])) and function[1].lower() not in ("template", "шаблон", "vorlage", "modèle", "plantilla"):
        return parser_function(function[1].lower(), [function[2], *arguments[1:]], page)
    if german := GERMAN_LANGUAGE.match(arguments[0]):
        arguments = [f"lang-{german[1]}", *arguments[1:]]
    name = " ".join(arguments[0].rpartition(":")[2].replace("_", " ").lower().split())
    if name in ("pagename", "fullpagename", "subpagename", "basepagename", "title"):
        return page.title
    return templates.render(name, named(arguments[1:]))


def named(arguments: list[str]) -> dict[str, str]:
    """Arguments by name; those without one are numbered from 1."""
    found: dict[str, str] = {}
    number = 0
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals:
            number += 1
        found[name.strip().lower() if equals else str(number)] = text if equals else argument
    return found


def parser_function(name: str, arguments: list[str], page: Page) -> str:
    """The functions of MediaWiki's parser that give words: {{formatnum:…}}, {{lc:…}}, {{#if:…|…}}."""
    text = arguments[0].strip()
    if name == "formatnum":
        return templates.grouped(text) if (page.language or "en") == "en" else text
    if name == "#if":
        return (arguments + ["", ""])[1 if text else 2].strip()
    changes = {"lc": str.lower, "uc": str.upper, "lcfirst": lambda word: word[:1].lower() + word[1:], "ucfirst": lambda word: word[:1].upper() + word[1:], "nowrap": str, "small": str}
    return changes[name](text) if name in changes else HOLE if name in ("#expr", "#time") else ""


def render_link(arguments: list[str], page: Page) -> str:
    """The text of [[target|text]]; nothing of a picture, a category or an article in another language."""
    target = arguments[0].strip()
    if "\n" in target or len(target) > LONGEST_NAME:
        return "|".join(arguments)
    shown, target = target.startswith(":"), target.lstrip(": ")
    prefix, colon, _ = target.partition(":")
    if colon and not shown:
        space = prefix.strip().replace("_", " ").lower()
        if space in page.dropped_namespaces or (INTERLANGUAGE.match(prefix) and prefix not in NOT_LANGUAGES):
            return ""
    if len(arguments) == 1:
        return target
    return "|".join(arguments[1:]) if any(map(str.strip, arguments[1:])) else PIPE_TRICK.sub("", PIPE_TRICK.sub("", target))

"""Render the templates of Wikipedia that stand for words: dates, names, pronunciations, quotations."""

import re

from pipeline.wikipedia.template_arguments import ASIDE, ASIDE_END, Arguments, Render, first, unnamed
from pipeline.wikipedia.template_quantities import is_number

MONTH_NAMES = "January February March April May June July August September October November December"
MONTHS = MONTH_NAMES.split()
SOUNDS = {"'": "ˈ", ",": "ˌ"} | dict.fromkeys(["lang", "local", "pron", "icon", "us", "uk", "us also", "uk also"], "")
"""Arguments of {{IPAc-en}} that are rendered as another sound, or are left out."""
DEGREES = ("°", "′", "″")


def quotation(arguments: Arguments) -> str:
    """Render a quotation as a paragraph of its own."""
    return f"\n\n{first('1', 'text', 'quote', 'текст', 'texte')(arguments)}\n\n"


def aside(text: str) -> str:
    return f"{ASIDE}{text}{ASIDE_END}" if text else ""


def pronunciation(arguments: Arguments) -> str:
    """Render {{IPA-de|ˈfʊs}} -> [ˈfʊs], between the marks of an aside."""
    text = first("1")(arguments)
    return aside(text if text[:1] in ("", "[", "/") else f"[{text}]")


def sounds_of_language(arguments: Arguments) -> str:
    """Render {{IPA|fr|paʁi|lang}} like {{IPA-fr|paʁi}}; {{IPA|/ʔa/}} -> /ʔa/."""
    text, sounds = first("1", "text")(arguments), first("2")(arguments)
    return pronunciation({"1": sounds}) if sounds and re.fullmatch(r"[a-z]{2,3}(-\w+)*", text) else text


def english_sounds(arguments: Arguments) -> str:
    """Render {{IPAc-en|ˈ|æ|l|ə}} -> /ˈælə/, between the marks of an aside."""
    text = (
        "".join(SOUNDS.get(sound.lower(), sound) for sound in unnamed(arguments)).replace(",_", ", ").replace("_", " ")
    )
    return aside(text and f"/{text}/")


def coordinates(arguments: Arguments) -> str:
    """Render {{coord|13|19|N|169|9|W}} -> 13°19′N 169°9′W, between the marks of an aside.

    Return "" if the page shows the coordinates only next to its title, or if they are incomplete.
    """
    if "title" in arguments.get("display", "") and "inline" not in arguments.get("display", ""):
        return ""
    text, degree = "", 0
    for word in unnamed(arguments):
        if word in ("N", "S", "E", "W"):
            text, degree = f"{text}{word} ", 0
        elif is_number(word) and degree < len(DEGREES):
            text, degree = f"{text}{word}{DEGREES[degree]}", degree + 1
        else:
            break
    return aside(text.strip()) if text[-2:-1] in ("E", "W") else ""


def authors(arguments: Arguments) -> str:
    """Render {{harvtxt|Boolos|Jeffrey|1974}} -> Boolos & Jeffrey (1974)."""
    *names, year = unnamed(arguments) or [""]
    return (
        f"{', '.join(names[:-1])} & {names[-1]} ({year})"
        if len(names) > 1
        else f"{names[0]} ({year})"
        if names
        else year
    )


def approximate(arguments: Arguments) -> str:
    """Render {{circa|1900|1910}} -> c. 1900 – c. 1910; {{circa}} 1900 -> c. 1900."""
    return " – ".join(f"c. {year}" for year in unnamed(arguments)[:2] if year) or "c. "


def bullets(arguments: Arguments) -> str:
    """Render a list whose items are the arguments, one line each."""
    return "\n" + "".join(f"* {text}\n" for text in unnamed(arguments) if text)


def date(arguments: Arguments) -> str:
    """Render {{birth date|1950|1|2}} -> January 2, 1950, or 2 January 1950 with df=y; month and day may be missing."""
    year, month, day = (unnamed(arguments) + ["", "", ""])[:3]
    if not (month.isdecimal() and len(month) <= 2 and 1 <= int(month) <= 12):
        return " ".join(part for part in (year, month, day) if part)
    name, day = MONTHS[int(month) - 1], day.lstrip("0") if day.isdecimal() else ""
    if not day:
        return f"{name} {year}"
    return (
        f"{day} {name} {year}" if arguments.get("df", "").strip().lower() in ("y", "yes") else f"{name} {day}, {year}"
    )


def day_first(arguments: Arguments) -> str:
    """Render {{date|12|mai|2000}} and {{date|12 mai 2000|en sport}} -> 12 mai 2000; {{дата|5|1|2000}} -> 5.1.2000."""
    whole = len(first("1")(arguments).split()) > 1
    parts = [part for part in unnamed(arguments)[: 1 if whole else 3] if part]
    return ("." if len(parts) > 1 and parts[1].isdecimal() else " ").join(parts)


def as_of(arguments: Arguments) -> str:
    """Render {{as of|2012|3|lc=y}} -> as of March 2012."""
    if alternative := arguments.get("alt", "").strip():
        return alternative
    words = "Since" if arguments.get("since", "").strip() else "As of"
    day = date({**arguments, "df": arguments.get("df", "y")})
    return f"{words.lower() if arguments.get('lc', '').strip() else words} {day}"


def japanese(arguments: Arguments) -> str:
    """Render {{nihongo|English|漢字|romaji}} -> English (漢字, romaji)."""
    english, characters, latin = (unnamed(arguments) + ["", "", ""])[:3]
    head = english or latin
    inner = ", ".join(part for part in (characters, latin if english else "") if part)
    return f"{head} ({inner})" if head and inner else head or inner


def missing_article(arguments: Arguments) -> str:
    """Render {{ill|Foo|de|Bar}} -> Foo, and the older form {{ill|de|Foo|Bar}} -> Foo."""
    is_language = re.fullmatch("[a-z]{2,3}", first("1")(arguments)) is not None
    return first("lt", "texte", "fr", "2" if is_language else "1")(arguments)


def chinese(arguments: Arguments) -> str:
    """Render {{zh|t=漢語|s=汉语|p=Hànyǔ}} -> 漢語, Hànyǔ."""
    return ", ".join(part for part in (first("c", "t", "s", "1")(arguments), first("p", "l")(arguments)) if part)


def century(arguments: Arguments) -> str:
    """Render {{s|XIX|e}} -> XIXe siècle (French); {{s|text}} -> text.

    In other languages, this template stands for text without line breaks.
    """
    number, ending = first("1")(arguments), first("2")(arguments)
    return f"{number}{ending} siècle" if ending else number


def century_before(arguments: Arguments) -> str:
    """Render {{-s|IV|e}} -> IVe siècle av. J.-C.; {{-s|text}} -> text."""
    return century(arguments) + (" av. J.-C." if first("2")(arguments) else "")


def ship(prefix: str) -> Render:
    """Return a renderer of the templates of ships: {{USS|Enterprise|CV-6}} -> USS Enterprise (CV-6).

    The third argument chooses a shorter form. It is the sum of 4 for the prefix, 2 for the name and 1 for the number.
    """

    def render(arguments: Arguments) -> str:
        name, number, form = (unnamed(arguments) + ["", "", ""])[:3]
        shown = int(form) if form in tuple("1234567") else 7
        number = f"({number})" if number and shown & 2 else number
        parts = (prefix * bool(shown & 4), name * bool(shown & 2), number * bool(shown & 1))
        return " ".join(part for part in parts if part)

    return render


def any_ship(arguments: Arguments) -> str:
    """Render {{ship|German submarine|U-47|1938}} -> German submarine U-47 (1938)."""
    prefix, *rest = unnamed(arguments) or [""]
    return ship(prefix)({str(number): text for number, text in enumerate(rest, 1)})


def ship_class(arguments: Arguments) -> str:
    """Render {{sclass|Nimitz|aircraft carrier}} -> Nimitz-class aircraft carrier."""
    return f"{first('1')(arguments)}-class {first('2')(arguments)}".strip()


def power_of_ten(arguments: Arguments) -> str:
    """Render {{e|6}} -> ×10^6; {{e}} -> e, the ending of a French ordinal."""
    return f"×10^{arguments['1'].strip()}" if arguments.get("1", "").strip() else "e"

"""Table of Wikipedia's templates that carry words of a sentence: name -> renderer of their prose."""

import re
from collections.abc import Callable, Mapping

Arguments = Mapping[str, str]
"""A template's arguments by name; unnamed ones are "1", "2", …"""
Render = Callable[[Arguments], str]

MONTH_NAMES = "January February March April May June July August September October November December"
MONTHS = MONTH_NAMES.split()
HOLE = "\ue000"
"""Placeholder for what cannot be written: a number that only MediaWiki can compute, a formula of several lines.

The parentheses or the sentence around it are removed.
"""
ASIDE, ASIDE_END = "\ue001", "\ue002"
"""Marks around a pronunciation or coordinates: removed in parentheses and after a bold name, kept elsewhere."""
GLUED = "\u2064"
"""Mark between a number and its fraction, 1{{frac|1|2}}: becomes a space there, else nothing."""
LONGEST_NUMBER = 40
DIGITS = re.compile(r"(?<![\d.,])\d{4,}(?=\.\d+$|$)")
NUMBER = re.compile(r"[-−+–]?[\d.,]*\d[\d.,]*(?:[+/⁄]\d+)*(?:e-?\d+)?$")
JOINERS = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "to(-)": " to ",
    "and": " and ",
    "and(-)": " and ",
    "or": " or ",
    "by": " by ",
    "x": " × ",
    "×": " × ",
    "xx": " × ",
    "+/-": " ± ",
    "±": " ± ",
    "+": " + ",
}
UNITS = {
    "sqmi": "sq mi",
    "sqft": "sq ft",
    "sqyd": "sq yd",
    "cuft": "cu ft",
    "cuin": "cu in",
    "cuyd": "cu yd",
    "cumi": "cu mi",
    "C": "°C",
    "F": "°F",
    "C-change": "°C",
    "F-change": "°F",
    "usgal": "US gal",
}
BARRELS = {
    "oilbbl": "barrels",
    "koilbbl": "thousand barrels",
    "Moilbbl": "million barrels",
    "Goilbbl": "billion barrels",
}
UNITS |= BARRELS | {f"{unit}/d": f"{words} per day" for unit, words in BARRELS.items()}
UNITS |= {
    "impgal": "imp gal",
    "kmh": "km/h",
    "lbf": "lbf",
    "ST": "short tons",
    "LT": "long tons",
    "MT": "t",
    "floz": "fl oz",
    "nmi": "nautical miles",
    "kn": "knots",
    "ft3/s": "cu ft/s",
    "/sqmi": "/sq mi",
}
SMALLER_UNITS = frozenset({"in", "ft", "yd", "oz", "lb", "ch", "fur", "rd", "li", "drachm"})
POWER = str.maketrans("23", "²³")
LANGUAGE_TEMPLATE = re.compile(r"(?:lang-[a-z]{1,4}(?:-[a-z-]+)?\d?|script/[\w -]+)$")
PRONUNCIATION_TEMPLATE = re.compile(r"ipa-[a-z-]+\d?$")
SOUNDS = {"'": "ˈ", ",": "ˌ"} | dict.fromkeys(["lang", "local", "pron", "icon", "us", "uk", "us also", "uk also"], "")
"""Arguments of {{IPAc-en}} that do not stand for themselves."""
DEGREES = ("°", "′", "″")


def _first(*names: str) -> Render:
    """Return a renderer of the first of these arguments that is not blank."""
    return lambda arguments: next((text for name in names if (text := arguments.get(name, "").strip())), "")


def _constant(text: str) -> Render:
    return lambda arguments: text


def _prefixed(before: str) -> Render:
    """Return a renderer of the first argument, or nothing, after a sign: {{€|5}}, {{floruit}} 1900."""
    return lambda arguments: f"{before}{_first('1')(arguments)}".strip()


def _around(before: str, after: str) -> Render:
    """Return a renderer of the first argument between two signs; empty if the argument is blank."""
    return lambda arguments: f"{before}{text}{after}" if (text := _first("1")(arguments)) else ""


def _joined(separator: str) -> Render:
    """Return a renderer that joins all unnamed arguments."""
    return lambda arguments: separator.join(text for text in _unnamed(arguments) if text)


def _unnamed(arguments: Arguments) -> list[str]:
    """Return the unnamed arguments in order."""
    return [text.strip() for name, text in arguments.items() if name.isdecimal()]


def _last(arguments: Arguments) -> str:
    """Render the last unnamed argument: {{transl|ar|DIN|text}}, {{resize|80%|text}}."""
    return next((text for text in reversed(_unnamed(arguments)) if text), "")


def _quotation(arguments: Arguments) -> str:
    """Render a quotation as a paragraph of its own."""
    return f"\n\n{_first('1', 'text', 'quote', 'текст', 'texte')(arguments)}\n\n"


def grouped(number: str) -> str:
    """Group digits, 12345.6 -> 12,345.6; anything but a number of usual length is returned unchanged."""
    plain = len(number) <= LONGEST_NUMBER and number.count(".") < 2
    return DIGITS.sub(lambda match: f"{int(match[0]):,}", number, count=1) if plain else number


def _is_number(text: str) -> bool:
    return len(text) <= LONGEST_NUMBER and NUMBER.match(text) is not None


def unit(code: str) -> str:
    """Return a unit as written in prose: sqmi -> sq mi, km2 -> km²."""
    return UNITS.get(code) or re.sub(
        r"(?<=m)[23](?=$|/)|(?<=ft)[23]|(?<=mi)2|(?<=in)[23]", lambda match: match[0].translate(POWER), code
    )


def _quantity(arguments: Arguments) -> str:
    """Render {{convert|5|-|10|km|mi}} -> 5–10 km; {{convert|6|ft|2|in|m}} -> 6 ft 2 in, without the converted value."""
    words = [word.replace(GLUED, "+").removeprefix("+") for word in _unnamed(arguments)]
    if arguments.get("disp", "").strip() in ("output number only", "number"):
        return HOLE
    text, at = "", 0
    while at < len(words) and _is_number(words[at]):
        text += grouped(words[at]).replace("+", " ")
        joiner = JOINERS.get(words[at + 1]) if at + 2 < len(words) and _is_number(words[at + 2]) else None
        at += 2 if joiner else 1
        text += joiner or ""
        if not joiner:
            break
    if not text:
        return words[0] if words else ""
    text += f" {unit(words[at])}" if at < len(words) else ""
    while at + 2 < len(words) and _is_number(words[at + 1]) and words[at + 2] in SMALLER_UNITS:
        text += f" {words[at + 1]} {words[at + 2]}"
        at += 2
    return text.strip()


def _value(arguments: Arguments) -> str:
    """{{val|1.5|0.1|e=3|u=km}} -> 1.5 ± 0.1 × 10^3 km"""
    numbers = _unnamed(arguments)
    power, units = arguments.get("e", "").strip(), _first("u", "ul", "up", "upl")(arguments)
    text = grouped(numbers[0]) if numbers else ""
    text += f" ± {numbers[1]}" if len(numbers) == 2 else ""
    text += f" × 10^{power}" if power else ""
    return f"{text} {units}".strip()


def _height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}} -> 6 ft 2 in"""
    return " ".join(
        f"{arguments[name].strip()} {name}" for name in ("m", "cm", "ft", "in") if arguments.get(name, "").strip()
    )


def _fraction(arguments: Arguments) -> str:
    """{{frac|2}} -> 1/2; {{frac|3|4}} -> 3/4; {{frac|1|3|4}} -> 1 3/4"""
    parts = _unnamed(arguments)
    whole = f"{parts[0]} " if len(parts) > 2 else ""
    return GLUED + whole + "/".join(parts[-2:] if len(parts) > 1 else ["1", *parts])


def _aside(text: str) -> str:
    return f"{ASIDE}{text}{ASIDE_END}" if text else ""


def _pronunciation(arguments: Arguments) -> str:
    """{{IPA-de|ˈfʊs}} -> [ˈfʊs], as an aside"""
    text = _first("1")(arguments)
    return _aside(text if text[:1] in ("", "[", "/") else f"[{text}]")


def _english_sounds(arguments: Arguments) -> str:
    """{{IPAc-en|ˈ|æ|l|ə}} -> /ˈælə/, as an aside"""
    text = (
        "".join(SOUNDS.get(sound.lower(), sound) for sound in _unnamed(arguments)).replace(",_", ", ").replace("_", " ")
    )
    return _aside(text and f"/{text}/")


def _coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} -> 13°19′N 169°9′W, as an aside; empty if shown in the title only."""
    if "title" in arguments.get("display", "") and "inline" not in arguments.get("display", ""):
        return ""
    text, degree = "", 0
    for word in _unnamed(arguments):
        if word in ("N", "S", "E", "W"):
            text, degree = f"{text}{word} ", 0
        elif _is_number(word) and degree < len(DEGREES):
            text, degree = f"{text}{word}{DEGREES[degree]}", degree + 1
        else:
            break
    return _aside(text.strip()) if text[-2:-1] in ("E", "W") else ""


def _authors(arguments: Arguments) -> str:
    """{{harvtxt|Boolos|Jeffrey|1974}} -> Boolos & Jeffrey (1974)"""
    *names, year = _unnamed(arguments) or [""]
    return (
        f"{', '.join(names[:-1])} & {names[-1]} ({year})"
        if len(names) > 1
        else f"{names[0]} ({year})"
        if names
        else year
    )


def _approximate(arguments: Arguments) -> str:
    """{{circa|1900|1910}} -> c. 1900 – c. 1910; {{circa}} 1900 -> c. 1900"""
    return " – ".join(f"c. {year}" for year in _unnamed(arguments)[:2] if year) or "c. "


def _bullets(arguments: Arguments) -> str:
    """Render a list whose items are arguments."""
    return "\n" + "".join(f"* {text}\n" for text in _unnamed(arguments) if text)


def _date(arguments: Arguments) -> str:
    """{{birth date|1950|1|2}} -> January 2, 1950, or with df=y 2 January 1950; shorter without month or day."""
    year, month, day = (_unnamed(arguments) + ["", "", ""])[:3]
    if not (month.isdecimal() and len(month) <= 2 and 1 <= int(month) <= 12):
        return " ".join(part for part in (year, month, day) if part)
    name, day = MONTHS[int(month) - 1], day.lstrip("0") if day.isdecimal() else ""
    if not day:
        return f"{name} {year}"
    return (
        f"{day} {name} {year}" if arguments.get("df", "").strip().lower() in ("y", "yes") else f"{name} {day}, {year}"
    )


def _day_first(arguments: Arguments) -> str:
    """{{date|12|mai|2000}} -> 12 mai 2000; {{дата|5|1|2000}} -> 5.1.2000"""
    parts = [part for part in _unnamed(arguments)[:3] if part]
    return ("." if len(parts) > 1 and parts[1].isdecimal() else " ").join(parts)


def _as_of(arguments: Arguments) -> str:
    """{{as of|2012|3|lc=y}} -> as of March 2012"""
    if alternative := arguments.get("alt", "").strip():
        return alternative
    words = "Since" if arguments.get("since", "").strip() else "As of"
    day = _date({**arguments, "df": arguments.get("df", "y")})
    return f"{words.lower() if arguments.get('lc', '').strip() else words} {day}"


def _japanese(arguments: Arguments) -> str:
    """{{nihongo|English|漢字|romaji}} -> English (漢字, romaji)"""
    english, characters, latin = (_unnamed(arguments) + ["", "", ""])[:3]
    head = english or latin
    inner = ", ".join(part for part in (characters, latin if english else "") if part)
    return f"{head} ({inner})" if head and inner else head or inner


def _missing_article(arguments: Arguments) -> str:
    """{{ill|Foo|de|Bar}}, and its older form {{ill|de|Foo|Bar}} -> Foo"""
    is_language = re.fullmatch("[a-z]{2,3}", _first("1")(arguments)) is not None
    return _first("lt", "texte", "fr", "2" if is_language else "1")(arguments)


def _chinese(arguments: Arguments) -> str:
    """{{zh|t=漢語|s=汉语|p=Hànyǔ}} -> 漢語, Hànyǔ"""
    return ", ".join(part for part in (_first("c", "t", "s", "1")(arguments), _first("p", "l")(arguments)) if part)


def _century(arguments: Arguments) -> str:
    """French {{s|XIX|e}} -> XIXe siècle; elsewhere {{s|text}} is unbreakable text."""
    number, ending = _first("1")(arguments), _first("2")(arguments)
    return f"{number}{ending} siècle" if ending else number


def _ship(prefix: str) -> Render:
    """{{USS|Enterprise|CV-6}} -> USS Enterprise (CV-6)"""

    def render(arguments: Arguments) -> str:
        name, number, form = (_unnamed(arguments) + ["", "", ""])[:3]
        full = f"{prefix} {name}".strip()
        return {"2": full, "3": name, "6": name}.get(form) or (f"{full} ({number})" if number else full)

    return render


def _any_ship(arguments: Arguments) -> str:
    """{{ship|German submarine|U-47|1938}} -> German submarine U-47 (1938)"""
    prefix, *rest = _unnamed(arguments) or [""]
    return _ship(prefix)({str(number): text for number, text in enumerate(rest, 1)})


def _ship_class(arguments: Arguments) -> str:
    """{{sclass|Nimitz|aircraft carrier}} -> Nimitz-class aircraft carrier"""
    return f"{_first('1')(arguments)}-class {_first('2')(arguments)}".strip()


def _power_of_ten(arguments: Arguments) -> str:
    """{{e|6}} -> ×10^6; without a number, the ending of a French ordinal."""
    return f"×10^{arguments['1'].strip()}" if arguments.get("1", "").strip() else "e"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


TEMPLATES: dict[str, Render] = {
    "convert": _quantity,
    "cvt": _quantity,
    "val": _value,
    "height": _height,
    "as of": _as_of,
    "asof": _as_of,
    "nihongo": _japanese,
    "nihongo2": _first("1"),
    "nihongo3": _japanese,
    "zh": _chinese,
    "s": _century,
    "-s": _century,
    "sp-": _century,
    "e": _power_of_ten,
    "ship": _any_ship,
    "sclass": _ship_class,
    "sclass-": _ship_class,
    "sclass2": _ship_class,
    "oldstyledate": lambda arguments: " ".join(_unnamed(arguments)[:2]),
    "music": lambda arguments: {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮"}.get(
        _first("1")(arguments), ""
    ),
    "読み仮名": lambda arguments: f"{_first('1')(arguments)}（{_first('2')(arguments)}）",
    "railgauge": lambda arguments: re.sub(r"(?<=\d)(?=[a-z])", " ", _first("1")(arguments)),
    "keypress": _joined("+"),
    "key press": _joined("+"),
    "key": _joined("+"),
    "hlist": _joined(", "),
    "linktext": _joined(""),
    "not a typo": _joined(""),
    "chem": _joined(""),
    "nuclide": _joined("-"),
    "simplenuclide": _joined("-"),
    "simplenuclide2": _joined("-"),
    "nuclide2": _joined("-"),
    '"': _around('"', '"'),
    "“": _around("“", "”"),
    "angbr": _around("⟨", "⟩"),
    "angbr ipa": _around("⟨", "⟩"),
    "vr": _around("⟨", "⟩"),
    "angle bracket": _around("⟨", "⟩"),
    "circa": _approximate,
    "c.": _approximate,
    "ca.": _approximate,
    "ipac-en": _english_sounds,
    "respell": lambda arguments: _aside(_joined("-")(arguments)),
    "coord": _coordinates,
    "harvtxt": _authors,
    "harvcoltxt": _authors,
    "ipaslink": _around("/", "/"),
    "ipablink": _around("[", "]"),
    "eqm": _constant("⇌"),
    "us patent": _prefixed("U.S. Patent "),
    "нар": _constant("нар."),
    "floruit": _prefixed("fl. "),
    "fl.": _prefixed("fl. "),
    "reign": lambda arguments: "r. " + _joined("–")(arguments),
    "ad": _prefixed("AD "),
    "bce": _around("", " BCE"),
    "sqrt": _prefixed("√"),
    "pow": _joined("^"),
    "us$": _prefixed("US$"),
    "usd": _prefixed("US$"),
    "$": _prefixed("$"),
    "gbp": _prefixed("£"),
    "£": _prefixed("£"),
    "€": _prefixed("€"),
    "euro": _prefixed("€"),
    "inr": _prefixed("₹"),
    "jpy": _prefixed("¥"),
    "градус цельсія": _constant("°C"),
    "'": _constant("&#39;"),
    "'s": _constant("&#39;s"),
    "' \"": _constant('&#39;"'),
    "\" '": _constant('"&#39;'),
    "!": _constant("|"),
    "!!": _constant("||"),
    "=": _constant("="),
    "(": _constant("("),
    ")": _constant(")"),
    "*": _constant("*"),
    "pi": _constant("π"),
    "okina": _constant("ʻ"),
    "hamza": _constant("ʼ"),
    "ayin": _constant("ʿ"),
    "deg": _constant("°"),
    "°": _constant("°"),
    "ier": _constant("Ier"),
}
BY_FUNCTION: list[tuple[Render, str]] = [
    (
        _date,
        "birth date, birth date and age, birth-date, birth-date and age, bda, dob, death date, death date and age, "
        "death-date, death-date and age, start date, start date and age, start-date, end date, end-date, film date, "
        "release date, birth year and age, dts",
    ),
    (_day_first, "date, datum, дата, fecha, дн, дс, дн2, дс2"),
    (_pronunciation, "api, afi, мфа, мфа2, мфа-всі, ipa-all, pronunciation, phon"),
    (_bullets, "ordered list, bulleted list, numbered list"),
    (_fraction, "frac, fraction, sfrac, bruch, дріб, дробь"),
    (
        _quotation,
        "quote, cquote, blockquote, quotation, rquote, bquote, zitat, цитата, cytat, cita, citat, citaat, idézet, "
        "citation bloc, citazione, citação, alıntı",
    ),
    (
        _last,
        "transl, transliteration, resize, hover title, font, pronunciation text, wikt-lang, rtl-lang, script, audio, "
        "linkaudio",
    ),
    (_joined(" "), "unité, nombre, bibleverse, bibleref, bibleref2, unidad, jct, nb5"),
    (
        _first("2", "1"),
        "lang, langi, lang3, langx, color, font color, fontcolor, colour, color2, background color, sort, hs, "
        "nobreak color, tsl, link-interwiki, цвет, колір",
    ),
    (_missing_article, "ill, illm, ill2, interlanguage link, interlanguage link multi, lien"),
    (
        _first("текст", "2", "треба", "1"),
        "не перекладено, нп, нп5, нп3, iw, iw2, не переведено, не переведено 5, не переведено 2, red link",
    ),
    (
        _first("1", "text"),
        "ipa, ipa link, ipalink, nq, nastaliq, flatlist, citation needed span, cn-span, clarify span, nowrap, nobr, "
        "nowr, j, small, smaller, smalldiv, midsize, big, bigger, larger, large, center, nobold, noitalic, normal, "
        "abbr, abbrlink, abbreviation, tooltip, vanchor, visible anchor, em, strong, bold, "
        "italic, italics, sic, typo, sup, sub, mono, code, codes, tt, var, kbd, samp, math, mvar, bigmath, "
        "smallcaps, sc, smallcaps all, allcaps, caps, uc, lc, chem2, ce, grc, polytonic, polytonisch, unicode, "
        "hebrew, flag, flagcountry, flagu, nft, pays, comment, пояснение, rusold, num, число, nts, plainlist, plain "
        "list, citation, abbr., title-case, underline, overline, mathrm, ruby, 仮リンク, le, link-en, lj, unbulleted,"
        "proper name, coptic, script/hebrew, hebr, lang-rus, siècle, bdi, isp, sans-serif, serif, pre2, nihongo "
        "foot, wt, wikt, gloss, word, phrase, ws",
    ),
    (
        _constant(HOLE),
        "inflation, format price, formatprice, inflation year, inflation-year, currentyear, age, to usd, "
        "currentmonthname, pop density, age in days, age in years, age in years and days, time ago, years ago",
    ),
    (_constant(" "), "nbsp, spaces, sp, thinsp, hair space, hairsp, 0, nnbsp, space, zwsp, nbs, ens"),
    (_constant("\n"), "clear, br, -, clr, crlf, paragraph break, pb, parabr"),
    (_constant("–"), "ndash, en dash"),
    (_constant("—"), "mdash, em dash, mdashb, spaced em dash"),
    (_constant(" – "), "snd, snds, spnd, spaced ndash, spaced en dash, --"),
    (_constant(" · "), "·, •, dot, middot, bullet, \\"),
]
TEMPLATES |= {name: render for render, text in BY_FUNCTION for name in _names(text)}
TEMPLATES |= {name: _constant(name) for name in ("1er", "1re", "2e", "3e", "er", "re")}
TEMPLATES |= {name: _constant(text) for name, text in {"m.": "M.", "mme": "Mme", "mlle": "Mlle"}.items()}
TEMPLATES |= {
    name.lower(): _ship(name)
    for name in (
        "USS",
        "HMS",
        "SS",
        "MV",
        "RMS",
        "SMS",
        "HMAS",
        "HMCS",
        "USNS",
        "USCGC",
        "HNLMS",
        "INS",
        "ORP",
        "PS",
        "MS",
        "RV",
    )
}


def render(name: str, arguments: Arguments) -> str:
    """Render a template as a reader sees it; empty if it is not in the table.

    `name` is in lower case with single spaces.
    """
    known = TEMPLATES.get(name) or (
        _first("1") if LANGUAGE_TEMPLATE.match(name) else _pronunciation if PRONUNCIATION_TEMPLATE.match(name) else None
    )
    return known(arguments) if known else ""

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


def first(*names: str) -> Render:
    """Return a renderer of the first of these arguments that is not blank."""
    return lambda arguments: next((text for name in names if (text := arguments.get(name, "").strip())), "")


def constant(text: str) -> Render:
    return lambda arguments: text


def prefixed(before: str) -> Render:
    """Return a renderer of the first argument, or nothing, after a sign: {{€|5}}, {{floruit}} 1900."""
    return lambda arguments: f"{before}{first('1')(arguments)}".strip()


def around(before: str, after: str) -> Render:
    """Return a renderer of the first argument between two signs; empty if the argument is blank."""
    return lambda arguments: f"{before}{text}{after}" if (text := first("1")(arguments)) else ""


def joined(separator: str) -> Render:
    """Return a renderer that joins all unnamed arguments."""
    return lambda arguments: separator.join(text for text in unnamed(arguments) if text)


def unnamed(arguments: Arguments) -> list[str]:
    """Return the unnamed arguments in order."""
    return [text.strip() for name, text in arguments.items() if name.isdecimal()]


def last(arguments: Arguments) -> str:
    """Render the last unnamed argument: {{transl|ar|DIN|text}}, {{resize|80%|text}}."""
    return next((text for text in reversed(unnamed(arguments)) if text), "")


def quotation(arguments: Arguments) -> str:
    """Render a quotation as a paragraph of its own."""
    return f"\n\n{first('1', 'text', 'quote', 'текст', 'texte')(arguments)}\n\n"


def grouped(number: str) -> str:
    """Group digits, 12345.6 -> 12,345.6; anything but a number of usual length is returned unchanged."""
    plain = len(number) <= LONGEST_NUMBER and number.count(".") < 2
    return DIGITS.sub(lambda match: f"{int(match[0]):,}", number, count=1) if plain else number


def is_number(text: str) -> bool:
    return len(text) <= LONGEST_NUMBER and NUMBER.match(text) is not None


def unit(code: str) -> str:
    """Return a unit as written in prose: sqmi -> sq mi, km2 -> km²."""
    return UNITS.get(code) or re.sub(
        r"(?<=m)[23](?=$|/)|(?<=ft)[23]|(?<=mi)2|(?<=in)[23]", lambda match: match[0].translate(POWER), code
    )


def quantity(arguments: Arguments) -> str:
    """Render {{convert|5|-|10|km|mi}} -> 5–10 km; {{convert|6|ft|2|in|m}} -> 6 ft 2 in, without the converted value."""
    words = [word.replace(GLUED, "+").removeprefix("+") for word in unnamed(arguments)]
    if arguments.get("disp", "").strip() in ("output number only", "number"):
        return HOLE
    text, at = "", 0
    while at < len(words) and is_number(words[at]):
        text += grouped(words[at]).replace("+", " ")
        joiner = JOINERS.get(words[at + 1]) if at + 2 < len(words) and is_number(words[at + 2]) else None
        at += 2 if joiner else 1
        text += joiner or ""
        if not joiner:
            break
    if not text:
        return words[0] if words else ""
    text += f" {unit(words[at])}" if at < len(words) else ""
    while at + 2 < len(words) and is_number(words[at + 1]) and words[at + 2] in SMALLER_UNITS:
        text += f" {words[at + 1]} {words[at + 2]}"
        at += 2
    return text.strip()


def value(arguments: Arguments) -> str:
    """{{val|1.5|0.1|e=3|u=km}} -> 1.5 ± 0.1 × 10^3 km"""
    numbers = unnamed(arguments)
    power, units = arguments.get("e", "").strip(), first("u", "ul", "up", "upl")(arguments)
    text = grouped(numbers[0]) if numbers else ""
    text += f" ± {numbers[1]}" if len(numbers) == 2 else ""
    text += f" × 10^{power}" if power else ""
    return f"{text} {units}".strip()


def height(arguments: Arguments) -> str:
    """{{height|ft=6|in=2}} -> 6 ft 2 in"""
    return " ".join(
        f"{arguments[name].strip()} {name}" for name in ("m", "cm", "ft", "in") if arguments.get(name, "").strip()
    )


def fraction(arguments: Arguments) -> str:
    """{{frac|2}} -> 1/2; {{frac|3|4}} -> 3/4; {{frac|1|3|4}} -> 1 3/4"""
    parts = unnamed(arguments)
    whole = f"{parts[0]} " if len(parts) > 2 else ""
    return GLUED + whole + "/".join(parts[-2:] if len(parts) > 1 else ["1", *parts])


def aside(text: str) -> str:
    return f"{ASIDE}{text}{ASIDE_END}" if text else ""


def pronunciation(arguments: Arguments) -> str:
    """{{IPA-de|ˈfʊs}} -> [ˈfʊs], as an aside"""
    text = first("1")(arguments)
    return aside(text if text[:1] in ("", "[", "/") else f"[{text}]")


def english_sounds(arguments: Arguments) -> str:
    """{{IPAc-en|ˈ|æ|l|ə}} -> /ˈælə/, as an aside"""
    text = (
        "".join(SOUNDS.get(sound.lower(), sound) for sound in unnamed(arguments)).replace(",_", ", ").replace("_", " ")
    )
    return aside(text and f"/{text}/")


def coordinates(arguments: Arguments) -> str:
    """{{coord|13|19|N|169|9|W}} -> 13°19′N 169°9′W, as an aside; empty if shown in the title only."""
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
    """{{harvtxt|Boolos|Jeffrey|1974}} -> Boolos & Jeffrey (1974)"""
    *names, year = unnamed(arguments) or [""]
    return (
        f"{', '.join(names[:-1])} & {names[-1]} ({year})"
        if len(names) > 1
        else f"{names[0]} ({year})"
        if names
        else year
    )


def approximate(arguments: Arguments) -> str:
    """{{circa|1900|1910}} -> c. 1900 – c. 1910; {{circa}} 1900 -> c. 1900"""
    return " – ".join(f"c. {year}" for year in unnamed(arguments)[:2] if year) or "c. "


def bullets(arguments: Arguments) -> str:
    """Render a list whose items are arguments."""
    return "\n" + "".join(f"* {text}\n" for text in unnamed(arguments) if text)


def date(arguments: Arguments) -> str:
    """{{birth date|1950|1|2}} -> January 2, 1950, or with df=y 2 January 1950; shorter without month or day."""
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
    """{{date|12|mai|2000}} -> 12 mai 2000; {{дата|5|1|2000}} -> 5.1.2000"""
    parts = [part for part in unnamed(arguments)[:3] if part]
    return ("." if len(parts) > 1 and parts[1].isdecimal() else " ").join(parts)


def as_of(arguments: Arguments) -> str:
    """{{as of|2012|3|lc=y}} -> as of March 2012"""
    if alternative := arguments.get("alt", "").strip():
        return alternative
    words = "Since" if arguments.get("since", "").strip() else "As of"
    day = date({**arguments, "df": arguments.get("df", "y")})
    return f"{words.lower() if arguments.get('lc', '').strip() else words} {day}"


def japanese(arguments: Arguments) -> str:
    """{{nihongo|English|漢字|romaji}} -> English (漢字, romaji)"""
    english, characters, latin = (unnamed(arguments) + ["", "", ""])[:3]
    head = english or latin
    inner = ", ".join(part for part in (characters, latin if english else "") if part)
    return f"{head} ({inner})" if head and inner else head or inner


def missing_article(arguments: Arguments) -> str:
    """{{ill|Foo|de|Bar}}, and its older form {{ill|de|Foo|Bar}} -> Foo"""
    is_language = re.fullmatch("[a-z]{2,3}", first("1")(arguments)) is not None
    return first("lt", "texte", "fr", "2" if is_language else "1")(arguments)


def chinese(arguments: Arguments) -> str:
    """{{zh|t=漢語|s=汉语|p=Hànyǔ}} -> 漢語, Hànyǔ"""
    return ", ".join(part for part in (first("c", "t", "s", "1")(arguments), first("p", "l")(arguments)) if part)


def century(arguments: Arguments) -> str:
    """French {{s|XIX|e}} -> XIXe siècle; elsewhere {{s|text}} is unbreakable text."""
    number, ending = first("1")(arguments), first("2")(arguments)
    return f"{number}{ending} siècle" if ending else number


def ship(prefix: str) -> Render:
    """{{USS|Enterprise|CV-6}} -> USS Enterprise (CV-6)"""

    def render(arguments: Arguments) -> str:
        name, number, form = (unnamed(arguments) + ["", "", ""])[:3]
        full = f"{prefix} {name}".strip()
        return {"2": full, "3": name, "6": name}.get(form) or (f"{full} ({number})" if number else full)

    return render


def any_ship(arguments: Arguments) -> str:
    """{{ship|German submarine|U-47|1938}} -> German submarine U-47 (1938)"""
    prefix, *rest = unnamed(arguments) or [""]
    return ship(prefix)({str(number): text for number, text in enumerate(rest, 1)})


def ship_class(arguments: Arguments) -> str:
    """{{sclass|Nimitz|aircraft carrier}} -> Nimitz-class aircraft carrier"""
    return f"{first('1')(arguments)}-class {first('2')(arguments)}".strip()


def power_of_ten(arguments: Arguments) -> str:
    """{{e|6}} -> ×10^6; without a number, the ending of a French ordinal."""
    return f"×10^{arguments['1'].strip()}" if arguments.get("1", "").strip() else "e"


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


TEMPLATES: dict[str, Render] = {
    "convert": quantity,
    "cvt": quantity,
    "val": value,
    "height": height,
    "as of": as_of,
    "asof": as_of,
    "nihongo": japanese,
    "nihongo2": first("1"),
    "nihongo3": japanese,
    "zh": chinese,
    "s": century,
    "-s": century,
    "sp-": century,
    "e": power_of_ten,
    "ship": any_ship,
    "sclass": ship_class,
    "sclass-": ship_class,
    "sclass2": ship_class,
    "oldstyledate": lambda arguments: " ".join(unnamed(arguments)[:2]),
    "music": lambda arguments: {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮"}.get(
        first("1")(arguments), ""
    ),
    "読み仮名": lambda arguments: f"{first('1')(arguments)}（{first('2')(arguments)}）",
    "railgauge": lambda arguments: re.sub(r"(?<=\d)(?=[a-z])", " ", first("1")(arguments)),
    "keypress": joined("+"),
    "key press": joined("+"),
    "key": joined("+"),
    "hlist": joined(", "),
    "linktext": joined(""),
    "not a typo": joined(""),
    "chem": joined(""),
    "nuclide": joined("-"),
    "simplenuclide": joined("-"),
    "simplenuclide2": joined("-"),
    "nuclide2": joined("-"),
    '"': around('"', '"'),
    "“": around("“", "”"),
    "angbr": around("⟨", "⟩"),
    "angbr ipa": around("⟨", "⟩"),
    "vr": around("⟨", "⟩"),
    "angle bracket": around("⟨", "⟩"),
    "circa": approximate,
    "c.": approximate,
    "ca.": approximate,
    "ipac-en": english_sounds,
    "respell": lambda arguments: aside(joined("-")(arguments)),
    "coord": coordinates,
    "harvtxt": authors,
    "harvcoltxt": authors,
    "ipaslink": around("/", "/"),
    "ipablink": around("[", "]"),
    "eqm": constant("⇌"),
    "us patent": prefixed("U.S. Patent "),
    "нар": constant("нар."),
    "floruit": prefixed("fl. "),
    "fl.": prefixed("fl. "),
    "reign": lambda arguments: "r. " + joined("–")(arguments),
    "ad": prefixed("AD "),
    "bce": around("", " BCE"),
    "sqrt": prefixed("√"),
    "pow": joined("^"),
    "us$": prefixed("US$"),
    "usd": prefixed("US$"),
    "$": prefixed("$"),
    "gbp": prefixed("£"),
    "£": prefixed("£"),
    "€": prefixed("€"),
    "euro": prefixed("€"),
    "inr": prefixed("₹"),
    "jpy": prefixed("¥"),
    "градус цельсія": constant("°C"),
    "'": constant("&#39;"),
    "'s": constant("&#39;s"),
    "' \"": constant('&#39;"'),
    "\" '": constant('"&#39;'),
    "!": constant("|"),
    "!!": constant("||"),
    "=": constant("="),
    "(": constant("("),
    ")": constant(")"),
    "*": constant("*"),
    "pi": constant("π"),
    "okina": constant("ʻ"),
    "hamza": constant("ʼ"),
    "ayin": constant("ʿ"),
    "deg": constant("°"),
    "°": constant("°"),
    "ier": constant("Ier"),
}
BY_FUNCTION: list[tuple[Render, str]] = [
    (
        date,
        "birth date, birth date and age, birth-date, birth-date and age, bda, dob, death date, death date and age, "
        "death-date, death-date and age, start date, start date and age, start-date, end date, end-date, film date, "
        "release date, birth year and age, dts",
    ),
    (day_first, "date, datum, дата, fecha, дн, дс, дн2, дс2"),
    (pronunciation, "api, afi, мфа, мфа2, мфа-всі, ipa-all, pronunciation, phon"),
    (bullets, "ordered list, bulleted list, numbered list"),
    (fraction, "frac, fraction, sfrac, bruch, дріб, дробь"),
    (
        quotation,
        "quote, cquote, blockquote, quotation, rquote, bquote, zitat, цитата, cytat, cita, citat, citaat, idézet, "
        "citation bloc, citazione, citação, alıntı",
    ),
    (
        last,
        "transl, transliteration, resize, hover title, font, pronunciation text, wikt-lang, rtl-lang, script, audio, "
        "linkaudio",
    ),
    (joined(" "), "unité, nombre, bibleverse, bibleref, bibleref2, unidad, jct, nb5"),
    (
        first("2", "1"),
        "lang, langi, lang3, langx, color, font color, fontcolor, colour, color2, background color, sort, hs, "
        "nobreak color, tsl, link-interwiki, цвет, колір",
    ),
    (missing_article, "ill, illm, ill2, interlanguage link, interlanguage link multi, lien"),
    (
        first("текст", "2", "треба", "1"),
        "не перекладено, нп, нп5, нп3, iw, iw2, не переведено, не переведено 5, не переведено 2, red link",
    ),
    (
        first("1", "text"),
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
        constant(HOLE),
        "inflation, format price, formatprice, inflation year, inflation-year, currentyear, age, to usd, "
        "currentmonthname, pop density, age in days, age in years, age in years and days, time ago, years ago",
    ),
    (constant(" "), "nbsp, spaces, sp, thinsp, hair space, hairsp, 0, nnbsp, space, zwsp, nbs, ens"),
    (constant("\n"), "clear, br, -, clr, crlf, paragraph break, pb, parabr"),
    (constant("–"), "ndash, en dash"),
    (constant("—"), "mdash, em dash, mdashb, spaced em dash"),
    (constant(" – "), "snd, snds, spnd, spaced ndash, spaced en dash, --"),
    (constant(" · "), "·, •, dot, middot, bullet, \\"),
]
TEMPLATES |= {name: render for render, text in BY_FUNCTION for name in names(text)}
TEMPLATES |= {name: constant(name) for name in ("1er", "1re", "2e", "3e", "er", "re")}
TEMPLATES |= {name: constant(text) for name, text in {"m.": "M.", "mme": "Mme", "mlle": "Mlle"}.items()}
TEMPLATES |= {
    name.lower(): ship(name)
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
        first("1") if LANGUAGE_TEMPLATE.match(name) else pronunciation if PRONUNCIATION_TEMPLATE.match(name) else None
    )
    return known(arguments) if known else ""

"""Table of Wikipedia's templates that stand for words of a sentence: name -> function that renders the words."""

import re

from pipeline.wikipedia import template_prose as prose
from pipeline.wikipedia import template_quantities as quantities
from pipeline.wikipedia.template_arguments import (
    HOLE,
    Arguments,
    Render,
    around,
    constant,
    first,
    joined,
    last,
    prefixed,
    unnamed,
)

LANGUAGE_TEMPLATE = re.compile(r"(?:lang-[a-z]{1,4}(?:-[a-z-]+)?\d?|script/[\w -]+)$")
PRONUNCIATION_TEMPLATE = re.compile(r"ipa-[a-z-]+\d?$")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


TEMPLATES: dict[str, Render] = {
    "convert": quantities.quantity,
    "cvt": quantities.quantity,
    "val": quantities.value,
    "height": quantities.height,
    "as of": prose.as_of,
    "asof": prose.as_of,
    "nihongo": prose.japanese,
    "nihongo2": first("1"),
    "nihongo3": prose.japanese,
    "zh": prose.chinese,
    "s": prose.century,
    "-s": prose.century_before,
    "sp-": prose.century,
    "e": prose.power_of_ten,
    "ship": prose.any_ship,
    "sclass": prose.ship_class,
    "sclass-": prose.ship_class,
    "sclass2": prose.ship_class,
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
    "circa": prose.approximate,
    "c.": prose.approximate,
    "ca.": prose.approximate,
    "ipa": prose.sounds_of_language,
    "ipac-en": prose.english_sounds,
    "respell": lambda arguments: prose.aside(joined("-")(arguments)),
    "coord": prose.coordinates,
    "harvtxt": prose.authors,
    "harvcoltxt": prose.authors,
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
        prose.date,
        "birth date, birth date and age, birth-date, birth-date and age, bda, dob, death date, death date and age, "
        "death-date, death-date and age, start date, start date and age, start-date, end date, end-date, film date, "
        "release date, birth year and age, dts",
    ),
    (prose.day_first, "date, date-, datum, дата, fecha, дн, дс, дн2, дс2"),
    (prose.pronunciation, "api, afi, мфа, мфа2, мфа-всі, ipa-all, pronunciation, phon"),
    (prose.bullets, "ordered list, bulleted list, numbered list"),
    (quantities.fraction, "frac, fraction, sfrac, bruch, дріб, дробь"),
    (
        prose.quotation,
        "quote, cquote, blockquote, quotation, rquote, bquote, zitat, цитата, cytat, cita, citat, citaat, idézet, "
        "citation bloc, citazione, citação, alıntı",
    ),
    (
        last,
        "transl, transliteration, resize, hover title, font, font color, fontcolor, pronunciation text, wikt-lang, "
        "rtl-lang, script, audio, linkaudio",
    ),
    (joined(" "), "unité, nombre, bibleverse, bibleref, bibleref2, unidad, jct, nb5"),
    (
        first("2", "1"),
        "w, lang, langi, lang3, langx, color, colour, color2, background color, sort, hs, "
        "nobreak color, tsl, link-interwiki, цвет, колір",
    ),
    (prose.missing_article, "ill, illm, ill2, interlanguage link, interlanguage link multi, lien"),
    (
        first("текст", "2", "треба", "1"),
        "не перекладено, нп, нп5, нп3, iw, iw2, не переведено, не переведено 5, не переведено 2, red link",
    ),
    (
        first("1", "text"),
        "ipa link, ipalink, nq, nastaliq, flatlist, citation needed span, cn-span, clarify span, nowrap, nobr, "
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
"""Renderers that several templates share. Each row: (renderer, names of the templates, separated by commas)."""
TEMPLATES |= {name: render for render, text in BY_FUNCTION for name in _names(text)}
TEMPLATES |= {name: constant(name) for name in ("1er", "1re", "2e", "3e", "er", "re")}
TEMPLATES |= {name: constant(text) for name, text in {"m.": "M.", "mme": "Mme", "mlle": "Mlle"}.items()}
TEMPLATES |= {
    name.lower(): prose.ship(name)
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
    """Return the text that a reader of the page sees for a template; "" for an unknown template.

    `name` must be in lower case with single spaces.
    """
    renderer = TEMPLATES.get(name)
    if renderer is None and LANGUAGE_TEMPLATE.match(name):
        renderer = first("1")
    elif renderer is None and PRONUNCIATION_TEMPLATE.match(name):
        renderer = prose.pronunciation
    return renderer(arguments) if renderer else ""

"""Render the templates of Wikipedia that stand for numbers and quantities with units."""

import re

from pipeline.wikipedia.template_arguments import GLUED, HOLE, Arguments, first, unnamed

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


def grouped(number: str) -> str:
    """Put commas into a number at the end of a text: 12345.6 -> 12,345.6.

    Text without such a number, and text of more than LONGEST_NUMBER characters, are returned unchanged.
    """
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
    """Render a quantity in its original units, or HOLE if the page shows only the converted number.

    {{convert|5|-|10|km|mi}} -> 5–10 km; {{convert|6|ft|2|in|m}} -> 6 ft 2 in.
    """
    words = [word.replace(GLUED, "+").removeprefix("+") for word in unnamed(arguments)]
    if arguments.get("disp", "").strip() in ("output number only", "number"):
        return HOLE
    text, index = "", 0
    while index < len(words) and is_number(words[index]):
        text += grouped(words[index]).replace("+", " ")
        joiner = JOINERS.get(words[index + 1]) if index + 2 < len(words) and is_number(words[index + 2]) else None
        index += 2 if joiner else 1
        text += joiner or ""
        if not joiner:
            break
    if not text:
        return words[0] if words else ""
    text += f" {unit(words[index])}" if index < len(words) else ""
    while index + 2 < len(words) and is_number(words[index + 1]) and words[index + 2] in SMALLER_UNITS:
        text += f" {words[index + 1]} {words[index + 2]}"
        index += 2
    return text.strip()


def value(arguments: Arguments) -> str:
    """Render {{val|1.5|0.1|e=3|u=km|up=h}} -> (1.5 ± 0.1) × 10^3 km/h."""
    numbers = unnamed(arguments)
    power, units, per = arguments.get("e", "").strip(), first("u", "ul")(arguments), first("up", "upl")(arguments)
    text = grouped(numbers[0]) if numbers else ""
    if len(numbers) == 2:
        text = f"({text} ± {numbers[1]})" if power else f"{text} ± {numbers[1]}"
    if power:
        text = f"{text} × 10^{power}" if text else f"10^{power}"
    return (f"{text} {units}" if units else text).strip() + (f"/{per}" if per else "")


def height(arguments: Arguments) -> str:
    """Render {{height|ft=6|in=2}} -> 6 ft 2 in."""
    return " ".join(
        f"{arguments[name].strip()} {name}" for name in ("m", "cm", "ft", "in") if arguments.get(name, "").strip()
    )


def fraction(arguments: Arguments) -> str:
    """Render {{frac|2}} -> 1/2; {{frac|3|4}} -> 3/4; {{frac|1|3|4}} -> 1 3/4.

    The text begins with the mark GLUED.
    """
    parts = unnamed(arguments)
    whole = f"{parts[0]} " if len(parts) > 2 else ""
    return GLUED + whole + "/".join(parts[-2:] if len(parts) > 1 else ["1", *parts])

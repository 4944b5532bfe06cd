"""Render TeX formulas as one line of text: \\frac{a+b}{n} \\leq \\bar{x} -> (a+b)/n ≤ x̄."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

LONGEST = 300
"""Maximum characters of TeX; a longer formula is usually not part of a sentence."""
LONGEST_LINE = 80
"""Maximum characters of a rendered formula."""
DEEPEST = 20
"""Maximum depth of nested groups."""
TOKEN = re.compile(r"\\(?:[A-Za-z]+\*?|.)|[^\\]", re.DOTALL)
TERM = re.compile(r"√?(?:[\w.°′∞]|[^\W\d_][\u0300-\u036f])+$|√?\([^()]*\)$|\[[^\[\]]*\]$")
SUBSCRIPT = re.compile(r"[\w.,°′* ]*$")

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega"
)
LETTERS: dict[str, str] = dict(zip(GREEK.split(), "αβγδεζηθικλμνξοπρστυφχψω", strict=True))
LETTERS |= {name.capitalize(): character.upper() for name, character in LETTERS.items()}
LETTERS |= {
    "varphi": "φ",
    "varepsilon": "ε",
    "vartheta": "θ",
    "varrho": "ρ",
    "varsigma": "ς",
    "varpi": "π",
    "ell": "ℓ",
    "hbar": "ħ",
    "imath": "i",
    "jmath": "j",
    "Re": "Re",
    "Im": "Im",
    "aleph": "ℵ",
    "emptyset": "∅",
}
LETTERS |= {
    "varnothing": "∅",
    "infty": "∞",
    "partial": "∂",
    "nabla": "∇",
    "forall": "∀",
    "exists": "∃",
    "neg": "¬",
    "lnot": "¬",
    "circ": "∘",
    "degree": "°",
    "prime": "′",
    "dagger": "†",
    "angle": "∠",
    "top": "⊤",
    "bot": "⊥",
}
LETTERS |= {
    "sum": " ∑",
    "prod": " ∏",
    "int": " ∫",
    "iint": " ∬",
    "oint": " ∮",
    "ldots": "…",
    "dots": "…",
    "cdots": "…",
    "dotsc": "…",
    "dotsb": "…",
    "dotsm": "…",
    "langle": "⟨",
    "rangle": "⟩",
    "lfloor": "⌊",
    "rfloor": "⌋",
    "lceil": "⌈",
}
LETTERS |= {
    "rceil": "⌉",
    "lbrace": "{",
    "rbrace": "}",
    "{": "{",
    "}": "}",
    "%": "%",
    "$": "$",
    "#": "#",
    "_": "_",
    "&": "&",
    "|": "‖",
    "vert": "|",
    "lvert": "|",
    "rvert": "|",
    "Vert": "‖",
    "lVert": "‖",
    "rVert": "‖",
}
LETTERS |= {
    "cdot": "·",
    "colon": ":",
    "slash": "/",
    "ast": "*",
    "star": "⋆",
    "square": "□",
    "Box": "□",
    "AA": "Å",
    "S": "§",
    "P": "¶",
    "pounds": "£",
    "euro": "€",
    "lbrack": "[",
    "rbrack": "]",
    "backslash": "\\",
    "mho": "℧",
}
RELATIONS = {
    "times": "×",
    "pm": "±",
    "mp": "∓",
    "div": "÷",
    "le": "≤",
    "leq": "≤",
    "leqslant": "≤",
    "ge": "≥",
    "geq": "≥",
    "geqslant": "≥",
    "ne": "≠",
    "neq": "≠",
    "approx": "≈",
    "equiv": "≡",
    "sim": "∼",
    "thicksim": "∼",
}
RELATIONS |= {
    "simeq": "≃",
    "cong": "≅",
    "propto": "∝",
    "ll": "≪",
    "gg": "≫",
    "lt": "<",
    "gt": ">",
    "in": "∈",
    "notin": "∉",
    "ni": "∋",
    "subset": "⊂",
    "subseteq": "⊆",
    "supset": "⊃",
    "supseteq": "⊇",
    "cup": "∪",
    "cap": "∩",
}
RELATIONS |= {
    "setminus": "∖",
    "to": "→",
    "rightarrow": "→",
    "longrightarrow": "→",
    "leftarrow": "←",
    "gets": "←",
    "leftrightarrow": "↔",
    "Rightarrow": "⇒",
    "implies": "⇒",
    "Longrightarrow": "⇒",
    "Leftarrow": "⇐",
}
RELATIONS |= {
    "Leftrightarrow": "⇔",
    "iff": "⇔",
    "Longleftrightarrow": "⇔",
    "mapsto": "↦",
    "rightleftharpoons": "⇌",
    "land": "∧",
    "wedge": "∧",
    "lor": "∨",
    "vee": "∨",
    "oplus": "⊕",
    "otimes": "⊗",
    "mid": "|",
    "parallel": "∥",
}
RELATIONS |= {
    "perp": "⊥",
    "vdash": "⊢",
    "models": "⊨",
    "therefore": "∴",
    "because": "∵",
    "prec": "≺",
    "succ": "≻",
    "bmod": "mod",
    "mod": "mod",
    "triangleq": "≜",
    "doteq": "≐",
    "asymp": "≍",
    "uparrow": "↑",
    "downarrow": "↓",
}
FUNCTION_NAMES = (
    "arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim liminf limsup ln log "
    "max min "
    "sec sin sinh sup tan tanh Pr"
)
FUNCTIONS = frozenset(FUNCTION_NAMES.split())
SPACES = frozenset([" ", ",", ";", ":", "quad", "qquad", "thinspace", "medspace", "~"])
SILENT_NAMES = (
    "! left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr middle displaystyle textstyle "
    "scriptstyle "
    "scriptscriptstyle limits nolimits rm bf it sf tt cal mathrm mathbf mathit mathsf mathtt mathcal mathfrak mathscr "
    "text textrm textbf textit textsf mbox hbox operatorname operatorname* boldsymbol bm pmb emph mathop mathbin "
    "mathrel "
    "nonumber"
)
SILENT = frozenset(SILENT_NAMES.split())
DOUBLED = dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))
ACCENTS = {
    "bar": "\u0304",
    "overline": "\u0304",
    "hat": "\u0302",
    "widehat": "\u0302",
    "tilde": "\u0303",
    "widetilde": "\u0303",
    "vec": "\u20d7",
    "overrightarrow": "\u20d7",
    "dot": "\u0307",
    "ddot": "\u0308",
    "mathring": "\u030a",
}
NEGATED = {"=": "≠", "\\in": "∉", "<": "≮", ">": "≯", "\\subset": "⊄", "\\equiv": "≢", "\\exists": "∄"}


class TwoDimensions(Exception):
    """Raised for a formula that cannot be written on one line, and for an unknown command."""


def one_line(latex: str) -> str:
    """Render a formula as one line of text: x_1 \\leq \\alpha -> x1 ≤ α.

    Return "" if the formula is too long, needs several lines or has unknown commands.
    """
    if len(latex) > LONGEST:
        return ""
    try:
        text = _render_atoms(_parse_atoms(iter(TOKEN.findall(latex)), 0))
    except TwoDimensions:
        return ""
    text = " ".join(re.sub(r"(?<=[(\[⟨]) +| +(?=[)\]⟩,])", "", text).split())
    return text if len(text) <= LONGEST_LINE else ""


def _parse_atoms(tokens: Iterator[str], depth: int) -> list[str]:
    """Read atoms (commands, characters, groups) up to the end of the current group.

    A group inside this group becomes one atom: an open brace and the group's rendered text.
    """
    if depth > DEEPEST:
        raise TwoDimensions
    words: list[str] = []
    for token in tokens:
        if token == "}":
            break
        words.append("{" + _render_atoms(_parse_atoms(tokens, depth + 1)) if token == "{" else token)
    return words


def _render_atoms(parts: Sequence[str]) -> str:
    """Render a sequence of atoms as text. An atom takes its arguments from the atoms after it."""
    if "\\over" in parts:
        index = parts.index("\\over")
        return _ratio(_render_atoms(parts[:index]), _render_atoms(parts[index + 1 :]))
    text, rest = "", iter(parts)
    for part in rest:
        text += _render_command(part[1:], rest, text) if part[0] == "\\" else _render_character(part, rest)
    return text


def _render_character(part: str, rest: Iterator[str]) -> str:
    """Render a group, a character, or a sub- or superscript. The argument of a script is the next atom in `rest`."""
    if part == "_":
        lower = _next_argument(rest)
        return lower if SUBSCRIPT.match(lower) else f"_({lower})"
    if part == "^":
        upper = _next_argument(rest).replace("∘", "°")
        return upper if upper in ("°", "′") else f"^{upper if TERM.match(upper) or len(upper) == 1 else f'({upper})'}"
    if part == "&":
        raise TwoDimensions
    return {"~": " ", "'": "′", "\n": " "}.get(part, part.removeprefix("{"))


def _render_command(name: str, rest: Iterator[str], before: str) -> str:
    """Render a command that follows the text `before`; its arguments are taken from the atoms in `rest`.

    Raise TwoDimensions if the command is unknown.
    """
    if name in LETTERS:
        return LETTERS[name]
    if name in RELATIONS:
        return f" {RELATIONS[name]} "
    if name in SPACES:
        return " "
    if name in SILENT:
        return ""
    if name in FUNCTIONS:
        return _render_function(name, rest, before)
    if name in ARGUMENTS:
        return ARGUMENTS[name](rest)
    raise TwoDimensions


def _render_function(name: str, rest: Iterator[str], before: str) -> str:
    """Render a function such as sin and its argument, with a space between its name and adjacent letters or digits."""
    following = next(rest, "")
    after = (
        _render_character(following, rest)
        if following[:1] != "\\"
        else _render_command(following[1:], rest, "")
        if following
        else ""
    )
    start = " " if before[-1:].isalnum() else ""
    return f"{start}{name}{' ' if after[:1].isalnum() and following != '_' else ''}{after}"


def _next_argument(rest: Iterator[str]) -> str:
    """Return the text of the next atom that is not a space. Raise TwoDimensions if no atom is left."""
    part = next((part for part in rest if not part.isspace()), None)
    if part is None:
        raise TwoDimensions
    return _render_command(part[1:], rest, "").strip() if part[0] == "\\" else part.removeprefix("{").strip()


def _ratio(above: str, below: str) -> str:
    above, below = (text if TERM.match(text) else f"({text})" for text in (above.strip(), below.strip()))
    return f"{above}/{below}"


def _root(rest: Iterator[str]) -> str:
    radicand = _next_argument(rest)
    if radicand == "[":
        raise TwoDimensions
    return f"√{radicand if len(radicand) == 1 or radicand.isdecimal() else f'({radicand})'}"


def _accented(mark: str) -> Callable[[Iterator[str]], str]:
    """Return a renderer that puts a mark on a single letter, and leaves a longer text unchanged."""

    def render(rest: Iterator[str]) -> str:
        text = _next_argument(rest)
        return unicodedata.normalize("NFC", text + mark) if len(text) == 1 and text.isalpha() else text

    return render


def _doubled(rest: Iterator[str]) -> str:
    return "".join(DOUBLED.get(letter, letter) for letter in _next_argument(rest))


def _negated(rest: Iterator[str]) -> str:
    part = next(rest, "")
    if part not in NEGATED:
        raise TwoDimensions
    return f" {NEGATED[part]} "


ARGUMENTS: dict[str, Callable[[Iterator[str]], str]] = {name: _accented(mark) for name, mark in ACCENTS.items()}
ARGUMENTS |= {
    name: lambda rest: _ratio(_next_argument(rest), _next_argument(rest))
    for name in ("frac", "tfrac", "dfrac", "cfrac")
}
ARGUMENTS |= {
    "sqrt": _root,
    "mathbb": _doubled,
    "Bbb": _doubled,
    "not": _negated,
    "pmod": lambda rest: f" (mod {_next_argument(rest)})",
    "underline": lambda rest: _next_argument(rest),
}


def reaction(chemistry: str) -> str:
    """Render a chemical equation: "2H2 + O2 -> 2H2O" becomes "2H2 + O2 → 2H2O".

    Return "" if the equation has TeX commands or is too long.
    """
    text = re.sub(r"[_^{}]", "", chemistry.replace("<=>", "⇌").replace("->", "→"))
    return "" if "\\" in text or len(text) > LONGEST else " ".join(text.split())

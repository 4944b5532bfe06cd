"""Brackets that lost their words with a template: what goes, and what stays because it is text."""

from pipeline.wikipedia.residue import without_residue

LEFT = {
    "Asia ( or ) is large.": "Asia is large.",
    "Bitumen (), also known as tar ( ; ]).": "Bitumen, also known as tar.",
    'Agar (pronounced , ) or agar-agar (, "").': "Agar (pronounced) or agar-agar.",
    "Hipparchus (; Greek: Ἵππαρχος; born 190)": "Hipparchus (Greek: Ἵππαρχος; born 190)",
    'Freikorps (], "Free Corps")': 'Freikorps ("Free Corps")',
    'Ghent (; Dutch: "Gent", ]; French: "Gand")': 'Ghent (Dutch: "Gent"; French: "Gand")',
    'One. ("αρχ. . α!"). Two.': "One. Two.",
    "As Jeremiah says (–). So it is.": "As Jeremiah says. So it is.",
    "It can be computed (see ), with care (e.g. , , ).": "It can be computed, with care.",
    "A weight of 5 t ( lb). More.": "A weight of 5 t. More.",
    "The army (POW, ) and the law (, SGB V)": "The army (POW) and the law (SGB V)",
    "稻川英里（，）是日本的女性聲優（）。": "稻川英里是日本的女性聲優。",
    "克莱诺夫（，1880年）于1920年": "克莱诺夫（1880年）于1920年",
    "波兰()是国家": "波兰是国家",
    "Er sagt „A“ (gesprochen [], kurz) und geht.": "Er sagt „A“ (gesprochen, kurz) und geht.",
    "Ahoi [] ist ein Ruf ().": "Ahoi ist ein Ruf.",
}


def test_what_a_dropped_template_leaves_is_removed() -> None:
    assert {text: without_residue(text) for text in LEFT} == LEFT


SIGNS = [
    "Call min() and max( ) here, and a[] too.",
    'A comma (,), a colon (:), quotation marks (") and Gram-(-) bacteria (!) (?)',
    "Degrees ( ° ), acute ( ´ ), an ellipsis (. . .) or (...) or (…).",
    'The sequence ("x""n") and f(x) = (a , b), (S + N ), (g ∘ f )',
    "Kobalt (Co), U.S. (n. V.), (V ст. до н. е.), (J.M.), (R&D), (t/ha), (e.g. é, ñ)",
    'The letter ( إ ) and "be" ("be" ), he (co-)writes.',
    "（內）及（一）",
    "An array [1, ] and x[i], too ]",
]


def test_signs_that_are_text_stay() -> None:
    assert [without_residue(text) for text in SIGNS] == SIGNS

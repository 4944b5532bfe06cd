from hypothesis import given
from hypothesis import strategies as st

from pipeline.wikipedia import formulas
from pipeline.wikipedia.formulas import one_line, reaction

FORMULAS = {
    r"x_1 \leq \alpha": "x1 ≤ α",
    r"x": "x",
    r"y_{i,j}=y_i+t_j.": "yi,j=yi+tj.",
    r"k^{th}": "k^th",
    r"e^{-x^2}": "e^(-x^2)",
    r"90^\circ": "90°",
    r"f' + f^{\prime}": "f′ + f′",
    r"\frac{1}{2}": "1/2",
    r"\tfrac12": "1/2",
    r"\frac{a+b}{n}": "(a+b)/n",
    r"\frac{(3+5)}{2} = 4": "(3+5)/2 = 4",
    r"F = \frac{\text{variance between groups}}{\text{variance within}}": (
        "F = (variance between groups)/(variance within)"
    ),
    r"{{a+b} \over 2}": "(a+b)/2",
    r"\sqrt{2}": "√2",
    r"\frac{1}{\sqrt{2\pi}}": "1/√(2π)",
    r"\bar{x} + \hat y": "x̄ + ŷ",
    r"\overline{AB}": "AB",
    r"\sin\alpha + 2\cos(x) + \log_2 n": "sin α + 2 cos(x) + log2 n",
    r"\sin^{-1}\alpha": "sin^(-1)α",
    r"A=\frac{1}{n}\sum_{i=1}^n a_i": "A=1/n ∑_(i=1)^n ai",
    r"\left( P \to Q\right)\Leftrightarrow \neg Q": "(P → Q) ⇔ ¬ Q",
    r"b \in \{1,2,\ldots,B\}, B\in\mathbb{N}": "b ∈ {1,2,…,B}, B ∈ ℕ",
    r"a \not= b \not\in C": "a ≠ b ∉ C",
    r"|\alpha\rangle": "|α⟩",
    r"a \equiv b \pmod{n}": "a ≡ b (mod n)",
    r"\mathrm{d}x \, \operatorname{Tr} A": "dx Tr A",
}


def test_a_formula_is_written_on_one_line() -> None:
    assert {latex: one_line(latex) for latex in FORMULAS} == FORMULAS


UNWRITABLE = [
    r"\begin{cases} 1 & x \\ 0 & y \end{cases}",
    r"a & b",
    r"a \\ b",
    r"\underbrace{a}_b",
    r"\sqrt[3]{x}",
    r"a \not\to b",
    r"\frac{a}",
    r"x^",
    "{" * 30 + "x" + "}" * 30,
    "x" * (formulas.LONGEST_LINE + 1),
    "{}" * 150 + "x",
]


def test_what_one_line_cannot_hold_is_left_out() -> None:
    assert [latex for latex in UNWRITABLE if one_line(latex)] == []


PIECES = [
    *"ab1{}_^&[]() +-='~\n",
    "\\",
    r"\frac",
    r"\sqrt",
    r"\bar",
    r"\sin",
    r"\over",
    r"\left",
    r"\not",
    r"\alpha ",
    r"\le ",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_formula_raises_and_every_one_is_one_line(latex: str) -> None:
    text = one_line(latex)
    assert text == " ".join(text.split()) and len(text) <= formulas.LONGEST_LINE


def test_no_command_has_two_meanings() -> None:
    tables = [
        set(table)
        for table in (
            formulas.LETTERS,
            formulas.RELATIONS,
            formulas.FUNCTIONS,
            formulas.SPACES,
            formulas.SILENT,
            formulas.ARGUMENTS,
        )
    ]
    assert sum(map(len, tables)) == len(set().union(*tables))


EQUATIONS = {
    "CO2 + H2O -> H2CO3": "CO2 + H2O → H2CO3",
    "H2_{} <=> 2H^+": "H2 ⇌ 2H+",
    r"A \overset{x}{->} B": "",
}


def test_an_equation_of_chemistry() -> None:
    assert {chemistry: reaction(chemistry) for chemistry in EQUATIONS} == EQUATIONS

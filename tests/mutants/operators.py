"""Small changes of Python code, by its syntax tree: an operator, a number, a condition or a call becomes another."""

import ast
from collections.abc import Container
from dataclasses import dataclass, field

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
"""Operator -> its text, and the text in its place."""
COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
REMOVED: dict[type[ast.unaryop], str] = {ast.Not: "not ", ast.USub: "-", ast.Invert: "~"}
CALLED = {"min": "max", "minimum": "maximum", "any": "all"}
CALLED |= {other: name for name, other in CALLED.items()}
"""Name of a called function or method -> the name in its place."""
SAYING = frozenset({"print", "report", "say", "log"})
"""Calls that say something to people; nothing in them is changed."""
NEUTRAL = frozenset({"strict", "indent"})
"""Keyword arguments whose values change nothing in working code, or only the look of a file."""
EXACT = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Comparisons whose opposite is in COMPARED, so that their negation would be the same change again."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A text of a file that becomes another text."""

    name: str
    """Function, method or class that has the text, such as Cursor.ends_window."""
    start: int
    """Offsets are in bytes, as those of the syntax tree."""
    end: int
    after: str

    def apply(self, code: bytes) -> bytes:
        """Return the file's code with the change."""
        return code[: self.start] + self.after.encode() + code[self.end :]

    def lines(self, code: bytes) -> tuple[int, str, str]:
        """Return the number of the changed line, and the line before and after the change.

        Of a text of several lines, it is the first one.
        """
        first = code.rfind(b"\n", 0, self.start) + 1
        before, after = (text[first:].decode().splitlines()[0].strip() for text in (code, self.apply(code)))
        return code.count(b"\n", 0, first) + 1, before, after


def changes(code: bytes, without: Container[str] = ()) -> list[Change]:
    """Return all changes of the functions, methods and classes of a file, in the order of the text.

    Left out are: code of the module itself, such as tables and limits; the top-level names in `without`; annotations,
    decorators, texts, messages of errors, and assertions.
    """
    tree = ast.parse(code)
    finder = _Finder(code=code)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in without:
            finder.visit(node)
    return sorted(finder.found, key=lambda change: (change.start, change.end))


@dataclass(kw_only=True)
class _Finder(ast.NodeVisitor):
    """Collects the changes of all nodes that it visits."""

    code: bytes
    found: list[Change] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line_starts = [0, *(index + 1 for index, byte in enumerate(self.code) if byte == ord("\n"))]

    def start(self, node: ast.expr) -> int:
        return self.line_starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None  # set by ast.parse
        return self.line_starts[node.end_lineno - 1] + node.end_col_offset

    def add(self, start: int, end: int, after: str) -> None:
        self.found.append(Change(name=".".join(self.names), start=start, end=end, after=after))

    def exchange(self, before: str, after: str, start: int, end: int) -> None:
        """Exchange the first `before` in a part of the code, which is all between two operands."""
        place = self.code.index(before.encode(), start, end)
        self.add(place, place + len(before), after)

    def visit_all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.names.append(node.name)
        self.visit_all(*node.args.defaults, *node.args.kw_defaults, *node.body)
        self.names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.append(node.name)
        self.visit_all(*node.body)
        self.names.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit_all(node.value)

    def skip(self, node: ast.AST) -> None:
        """Change nothing in a node."""

    visit_Raise = visit_Assert = visit_JoinedStr = skip

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose result nobody takes is left out."""
        if isinstance(node.value, ast.Call) and _called(node.value) not in SAYING:
            self.add(self.start(node.value), self.end(node.value), "None")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        if name in SAYING:
            return
        if name in CALLED:
            self.add(self.end(node.func) - len(name), self.end(node.func), CALLED[name])
        if name == "isinstance":
            self.visit(node.args[0])
            return
        self.visit_all(node.func, *node.args)
        self.visit_all(*(keyword.value for keyword in node.keywords if keyword.arg not in NEUTRAL))

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:]):
            self.exchange(*COMPARED[type(operator)], self.end(left), self.start(right))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in COMPUTED and not any(map(_is_text_or_table, (node.left, node.right))):
            self.exchange(*COMPUTED[type(node.op)], self.end(node.left), self.start(node.right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in COMPUTED and not _is_text_or_table(node.value):
            self.exchange(*COMPUTED[type(node.op)], self.end(node.target), self.start(node.value))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:]):
            self.exchange(*words, self.end(left), self.start(right))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if type(node.op) in REMOVED:
            self.exchange(REMOVED[type(node.op)], "", self.start(node), self.end(node))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(self.start(node), self.end(node), str(not node.value))
        elif isinstance(node.value, int):
            self.add(self.start(node), self.end(node), str(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.negate(test)
        self.generic_visit(node)

    def negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], EXACT):
            return
        start, end = self.start(test), self.end(test)
        self.add(start, end, f"not ({self.code[start:end].decode()})")


def _called(node: ast.Call) -> str:
    """Return the name of a called function or method; empty for other calls."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _is_text_or_table(node: ast.expr) -> bool:
    """Return whether a node is a text or a dict in its place, which have no operators but + and |."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr | ast.Dict | ast.DictComp)

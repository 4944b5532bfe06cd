"""Tables of a terminal."""

from pipeline.command_line.columns import aligned


def test_the_first_column_is_left_and_the_others_are_right() -> None:
    assert aligned(["a", "bb"], [["ccc", "d"], ["e", "1,000"]]) == ["a       bb", "ccc      d", "e    1,000"]
    assert aligned(["  indented", ""], [["  a", ""]]) == ["  indented", "  a"] and aligned(["a"], []) == ["a"]


def test_cells_are_plain_text_of_any_width() -> None:
    assert aligned(["class", "rows"], [["战争", "1"], ["[b]", "2"]]) == ["class  rows", "战争      1", "[b]       2"]
    (_, line) = aligned(["a", "b"], [["x" * 3_000, "y"]])
    assert line == "x" * 3_000 + "  y"

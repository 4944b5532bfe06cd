"""Lines between a sentence's tokens, read from the figure."""

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.show.head_lines import draw, head_weights, lines

TOKENS = ["[CLS]", "a", "$b", "[SEP]"]
WEIGHTS = np.array([[1.0, 0, 0, 0], [0.75, 0, 0.25, 0], [0.01, 0.99, 0, 0], [0.25, 0.25, 0.25, 0.25]])


def test_a_line_for_each_weight_that_can_be_seen() -> None:
    axes = draw(WEIGHTS, TOKENS, "a head").axes[0]
    (drawn,) = axes.collections
    ends = [(int(segment[0][1]), int(segment[1][1])) for segment in drawn.get_segments()]
    assert ends == [(0, 0), (1, 0), (1, 2), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3)]  # not 2 → 0, of 1%
    assert np.asarray(drawn.get_alpha()).tolist() == [1, 0.75, 0.25, 0.99, 0.25, 0.25, 0.25, 0.25]
    assert [text.get_text() for text in axes.texts] == ["[CLS]", "[CLS]", "a", "a", r"\$b", r"\$b", "[SEP]", "[SEP]"]
    assert axes.yaxis_inverted()


def test_the_strongest_are_told() -> None:
    assert [" ".join(line.split()) for line in lines(WEIGHTS, TOKENS)][:3] == [
        "[CLS] → [CLS] 100%",
        "a → [CLS] 75%",
        "$b → a 99%",
    ]


def test_layers_and_heads_count_from_one() -> None:
    every = np.zeros((2, 3, 4, 4))
    every[1, 2] = 0.25
    assert head_weights(every, 2, 3).sum() == 4
    with pytest.raises(ConfigError, match=r"^layer \(0\) must be from 1 to 2: the model has 2 layers$"):
        head_weights(every, 0, 1)
    with pytest.raises(ConfigError, match=r"^head \(4\) must be from 1 to 3: the model has 3 heads$"):
        head_weights(every, 1, 4)
    with pytest.raises(ConfigError, match=r"^sentence has 61 tokens, and a picture shows at most 60: shorten it$"):
        head_weights(np.zeros((1, 1, 61, 61)), 1, 1)

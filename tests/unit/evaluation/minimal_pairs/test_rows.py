"""Masked copies of sentences, worked out by hand."""

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.evaluation.minimal_pairs.rows import Rows, SentenceRows, encode, make_batch, make_rows, split
from pipeline.text.vocabulary import Vocabulary

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##c", "d", ".")
VOCABULARY = Vocabulary(tokens=TOKENS, lowercase=True)


def encoded(texts: list[str]) -> SentenceRows:
    return encode(texts, VOCABULARY, 16, "score another")


def described(rows: Rows) -> list[tuple]:
    return [tuple(values) for values in zip(*(column.tolist() for column in vars(rows).values()), strict=True)]


def copies(texts: list[str], tokens: int) -> list[list[tuple[str, int, str]]]:
    """Return for each batch its rows as text, with the index and the entry of the piece that is asked for."""
    sentences, made = encoded(texts), []
    rows = make_rows(sentences)
    for part in split(sentences, rows, tokens):
        batch = make_batch(sentences, rows, part, VOCABULARY)
        names = [TOKENS[i] for i in batch.ids_T.tolist()]
        bounds = batch.offsets.tolist()
        positions = batch.masked_positions_M.tolist()
        assert batch.positions_T.tolist() == [k for a, b in zip(bounds, bounds[1:]) for k in range(b - a)]
        assert batch.maximum_length == max(b - a for a, b in zip(bounds, bounds[1:]))
        made.append(
            [
                (" ".join(names[a:b]), position - a, TOKENS[label])
                for a, b, position, label in zip(bounds, bounds[1:], positions, batch.masked_labels_M.tolist())
            ]
        )
    return made


def test_words_end_where_the_tokenizer_says() -> None:
    sentences = encoded(["d abc.", "a"])
    assert [TOKENS[i] for i in sentences.ids] == ["d", "a", "##b", "##c", ".", "a"]
    assert sentences.word_ends.tolist() == [1, 4, 4, 4, 5, 1]
    assert sentences.offsets.tolist() == [0, 5, 6]


def test_chosen_sentences_are_as_encoded_alone() -> None:
    texts = ["abc d ab.", "d", "abab", "a."]
    for chosen in ([2, 0], [1], [0, 1, 2, 3]):
        taken, alone = encoded(texts).take(np.array(chosen)), encoded([texts[number] for number in chosen])
        for name, values in vars(alone).items():
            assert getattr(taken, name).tolist() == values.tolist(), name


def test_the_scorings_share_the_rows_of_each_words_last_piece() -> None:
    assert described(make_rows(encoded(["abc."]))) == [
        (0, 0, 1, True, False),  # a is asked for, with the rest of its word in sight
        (0, 1, 2, True, False),
        (0, 2, 3, True, True),  # the last piece of its word
        (0, 3, 4, True, True),
        (0, 0, 3, False, True),  # a is asked for, and its word is masked to its end
        (0, 1, 3, False, True),
    ]


def test_a_row_masks_the_piece_or_the_rest_of_its_word() -> None:
    assert copies(["ab d"], 100) == [
        [
            ("[CLS] [MASK] ##b d [SEP]", 1, "a"),
            ("[CLS] a [MASK] d [SEP]", 2, "##b"),
            ("[CLS] a ##b [MASK] [SEP]", 3, "d"),
            ("[CLS] [MASK] [MASK] d [SEP]", 1, "a"),
        ]
    ]


def test_batches_hold_whole_rows_from_short_to_long_up_to_a_number_of_tokens() -> None:
    made = copies(["d a", "d", "a d"], 8)
    assert [[row for row, _, _ in batch] for batch in made] == [
        ["[CLS] [MASK] [SEP]", "[CLS] [MASK] a [SEP]"],
        ["[CLS] d [MASK] [SEP]", "[CLS] [MASK] d [SEP]"],
        ["[CLS] a [MASK] [SEP]"],
    ]
    assert sum(copies(["d a", "d", "a d"], 1), []) == sum(made, [])


@pytest.mark.parametrize(("text", "pieces"), [("", 0), ("a d a", 3)])
def test_a_sentence_that_the_model_cannot_take_is_named(text: str, pieces: int) -> None:
    message = rf"the sentence '{text}' has {pieces} pieces, but the model takes 1 to 2: score another$"
    with pytest.raises(DataError, match=message):
        encode(["a", text], VOCABULARY, 4, "score another")


def test_every_piece_counts_once_in_each_scoring() -> None:
    sentences = encoded(["abc d ab.", "d", "abab"])
    rows = make_rows(sentences)
    for counted in (rows.in_pll, rows.in_word_l2r):
        asked = sentences.offsets[rows.sentence[counted]] + rows.asked[counted]
        assert np.sort(asked).tolist() == list(range(len(sentences.ids)))

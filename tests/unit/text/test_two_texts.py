"""Pairs of texts: paragraphs joined from lines, adjacent ones, titles, crops, and the rows that they become."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch import collate
from pipeline.config.data import AdjacentParagraphs, GivenPairs, Sampling, TitleParagraph, TwoCrops
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples, own_titles, parent_hashes
from pipeline.text.pairs import PAIRINGS
from pipeline.text.schema import DOCUMENT
from pipeline.text.sequences import Sequences
from pipeline.text.splitting import SPECIALS
from pipeline.text.template import TWO_SEPARATORS
from pipeline.text.two_texts import join_lines
from pipeline.text.vocabulary import Vocabulary

WINDOWS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), max_size=6)  # documents of lines of tokens
KINDS = [TwoCrops(), AdjacentParagraphs(shortest=10), TitleParagraph(shortest=10)]
MAXIMUM = 16
WORDS = tuple("abcdefghij")
TOKENIZER = CachedTokenizer(Vocabulary(tokens=(*SPECIALS, *WORDS), lowercase=True))


def offsets(window: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lines = np.cumsum([0, *(tokens for document in window for tokens in document)]).astype(np.int64)
    return lines, np.cumsum([0, *map(len, window)]).astype(np.int64)


def draw(settings: object, window: list[list[int]], seed: int = 0, maximum: int = MAXIMUM) -> Sequences:
    lines, documents = offsets(window)
    return PAIRINGS[type(settings)](
        settings, lines, documents, np.zeros(len(window), int), maximum, np.random.default_rng(seed)
    )


def pairs(sequences: Sequences) -> list[tuple[int, ...]]:
    return [(*a, *b) for a, b in np.stack((sequences.starts, sequences.ends), 1).reshape(-1, 2, 2).tolist()]


def test_short_lines_are_joined_by_hand() -> None:
    """With at least 4 tokens: 3 + 1, then 5, which the last 2 of the document join; 4, which the 1 joins; 2 alone."""
    found = join_lines(*offsets([[3, 1, 0, 5, 2], [], [4, 1], [2]]), 4)
    assert list(zip(found.starts.tolist(), found.ends.tolist())) == [(0, 4), (4, 11), (11, 16), (16, 18)]
    assert found.documents.tolist() == [0, 0, 2, 3]


def test_adjacent_paragraphs_by_hand() -> None:
    """Five paragraphs give (1, 2), (3, 4) or (2, 3), (4, 5); two give one pair; one gives none. 20 tokens become 14."""
    window = [[10, 11, 20, 12, 13], [10, 10], [30]]
    either = {0: [(0, 10, 10, 21), (21, 35, 41, 53)], 1: [(10, 21, 21, 35), (41, 53, 53, 66)]}
    found = {tuple(pairs(draw(KINDS[1], window, seed))) for seed in range(20)}
    assert found == {(*first, (66, 76, 76, 86)) for first in either.values()}
    assert draw(KINDS[1], window).document_a.tolist() == [0, 0, 1]


def test_titles_by_hand() -> None:
    """Each paragraph goes with its title; documents without a title or without text give nothing."""
    window = [[2, 10, 10], [0, 12], [3], [1, 4, 7]]
    sequences = draw(KINDS[2], window)
    assert pairs(sequences) == [(0, 2, 2, 12), (0, 2, 12, 22), (37, 38, 38, 49)]
    assert sequences.document_a.tolist() == sequences.document_b.tolist() == [0, 0, 3]
    assert pairs(draw(KINDS[2], [[20, 10]])) == [(0, 14, 20, 30)]


def test_crops_by_hand() -> None:
    """At most 28 tokens a stretch: 60 tokens are three of 20, with crops of 2 to 10 tokens each."""
    found = np.array([pairs(draw(TwoCrops(), [[60]], seed)) for seed in range(200)]) - 20 * np.arange(3)[:, None]
    a, b = found[..., :2], found[..., 2:]
    assert a.min() == b.min() == 0 and a.max() == b.max() == 20
    assert {2, 10} <= set(np.diff(a).ravel()) <= set(range(2, 11)) and (a != b).any(-1).mean() > 0.9


@given(window=WINDOWS, seed=st.integers(0, 99))
@pytest.mark.parametrize("kind", KINDS)
def test_texts_lie_in_their_document_and_fit(kind: object, window: list[list[int]], seed: int) -> None:
    lines, documents = offsets(window)
    bounds = lines[documents]
    sequences = draw(kind, window, seed)
    assert sequences.two_texts and not sequences.paired
    for (a, a_end, b, b_end), document in zip(pairs(sequences), sequences.document_a.tolist(), strict=True):
        assert bounds[document] <= a < a_end <= bounds[document + 1] and a_end - a <= MAXIMUM - 2
        assert bounds[document] <= b < b_end <= bounds[document + 1] and b_end - b <= MAXIMUM - 2
        assert isinstance(kind, TwoCrops) or a_end <= b
    assert pairs(draw(kind, window, seed)) == pairs(sequences)


def documents(*rows: tuple[str, str, str]) -> pa.Table:
    """Documents as (parent, title, text)."""
    fixed = {"source": "test", "lines_are_sentences": False, "language": "en"}
    values = [
        {"id": str(n), "parent": parent, "title": title, "text": text} | fixed
        for n, (parent, title, text) in enumerate(rows)
    ]
    return pa.Table.from_pylist(values, schema=DOCUMENT)


def test_rows_and_their_batch_by_hand() -> None:
    """[CLS] is 2, [SEP] 3, a is 5: the row [2 5 3 6 7 3] is the sequences [2 5 3] and [2 6 7 3], without masks."""
    table = documents(("p", "a", "b c"), ("p", "d", "e"), ("q", "", "f g"))
    sampling = Sampling(maximum_length=8, pairs=TitleParagraph(shortest=1))
    examples = make_examples(table, TOKENIZER, sampling, seed=0, epoch=0, window=0).sort_by("document_a")
    assert examples["ids"].to_pylist() == [[2, 5, 3, 6, 7, 3], [2, 8, 3, 9, 3]]
    assert examples["first_length"].to_pylist() == [3, 3]
    assert examples["masked_positions"].to_pylist() == [[], []] and examples["not_next"].null_count == 2
    batch = collate(examples)
    assert batch.ids_T.tolist() == [2, 5, 3, 2, 6, 7, 3, 2, 8, 3, 2, 9, 3]
    assert batch.offsets.tolist() == [0, 3, 7, 10, 13] and batch.maximum_length == 4
    assert batch.positions_T.tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert batch.segments_T.sum() == 0 and batch.masked == 0
    (a, b, p), (d, e, same) = batch.keys.tolist()
    assert p == same and len({a, b, d, e, p}) == 5
    again = collate(make_examples(table, TOKENIZER, sampling, seed=1, epoch=3, window=0).sort_by("document_a"))
    assert again.keys.tolist() == batch.keys.tolist()


def test_given_pairs_by_hand() -> None:
    """The first two lines, and at most two of the others; a document without a first or a second text gives no row."""
    window = [[3, 20, 4, 0, 2], [0, 5, 1], [5, 0], [2, 3], [4, 4, 1, 2, 3]]
    sequences = draw(GivenPairs(negatives=2), window)
    found = [list(zip(sequences.starts[a:b].tolist(), sequences.ends[a:b].tolist())) for a, b in bounds(sequences)]
    assert sequences.document_a.tolist() == sequences.document_b.tolist() == [0, 3, 4]
    assert found[:2] == [[(0, 3), (3, 17), (23, 27), (27, 29)], [(40, 42), (42, 45)]]
    every = {tuple(map(tuple, last(draw(GivenPairs(negatives=2), window, seed)))) for seed in range(40)}
    rest = ((53, 54), (54, 56), (56, 59))
    assert every == {((45, 49), (49, 53), a, b) for a, b in (rest[:2], rest[1:], rest[::2])}
    none = draw(GivenPairs(negatives=0), window)
    assert pairs(none) == [(0, 3, 3, 17), (40, 42, 42, 45), (45, 49, 49, 53)] and none.negatives == 0
    assert len(draw(GivenPairs(), [])) == 0


def bounds(sequences: Sequences) -> list[tuple[int, int]]:
    return list(zip(sequences.offsets[:-1].tolist(), sequences.offsets[1:].tolist(), strict=True))


def last(sequences: Sequences) -> list[list[int]]:
    start, end = bounds(sequences)[-1]
    return np.stack((sequences.starts[start:end], sequences.ends[start:end]), 1).tolist()


def test_rows_with_negatives_and_their_batch_by_hand() -> None:
    """Rows of two, three and four texts become nine sequences; texts that a row does not have are 0 in the keys."""
    table = documents(("p", "", "a\nb c"), ("q", "", "d\ne\nb c"), ("r", "", "f\ng\nh i j\na"))
    sampling = Sampling(maximum_length=8, pairs=GivenPairs(negatives=2))
    assert (sampling.sequences, sampling.row_length) == (4, 29)
    examples = make_examples(table, TOKENIZER, sampling, seed=0, epoch=0, window=0).sort_by("document_a")
    assert examples["ids"].to_pylist() == [
        [2, 5, 3, 6, 7, 3],
        [2, 8, 3, 9, 3, 6, 7, 3],
        [2, 10, 3, 11, 3, 12, 13, 14, 3, 5, 3],
    ]
    assert examples["negative_lengths"].to_pylist() == [[0, 0], [4, 0], [5, 3]]
    batch = collate(examples)
    assert batch.ids_T.tolist() == [
        *(2, 5, 3, 2, 6, 7, 3),
        *(2, 8, 3, 2, 9, 3, 2, 6, 7, 3),
        *(2, 10, 3, 2, 11, 3, 2, 12, 13, 14, 3, 2, 5, 3),
    ]
    assert batch.offsets.diff().tolist() == [3, 4, 3, 3, 4, 3, 3, 5, 3] and batch.maximum_length == 5
    assert batch.places.tolist() == [0, 1, 4, 5, 6, 8, 9, 10, 11]
    keys = batch.keys.tolist()
    assert [[value == 0 for value in row[3:]] for row in keys] == [[True, True], [False, True], [False, False]]
    assert keys[1][3] == keys[0][1] and keys[2][4] == keys[0][0]
    assert keys[0][2] == parent_hashes(table)[0]
    without = replace(sampling, pairs=GivenPairs(negatives=0))
    plain = make_examples(table, TOKENIZER, without, seed=0, epoch=0, window=0).sort_by("document_a")
    assert plain["negative_lengths"].null_count == 3 and collate(plain).places is None
    assert collate(plain).keys.tolist() == [row[:3] for row in keys]


def test_rows_have_one_separator_after_the_first_text_in_all_vocabularies() -> None:
    """RoBERTa separates a pair with two [SEP], but here each text is a sequence of its own."""
    vocabulary = replace(TOKENIZER.vocabulary, template=TWO_SEPARATORS)
    sampling = Sampling(maximum_length=8, pairs=TitleParagraph(shortest=1))
    made = make_examples(documents(("p", "a", "b c")), CachedTokenizer(vocabulary), sampling, seed=0, epoch=0, window=0)
    assert made["ids"].to_pylist() == [[2, 5, 3, 6, 7, 3]] and made["first_length"].to_pylist() == [3]


def test_names_of_files_are_no_titles() -> None:
    named = [("books/a b.txt", "a b.txt"), ("b.txt:2", "b.txt"), ("b.txt", "B"), ("x.jsonl:3:https://x.org/B", "B")]
    assert own_titles(documents(*((parent, title, "c") for parent, title in named))) == ["", "", "B", "B"]


def test_an_epoch_has_its_own_crops_and_phases() -> None:
    table = documents(*(("p", "", "\n".join(WORDS[n % 9 : n % 9 + 5])) for n in range(40)))
    for kind in (TwoCrops(), AdjacentParagraphs(shortest=1)):
        made = [
            make_examples(table, TOKENIZER, Sampling(pairs=kind), seed=0, epoch=epoch, window=0).sort_by("document_a")
            for epoch in (0, 0, 1)
        ]
        assert made[0].equals(made[1]) and not made[0].equals(made[2])

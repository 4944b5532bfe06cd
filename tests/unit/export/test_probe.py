import math

import pyarrow as pa
import pytest
import torch

from pipeline.batch import collate
from pipeline.config.model import Model
from pipeline.export.probe import difference, padded, probe, probes
from pipeline.text.schema import EXAMPLE


def test_a_batch_is_filled_up_where_the_mask_says_so() -> None:
    rows = [
        {
            "ids": ids,
            "first_length": 2,
            "masked_positions": [],
            "masked_labels": [],
            "not_next": None,
            "document_a": 0,
            "document_b": 0,
        }
        for ids in ([5, 6, 7], [8])
    ]
    assert {
        name: tensor.tolist()
        for name, tensor in padded(collate(pa.Table.from_pylist(rows, schema=EXAMPLE)), Model()).items()
    } == {
        "input_ids": [[5, 6, 7], [8, 0, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "token_type_ids": [[0, 0, 1], [0, 0, 0]],
    }


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(64, [[1], [7, 1, 19], [64, 32]]), (5, [[1], [5, 1, 5], [5, 3]]), (1, [[1], [1, 1, 1], [1, 1]])],
)
def test_probes_are_ragged_and_reach_the_longest(longest: int, lengths: list[list[int]]) -> None:
    assert [batch.offsets.diff().tolist() for batch in probes(Model(maximum_positions=longest), 30)] == lengths


def test_a_probe_has_ids_of_the_vocabulary_and_scores_every_position() -> None:
    batch = probe(Model(), 3, [50, 4])
    assert set(batch.ids_T.tolist()) == {0, 1, 2} and batch.masked_positions_M.tolist() == list(range(54))
    assert batch.segments_T.tolist() == [0] * 25 + [1] * 25 + [0, 0, 1, 1]


def test_a_difference_is_a_share_of_our_largest_value() -> None:
    assert difference(torch.tensor([3.0, -8.0]), torch.tensor([1.0, -8.0])) == 0.25
    assert difference(torch.tensor([0.75]), torch.tensor([0.5])) == 0.25  # below 1 it is the difference itself
    assert math.isnan(difference(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 1.0])))

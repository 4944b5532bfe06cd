"""Records of slots are exchanged between ranks, without a process group."""

import pytest
from torch import Tensor

from pipeline.corpus.order import Cursor
from pipeline.train import slots
from pipeline.train.slots import SlotRecord, exchange


def record(index: int) -> SlotRecord:
    first, last = (Cursor(epoch=1, window=index, row=row, rows_in_window=9) for row in (2, 5))
    return SlotRecord(
        index=index, rows=4, tokens=50 + index, squares=900, masked=index, counts=(index, 4), crc32=2**32 - 1 - index,
        first=first, last=last,
    )  # fmt: skip


@pytest.mark.parametrize(("number", "world"), [(4, 1), (4, 2), (5, 2), (5, 3), (2, 2)])
def test_every_rank_gets_the_records_of_all_slots_in_their_order(
    number: int, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[int, Tensor] = {}

    def all_gather(gathered: list[Tensor], mine: Tensor) -> None:
        sent[rank] = mine
        for place, tensor in enumerate(gathered):
            tensor.copy_(sent.get(place, mine))

    monkeypatch.setattr(slots.dist, "all_gather", all_gather)
    records = [record(index) for index in range(number)]
    for rank in range(world):  # what the later ranks send is not known yet
        exchange(records[rank::world], number, world)
    for rank in range(world):
        assert exchange(records[rank::world][::-1], number, world) == records

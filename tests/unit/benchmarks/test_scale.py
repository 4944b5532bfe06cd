"""Results of the scaling benchmark, computed from small figures whose result is known."""

import pytest

from tests.benchmarks.scale import GPU_TOKENS, StepPace, estimate_for_many_gpus, table


def test_a_line_a_world():
    paces = [
        StepPace(world=1, tokens=10_000, slots=40, blocks=2.5, seconds=10.0, slept=8.0),
        StepPace(world=4, tokens=10_000, slots=40, blocks=4, seconds=4.0, slept=2.0),
    ]
    lines = [line.split() for line in table(paces).splitlines()]
    assert lines[1] == ["1", "1,000", "4.0", "0.2", "80.0%", "50.0", "ms"]
    assert lines[2] == ["4", "2,500", "10.0", "1.0", "50.0%", "50.0", "ms"]


@pytest.mark.parametrize(
    ("gpus", "rows", "blocks", "times"), [(64, 32, 39, "0.4"), (64, 256, 39, "0.4"), (512, 256, 2_500, "25.0")]
)
def test_blocks_that_many_gpus_need(gpus: int, rows: int, blocks: int, times: str):
    # Rows of 100 tokens: 64 GPUs take 32 million tokens a second, which is 320,000 rows, or 10,000 slots of 32, 256 in
    # a block; of 256 rows 32, of 512 ranks 4.
    assert GPU_TOKENS == 500_000
    line = next(
        line.split()
        for line in estimate_for_many_gpus(100.0, 100.0, 128).splitlines()[2:]
        if line.split()[:2] == [str(gpus), str(rows)]
    )
    assert line[5] == f"{blocks:,}" and line[6] == times

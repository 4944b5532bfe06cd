import os
import subprocess
import sys

import pytest

SHAPES = """
from pipeline.command_line.environment import set_torch_defaults
set_torch_defaults()
import torch
def memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1])
layer = torch.nn.Linear(256, 1024).bfloat16()
with torch.inference_mode():
    layer(torch.zeros(1, 256, dtype=torch.bfloat16))
    before = memory()
    for rows in range(2, 450):
        layer(torch.zeros(rows, 256, dtype=torch.bfloat16))
print(memory() - before)
"""


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def grown(capacity: str | None) -> int:
    """Return the KB by which a process grows that multiplies matrices of 450 shapes."""
    environment = {name: value for name, value in os.environ.items() if name not in CACHES}
    environment |= {"OMP_NUM_THREADS": "1"} | (dict.fromkeys(CACHES, capacity) if capacity else {})
    done = subprocess.run([sys.executable, "-c", SHAPES], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.second
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, for /proc")
def test_products_of_many_shapes_are_not_all_kept() -> None:
    chosen = grown("1024")
    if chosen < 30_000:
        pytest.skip("needs a processor whose bfloat16 products are compiled for each shape")
    assert grown(None) < chosen / 2

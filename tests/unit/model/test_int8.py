"""Int8 products: literals worked out by hand, and an encoder against itself in float32."""

import pytest
import torch
from torch import nn

from pipeline.config.model import Model
from pipeline.errors import ConfigError
from pipeline.model.encoder import Encoder
from pipeline.model.int8 import Int8Linear, refuse_int8, rounded, to_int8
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch

SETTINGS = Model(layers=2, width=32, heads=2, feed_forward=64, hidden_dropout=0.0, attention_dropout=0.0)


def test_each_row_has_its_own_scale_and_middle() -> None:
    # The range of the first row is 25.4: its scale is 0.1, its middle 12.7, and (10.04 - 12.7) / 0.1 is rounded to -27.
    # The second row is 1000 times the first, and the third is the first minus 12.7; equal numbers have no range.
    rows = torch.tensor([[25.4, 0.0, 10.04], [25_400.0, 0.0, 10_040.0], [12.7, -12.7, -2.66], [3.0, 3.0, 3.0]])
    found, scales, middles = rounded(rows)
    assert found.dtype == torch.int8 and found.tolist() == [[127, -127, -27]] * 3 + [[0, 0, 0]]
    torch.testing.assert_close(scales[:3], torch.tensor([[0.1], [100.0], [0.1]]))
    torch.testing.assert_close(middles, torch.tensor([[12.7], [12_700.0], [0.0], [3.0]]))


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_whole_numbers_is_exact(bias: bool) -> None:
    linear = nn.Linear(3, 2, bias=bias)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[127.0, -2.0, 3.0], [5.0, 127.0, -7.0]]))
        if bias:
            linear.bias.copy_(torch.tensor([0.5, -0.5]))
    inputs = torch.tensor([[[127.0, 1.0, -127.0], [200.0, -54.0, 3.0]]])  # ranges of 254, with the middles 0 and 73
    found = Int8Linear(linear)(inputs)
    assert found.shape == (1, 2, 2)
    torch.testing.assert_close(found, linear(inputs))


def test_an_encoder_stays_near_float32_and_no_text_depends_on_its_batch() -> None:
    torch.manual_seed(0)
    encoder = Encoder(SETTINGS, VOCABULARY_SIZE).eval()
    batch, alone = make_batch([6, 9, 12], seed=1), make_batch([6], seed=1)
    alone.ids_T.copy_(batch.ids_T[:6])
    with torch.inference_mode():
        wanted = encoder(batch)
        to_int8(encoder.layers)
        found, single = encoder(batch), encoder(alone)
    linears = [module for module in encoder.layers.modules() if isinstance(module, nn.Linear | Int8Linear)]
    assert len(linears) == 2 * 4 and all(isinstance(module, Int8Linear) for module in linears)
    assert isinstance(encoder.pooler, nn.Linear)
    cosines = torch.cosine_similarity(wanted, found, dim=-1)
    assert not torch.equal(wanted, found) and cosines.min() > 0.999
    torch.testing.assert_close(single, found[:6], rtol=0, atol=1e-3)


def test_a_gpu_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_int8(torch.device("cuda"))
    assert str(refused.value) == (
        "placement.precision (int8) needs a CPU, but this process sees a GPU (cuda): use bfloat16, or "
        "placement.device cpu"
    )

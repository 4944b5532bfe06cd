import pytest
import torch

from pipeline.bench.cases import Case, make_batch
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.model.float8 import refuse_float8, to_float8
from pipeline.objectives.masked import MaskedTokens
from pipeline.optim.build import build_optimizer

CPU = torch.device("cpu")
SETTINGS = Model(
    layers=2, width=32, heads=2, feed_forward=64, maximum_positions=24, hidden_dropout=0.0, attention_dropout=0.0
)
CASE = Case(size="tiny", rows=5, length=24, lengths="ragged", attention_dropout=False)


def losses(module: MaskedTokens, steps: int) -> list[float]:
    """The loss of a few steps on one batch, whose 90-odd tokens are no multiple of 16."""
    optimizer, batch, found = build_optimizer(AdamW(learning_rate=1e-3), module), make_batch(CASE, 0), []
    assert batch.tokens % 16
    for _ in range(steps):
        loss = sum(total / count for total, count in module(batch).values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_layers_are_rounded_to_8_bits_and_learn() -> None:
    pytest.importorskip(
        "torchao",
        reason="needs pip install 'bertstream[float8]', which is no part of [test], since transformers imports it "
        "wherever it is",
    )
    whole, rounded = (MaskedTokens(SETTINGS, 30_522, torch.Generator().manual_seed(0)) for _ in range(2))
    names, parameters = list(rounded.state_dict()), [id(parameter) for parameter in rounded.parameters()]
    to_float8(rounded.encoder.layers, emulated=True)
    # A checkpoint and an optimiser see the same parameters.
    assert list(rounded.state_dict()) == names and [id(parameter) for parameter in rounded.parameters()] == parameters
    assert {type(part).__name__ for part in rounded.encoder.layers.modules() if isinstance(part, torch.nn.Linear)} == {
        "Float8Linear"
    }
    assert type(rounded.masked_token_head.dense) is torch.nn.Linear
    wanted, found = losses(whole, 20), losses(rounded, 20)
    assert found != wanted and found == pytest.approx(wanted, rel=0.02)  # 8 bits keep 3 of the fraction
    assert found[-1] < found[0] - 1


def test_refused_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = (
        r"^placement.precision \(float8\) needs an NVIDIA GPU of compute capability 8.9 \(Ada, Hopper\) "
        r"or later, but this is {}: use bfloat16$"
    )
    with pytest.raises(ConfigError, match=lacking.format("a CPU")):
        refuse_float8(CPU)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA A100")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    with pytest.raises(ConfigError, match=lacking.format("NVIDIA A100")):
        refuse_float8(torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError,
        match=r"^placement.precision \(float8\) needs torchao: pip install 'bertstream\[float8\]', or use bfloat16$",
    ):
        refuse_float8(torch.device("cuda"))

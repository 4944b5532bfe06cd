import itertools
import math
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch.nn import functional as F

from pipeline.batch import Batch as Rows
from pipeline.batch import collate
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.training import AdamW, Batch, Checkpoints, Evaluation, Lamb, Muon, StableAdamW, Tracking
from pipeline.errors import ConfigError, DataError
from pipeline.optim.build import build_optimizer
from pipeline.saved import checkpoints
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint, loop
from pipeline.train.checkpoint import State
from pipeline.train.loop import check_order, train
from pipeline.train.slots import make_slot
from pipeline.train.step import StepContext, backward
from tests.conftest import FAMILIES, of_family, tiers

LOSSES = (
    "train/loss",
    "train/mlm_loss",
    "train/nsp_loss",
    "train/replaced_loss",
    "train/gradient_norm",
    "stream/rows_crc32",
    "stream/tokens",
    "train/learning_rate",
)
Logged = dict[int, dict[str, float]]


def counts_by_term(batch: Rows) -> dict[str, int]:
    return {"mlm": batch.masked, "nsp": batch.sequences}


def losses(logged: Logged) -> dict[int, list[float]]:
    return {
        step: [metrics.get(name, 0.0) for name in LOSSES] for step, metrics in logged.items() if "train/loss" in metrics
    }


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_a_bigbird_with_sparse_attention_learns_and_goes_on_as_if_never_stopped(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """Rows of up to 32 tokens, whose attention is full up to 14 tokens only."""
    config = replace(of_family("bigbird", tiny_config, tiny_vocabulary), checkpoint=Checkpoints(every=3))
    full: Logged = {}
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "full", full, stop_at=2)
    attention = BlockSparseAttention(block_size=2, random_blocks=1)
    config = replace(config, model=replace(config.model, attention=attention))
    sparse: Logged = {}
    training.run(config, tmp_path / "sparse", sparse)
    assert full[1]["stream/rows_crc32"] == sparse[1]["stream/rows_crc32"]
    assert abs(full[1]["train/loss"] - sparse[1]["train/loss"]) > 1e-5
    assert sparse[12]["heldout/mlm_loss"] < sparse[0]["heldout/mlm_loss"] - 0.2
    stopped: Logged = {}
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "stopped", stopped, stop_at=9)
    training.run(config, tmp_path / "stopped", stopped)
    assert losses(stopped) == losses(sparse)


def test_the_loop_trains_to_its_last_step_and_leaves_a_checkpoint_there(
    training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    logged: Logged = {}
    blocks = training.blocks(tiny_config)
    state, _ = training.run(tiny_config, tmp_path, logged, iter(blocks))
    assert sorted(logged) == list(range(13)) and sorted(losses(logged)) == list(range(1, 13))
    assert state.step == 12 and checkpoint.read_state(checkpoints.folder_of(str(tmp_path), 12)) == state
    assert state.tokens == sum(len(ids) for block in blocks[:48] for ids in block["ids"].to_pylist())
    last = blocks[47].to_pylist()[-1]
    assert (state.cursor.epoch, state.cursor.window, state.cursor.row) == (last["epoch"], last["window"], last["row"])
    assert state.interval == {} and logged[12]["train/loss"] < logged[1]["train/loss"]
    assert state.heldout_before == logged[0] and logged[12]["heldout/mlm_loss"] < logged[0]["heldout/mlm_loss"]


def test_learning_rates_by_hand(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    # 2e-3 at its peak; 0.2 of 12 steps are 2 of warm-up: 1/2, 2/2, then (12 - step) / 10.
    logged: Logged = {}
    training.run(tiny_config, tmp_path, logged)
    rates = [logged[step]["train/learning_rate"] for step in (1, 2, 3, 4, 12)]
    assert rates == pytest.approx([1e-3, 2e-3, 2e-3, 1.8e-3, 2e-4])


@tiers("family_config", first=("bert", "electra"), second=FAMILIES)
def test_a_stopped_run_goes_on_exactly_as_if_never_stopped(training, family_config: Pretrain, tmp_path: Path) -> None:
    # Checkpoints after 5 and 10 steps and points every 3: the mean of steps 4 to 6 is begun before the stop and ended
    # after it.
    config = replace(family_config, checkpoint=Checkpoints(every=5), tracking=Tracking(every=3))
    whole: Logged = {}
    state, module = training.run(config, tmp_path / "whole", whole)
    first: Logged = {}
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "stopped", first, stop_at=9)
    second: Logged = {}
    resumed, again = training.run(config, tmp_path / "stopped", second)
    assert sorted(losses(first)) == [3, 6] and sorted(losses(second)) == [6, 9, 12]
    assert losses(second) == {step: losses(whole)[step] for step in (6, 9, 12)}
    assert (resumed.step, resumed.cursor, resumed.crc32, resumed.tokens) == (
        state.step,
        state.cursor,
        state.crc32,
        state.tokens,
    )
    assert resumed.heldout_before == state.heldout_before
    assert_same_weights(module, again)


def test_a_clock_that_jumps_changes_nothing(
    training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, whole, jumping = replace(tiny_config, checkpoint=Checkpoints(every=5)), {}, {}
    state, module = training.run(config, tmp_path / "whole", whole)
    readings = itertools.cycle([0.0, 4e9, 1.0, 2e9, -1.0])
    monkeypatch.setattr(time, "time", lambda: next(readings))
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "jumping", {}, stop_at=9)
    again, other = training.run(config, tmp_path / "jumping", jumping)
    assert losses(jumping) == {step: losses(whole)[step] for step in range(6, 13)} and again.cursor == state.cursor
    assert (
        checkpoints.steps_saved(str(tmp_path / "jumping"))
        == checkpoints.steps_saved(str(tmp_path / "whole"))
        == [5, 10, 12]
    )
    assert_same_weights(module, other)


def test_another_seed_gives_other_rows_and_losses(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(tiny_config, steps=2)
    one, other = {}, {}
    training.run(config, tmp_path / "0", one)
    training.run(replace(config, seed=1), tmp_path / "1", other)
    assert (
        one[1]["stream/rows_crc32"] != other[1]["stream/rows_crc32"] and one[1]["train/loss"] != other[1]["train/loss"]
    )


@tiers("family_config", first=("bert", "electra"), second=FAMILIES)
def test_evaluations_and_checkpoints_change_nothing(training, family_config: Pretrain, tmp_path: Path) -> None:
    config = replace(family_config, steps=4)
    plain, busy = {}, {}
    _, module = training.run(config, tmp_path / "plain", plain)
    busier = replace(config, evaluation=Evaluation(every=1, rows=40), checkpoint=Checkpoints(every=1, keep=2))
    _, other = training.run(busier, tmp_path / "busy", busy)
    assert losses(plain) == losses(busy)
    assert_same_weights(module, other)
    assert all("heldout/mlm_loss" in busy[step] for step in range(5))
    assert checkpoints.steps_saved(str(tmp_path / "busy")) == [3, 4]


def test_a_run_is_evaluated_at_least_ten_times_where_nothing_is_set(
    training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    logged: Logged = {}
    training.run(replace(tiny_config, steps=23, evaluation=Evaluation(rows=4)), tmp_path, logged)
    assert [step for step in logged if "heldout/mlm_loss" in logged[step]] == [0, *range(2, 23, 2), 23]


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ([1, 0, 2, 3], "slot 0 starts at epoch 0, window 0, row 4, which does not follow the start of the stream"),
        ([0, 1, 3, 2], "slot 2 starts at epoch 0, window 0, row 12, which does not follow epoch 0, window 0, row 7"),
        ([0, 0, 1, 2], "slot 1 starts at epoch 0, window 0, row 0, which does not follow epoch 0, window 0, row 3"),
    ],
)
def test_rows_out_of_order_are_refused(
    training, tiny_config: Pretrain, tmp_path: Path, order: list[int], problem: str
) -> None:
    blocks = training.blocks(tiny_config)
    records = [make_slot(blocks[number], place, counts_by_term).record for place, number in enumerate(order)]
    with pytest.raises(DataError) as refused:
        check_order(State(), records, 0)
    assert (
        str(refused.value)
        == f"step 0 got rows out of order ({problem}) and was not trained. Run the same command again"
    )
    logged: Logged = {}
    with pytest.raises(DataError, match="^step 0 got rows out of order"):
        training.run(tiny_config, tmp_path, logged, iter([blocks[number] for number in order]))
    assert losses(logged) == {} and checkpoints.steps_saved(str(tmp_path)) == []


def test_a_later_step_out_of_order_is_refused_with_its_number(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    blocks = training.blocks(tiny_config)
    del blocks[8]
    logged: Logged = {}
    with pytest.raises(DataError, match="^step 2 got rows out of order"):
        training.run(tiny_config, tmp_path, logged, iter(blocks))
    assert sorted(losses(logged)) == [1, 2]


def test_a_stream_that_ends_early_is_refused(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^the stream ended at step 3 of 12: the corpus yields no more examples$"):
        training.run(tiny_config, tmp_path, {}, iter(training.blocks(tiny_config)[: 3 * 4 + 3]))


@pytest.mark.parametrize("rows", [3, 5])
def test_a_slot_of_a_wrong_size_is_refused(training, tiny_config: Pretrain, tmp_path: Path, rows: int) -> None:
    whole = pa.concat_tables(training.blocks(tiny_config)[:2])
    with pytest.raises(DataError, match=f"^step 0: a slot came with {rows} rows instead of 4$"):
        training.run(tiny_config, tmp_path, {}, iter([whole.slice(0, rows)]))


def test_a_loss_that_is_no_number_ends_the_run(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    module = training.module(tiny_config)
    with torch.no_grad():
        module.encoder.pooler.bias.fill_(math.nan)
    work = training.work(tiny_config, tmp_path, {})
    with pytest.raises(ConfigError) as refused:
        train(work, iter(training.blocks(tiny_config)), module, build_optimizer(tiny_config.optimizer, module), State())
    assert str(refused.value) == (
        "the gradient of step 1 is not finite, so this step did not change the weights: "
        "lower optimizer.learning_rate (0.002) and start under another --name, "
        f"or skip such steps with on_nonfinite skip; the rows of step 1 are shown by jobs/show.py seen {tmp_path} 1"
    )
    assert checkpoints.steps_saved(str(tmp_path)) == []


class Spoilt(torch.nn.Module):
    """An objective whose loss is infinite in some of its forwards."""

    def __init__(self, inner: torch.nn.Module, calls: set[int]) -> None:
        super().__init__()
        self.inner, self.calls, self.call = inner, calls, 0

    def forward(self, batch):
        terms = self.inner(batch)
        self.call += 1
        return {
            name: (total * math.inf, count) if self.call in self.calls else (total, count)
            for name, (total, count) in terms.items()
        }


def run_spoilt(
    training, config: Pretrain, folder: Path, calls: set[int], monkeypatch: pytest.MonkeyPatch
) -> tuple[Logged, torch.nn.Module]:
    logged: Logged = {}
    module = training.module(config)
    monkeypatch.setattr(loop, "distributed", lambda module, device, world, reduce_precision: Spoilt(module, calls))
    train(
        training.work(config, folder, logged),
        iter(training.blocks(config)),
        module,
        build_optimizer(config.optimizer, module),
        State(),
    )
    return logged, module


def test_steps_without_a_finite_gradient_are_skipped_and_counted(
    training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Steps of four slots: the second forward of step 2 and the last of step 3.
    config = replace(tiny_config, steps=6, tracking=Tracking(every=3), on_nonfinite="skip")
    logged, module = run_spoilt(training, config, tmp_path, {6, 12}, monkeypatch)
    assert logged[3]["train/nonfinite_steps"] == 2 and "train/nonfinite_steps" not in logged[6]
    plain: Logged = {}
    training.run(replace(config, steps=6, tracking=Tracking(every=1)), tmp_path / "plain", plain)
    assert logged[3]["train/loss"] == pytest.approx(plain[1]["train/loss"], rel=1e-6)
    assert all(parameter.isfinite().all() for parameter in module.parameters()) and math.isfinite(
        logged[6]["train/loss"]
    )


def test_the_loop_asks_for_the_chosen_precision_of_reduction(
    training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def distributed(
        module: torch.nn.Module, device: torch.device, world: int, reduce_precision: str
    ) -> torch.nn.Module:
        asked.append(reduce_precision)
        return module

    monkeypatch.setattr(loop, "distributed", distributed)
    batch = replace(tiny_config.batch, reduce_precision="bfloat16")
    training.run(replace(tiny_config, steps=1, batch=batch), tmp_path, {})
    assert asked == ["bfloat16"]


def test_skipping_has_an_end(training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_SKIPPED", 3)
    with pytest.raises(
        ConfigError,
        match=r"^4 steps in a row, up to step 5, have no finite gradient: lower optimizer.learning_rate "
        r"\(0.002\) and start under another --name; the rows of step 5 are",
    ):
        run_spoilt(
            training,
            replace(tiny_config, on_nonfinite="skip", tracking=Tracking(every=5)),
            tmp_path,
            set(range(5, 100)),
            monkeypatch,
        )


def test_a_gradient_that_is_not_finite_leaves_no_later_checkpoint(
    training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny_config, tracking=Tracking(every=100), checkpoint=Checkpoints(every=2))
    with pytest.raises(ConfigError, match="^the gradient of step 3 is not finite"):
        run_spoilt(training, config, tmp_path, {9}, monkeypatch)
    assert checkpoints.steps_saved(str(tmp_path)) == [2]


def test_layers_computed_anew_give_the_same_losses(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(tiny_config, steps=3)
    plain: Logged = {}
    training.run(config, tmp_path / "plain", plain)
    logged: Logged = {}
    module = training.module(config)
    module.encoder.recompute = True
    train(
        training.work(config, tmp_path / "anew", logged),
        iter(training.blocks(config)),
        module,
        build_optimizer(config.optimizer, module),
        State(),
    )
    assert losses(logged) == losses(plain)


def gradients(training, config: Pretrain, sizes: list[int]) -> dict[str, torch.Tensor]:
    """Gradients of the first 16 rows, dealt in slots of these sizes."""
    rows = pa.concat_tables(training.blocks(config)[:4])
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    slots = [
        make_slot(rows.slice(start, size), place, counts_by_term)
        for place, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]
    counts = {"mlm": sum(slot.record.masked for slot in slots), "nsp": 16}
    module = training.module(config)
    compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
    backward(module, [(slot.record.index, slot.batch) for slot in slots], counts, compute, step=0)
    return {name: parameter.grad for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("sizes", [[16], [8, 8], [4, 4, 4, 4], [1, 13, 2]])
def test_the_gradient_is_that_of_the_mean_loss_however_rows_are_dealt(
    training, without_dropout: Pretrain, sizes: list[int]
) -> None:
    module = training.module(without_dropout)
    batch = collate(pa.concat_tables(training.blocks(without_dropout)[:4]))
    hidden_T = module.encoder(batch)
    loss = F.cross_entropy(module.masked_logits(hidden_T, batch), batch.masked_labels_M)
    (loss + F.cross_entropy(module.pair_logits(hidden_T, batch), batch.not_next_N)).backward()
    dealt = gradients(training, without_dropout, sizes)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(dealt[name], parameter.grad, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("chosen", [AdamW(), Lamb(), StableAdamW(), Muon()])
@pytest.mark.parametrize("family_config", ["roberta", "electra"], indirect=True)
def test_steps_without_masked_tokens_have_no_masked_loss_and_go_on(
    training, family_config: Pretrain, tmp_path: Path, chosen: AdamW
) -> None:
    """Steps of one row, in which whole words may all be longer than what may be masked."""
    config = replace(family_config, steps=4, batch=Batch(rows_per_step=1, rows_per_slot=1), optimizer=chosen)
    blocks, logged = training.blocks(config)[:4], {}
    for step in (0, 2):
        for name in ("masked_positions", "masked_labels"):
            place, kind = blocks[step].column_names.index(name), blocks[step].schema.field(name)
            blocks[step] = blocks[step].set_column(place, kind, pa.array([[]], kind.type))
    _, module = training.run(config, tmp_path, logged, iter(blocks))
    assert [step for step in range(1, 5) if "train/mlm_loss" in logged[step]] == [2, 4]
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_dropout_depends_on_seed_step_and_slot(training, tiny_config: Pretrain) -> None:
    slot = make_slot(training.blocks(tiny_config)[0], 0, counts_by_term)
    other = make_slot(training.blocks(tiny_config)[0], 1, counts_by_term)
    module, counts = training.module(tiny_config), {"mlm": slot.record.masked, "nsp": 4}

    def loss(slot, seed: int, step: int) -> float:
        autocast = torch.autocast("cpu", enabled=False)
        compute = StepContext(device=torch.device("cpu"), autocast=autocast, seed=seed)
        return backward(module, [(slot.record.index, slot.batch)], counts, compute, step=step)["mlm"].item()

    assert loss(slot, 0, 0) == loss(slot, 0, 0)
    assert len({loss(slot, 0, 0), loss(slot, 1, 0), loss(slot, 0, 1), loss(other, 0, 0)}) == 4


def test_a_run_on_a_cpu_has_no_graphs(training, tiny_config, tmp_path):
    with pytest.raises(
        ConfigError, match=r"^placement.graphs \(on\) needs a GPU, but the device of worker 0 is cpu: set placement"
    ):
        training.run(replace(tiny_config, placement=replace(tiny_config.placement, graphs="on")), tmp_path, {})

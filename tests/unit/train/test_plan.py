"""The plan of a run against figures worked out by hand, and a price table with mistakes in it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import pretrain
from pipeline.config.data import GivenPairs, Sampling, Sentences, TokenMasking, TwoCrops
from pipeline.config.objective import Contrastive, DistilledVectors
from pipeline.config.phases import FallingMasks, OnePhase
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.config.workers import worker_range
from pipeline.errors import ConfigError
from pipeline.objectives.contrastive import vectors_text
from pipeline.presets.bert import bert, small_model
from pipeline.presets.table import PRESETS
from pipeline.reporting import estimate
from pipeline.saved.naming import with_name
from pipeline.train.plan import (
    FILL,
    STREAM_BLOCKS,
    Gradients,
    Machine,
    dollars,
    gradient_wait_seconds,
    gradients_of,
    imbalance,
    loads,
    parameters,
    plan_text,
    read_prices,
    run_seconds,
    run_seconds_with_stream,
    stream_seconds,
    worlds_to_show,
)

ROW = {"chip": '"A100"', "gpus": "8", "cpus": "96", "on_demand": "22.0", "spot": "13", "utilisation": "0.5"}
ROW |= {"network_gigabits": "400", "link_gigabytes": "100"}


def prices(folder: Path, **changes: str | None) -> Path:
    path = folder / "prices.toml"
    path.write_text(
        "[box]\n" + "\n".join(f"{key} = {value}" for key, value in (ROW | changes).items() if value is not None)
    )
    return path


def test_parameters_are_those_of_the_published_models():
    assert parameters(PRESETS["bert-base"]) == 110_106_428  # BertForPreTraining of bert-base-uncased
    assert parameters(PRESETS["bert-large"]) == 336_226_108


def test_the_published_recipe_has_two_phases():
    short, long = loads(PRESETS["bert-base"])
    assert (short.rows, long.rows) == (900_000 * 256, 100_000 * 256)
    assert long.tokens == pytest.approx(FILL * 512 * long.rows)
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072)
    attention = 2 * 12 * 768 * FILL * 512
    head = 0.15 * (768**2 + 30_522 * 768)
    assert long.flops / long.tokens == pytest.approx(6 * (layers + attention + head), rel=1e-6)


def test_a_warming_batch_has_fewer_rows():
    config = bert(2, 128, 2, small_model(10, 1e-3))
    warming = Batch(rows_per_step=8, rows_per_slot=2, warmup_steps=3, warmup_rows=2)
    assert [load.rows for load in loads(replace(config, batch=warming))] == [2 * (1 + 2 + 3) + 7 * 8]


def test_short_times_and_small_amounts_are_not_nought():
    assert (dollars(0.137), dollars(9.5), dollars(12_345.6)) == ("$0.14", "$9.50", "$12,346")


@pytest.mark.parametrize(
    ("slots", "world", "share"), [(8, 1, 0), (8, 4, 0), (8, 5, 0.25), (8, 7, 0.75), (8, 8, 0), (64, 48, 0.5)]
)
def test_a_step_waits_for_the_rank_with_most_slots(slots: int, world: int, share: float):
    assert imbalance(slots, world) == pytest.approx(share)


def machine(flops: float = 1e12, gpus: int = 8, network: float = 400.0, link: float | None = 100.0) -> Machine:
    """GPUs that do so many operations per second."""
    price = {"on_demand": 22.0, "spot": 13.0}
    bandwidths = {"network_gigabits": network, "link_gigabytes": link}
    return Machine(name="box", chip="A100", gpus=gpus, cpus=96, utilisation=flops / 312e12, **price, **bandwidths)


NONE_SENT = Gradients(count=0, last=0, overlapped=False)


def test_time_is_arithmetic_and_uneven_slots():
    work = list(loads(PRESETS["bert-mini"]))
    flops = sum(load.flops for load in work)
    assert run_seconds(work, 4, machine(), NONE_SENT) == pytest.approx(flops / 4e12)
    assert run_seconds(work, 5, machine(), NONE_SENT) == pytest.approx(flops / 5e12 * 1.25)


def test_gradients_take_the_slower_of_links_and_network_that_they_pass():
    gradients = Gradients(count=100_000_000, last=25_000_000, overlapped=False)
    assert (gradients.bytes_sent(1), gradients.bytes_sent(2), gradients.bytes_sent(8)) == (0, 4e8, 7e8)
    assert gradients.seconds(1, machine()) == 0
    assert gradients.seconds(8, machine(network=1.0)) == pytest.approx(7e8 / 100e9)  # within one machine
    assert gradients.seconds(8, machine(gpus=4, network=40.0)) == pytest.approx(7e8 / 5e9)
    assert gradients.seconds(8, machine(gpus=4, network=4000.0)) == pytest.approx(7e8 / 100e9)
    assert gradients.seconds(2, machine(gpus=1, network=8.0, link=None)) == pytest.approx(4e8 / 1e9)


def test_gradient_traffic_overlaps_the_last_backward_except_embeddings():
    sent = Gradients(count=100_000_000, last=25_000_000, overlapped=True)
    box = machine(flops=1e12, gpus=4, network=40.0)  # 0.14 s of gradients for 8 workers
    assert sent.wait(8, box, slot_flops=0.03e12) == pytest.approx(0.14 - 0.02)  # two thirds of a slot are its backward
    assert sent.wait(8, box, slot_flops=3e12) == pytest.approx(0.14 / 4)
    assert replace(sent, overlapped=False).wait(8, box, slot_flops=3e12) == pytest.approx(0.14)


def test_gradients_in_bfloat16_are_half_of_the_traffic():
    config = PRESETS["bert-mini"]
    half = gradients_of(replace(config, batch=replace(config.batch, reduce_precision="bfloat16")))
    assert half.bytes_sent(8) == gradients_of(config).bytes_sent(8) / 2 > 0


def test_gradients_are_sent_once_per_step_and_compiled_code_that_recomputes_hides_none():
    recomputed = replace(PRESETS["bert-mini"], placement=Placement(recompute=True))
    (load,) = loads(recomputed)
    gradients = gradients_of(recomputed)
    assert gradients.count == parameters(PRESETS["bert-mini"]) and not gradients.overlapped
    assert gradients.last == (30_522 + 512 + 2 + 2) * 256
    assert gradients_of(PRESETS["deberta-v3-xsmall"]).last == 2 * (128_100 + 2) * 384
    assert gradient_wait_seconds(load, 4, machine(), gradients) == pytest.approx(
        load.phase.end * 1.5 * 4 * gradients.count / 100e9
    )
    whole = load.flops / 4e12 + gradient_wait_seconds(load, 4, machine(), gradients)
    assert run_seconds([load], 4, machine(), gradients) == pytest.approx(whole)
    eager = replace(PRESETS["bert-mini"], placement=Placement(compile="off", recompute=True))
    assert gradients_of(eager).overlapped and gradients_of(PRESETS["bert-mini"]).overlapped
    recorded = replace(PRESETS["bert-mini"], workers=4, placement=Placement(graphs="on"))
    assert not gradients_of(recorded).overlapped
    assert "sent per step by each worker after its last slot, which is recorded in a CUDA graph" in plan_text(
        recorded, []
    )


def test_launching_takes_the_time_of_small_slots_in_eager_code():
    base = replace(PRESETS["bert-base"], phases=OnePhase())
    batch = replace(base.batch, rows_per_slot=32)
    (small,) = loads(replace(base, batch=batch, placement=Placement(compile="off")))
    assert small.slot_seconds == pytest.approx(0.0237, rel=0.02)  # the step that was measured
    slots = small.rows / 32
    assert run_seconds([small], 1, machine(1e18), NONE_SENT) == pytest.approx(slots * small.slot_seconds)
    assert run_seconds([small], 1, machine(1e12), NONE_SENT) == pytest.approx(small.flops / 1e12)
    (compiled,) = loads(replace(base, batch=batch))
    assert compiled.slot_seconds == 0


def test_base_on_eight_l4s_of_two_machines_waits_for_its_gradients():
    """One slot each: arithmetic takes a quarter of the time; 8 H100s in one machine send most gradients meanwhile."""
    work, gradients = list(loads(PRESETS["bert-base"]))[:1], gradients_of(PRESETS["bert-base"])
    found = {
        box.name: run_seconds(work, 8, box, gradients) / run_seconds(work, 8, box, NONE_SENT) for box in read_prices()
    }
    assert 3 < found["AWS g6.12xlarge"] < 4.5 and 1.1 < found["AWS p5.48xlarge"] < 1.2


def test_a_slow_stream_determines_the_estimated_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The published recipe has 900,000 steps of 8 slots, then 100,000 of 32, with 64 slots per block; arithmetic alone
    may bound the second phase.
    """
    work = list(loads(PRESETS["bert-base"]))
    streamed = (900_000 * 8 + 100_000 * 32) / 64 / STREAM_BLOCKS
    assert run_seconds_with_stream(work, 8, machine(1e18), NONE_SENT) == pytest.approx(streamed)
    between = work[1].flops / (8 * 100_000 * 32 / 64 / STREAM_BLOCKS) / 2
    short, long = (load.flops / (8 * between) for load in work)
    expected = max(short, 900_000 * 8 / 64 / STREAM_BLOCKS) + long
    assert run_seconds_with_stream(work, 8, machine(between), NONE_SENT) == pytest.approx(expected)
    monkeypatch.setattr("pipeline.train.plan.STREAM_BLOCKS", 5)
    config = with_name(replace(PRESETS["bert-base"], workers=8), "bert-base")
    fast, slow = read_prices(prices(tmp_path)), [replace(read_prices(prices(tmp_path))[0], utilisation=1e-4)]
    (bound,), (free,) = (
        [line for line in plan_text(config, found).splitlines() if line.startswith("  box")] for found in (fast, slow)
    )
    assert f" to {estimate(sum(stream_seconds(load, 8) for load in work))}* " in bound and "*" not in free


def test_a_run_that_takes_seconds_has_no_rows_of_zeros(tmp_path: Path) -> None:
    """38,400 rows of bert-tiny take less than a minute on each GPU, and cents."""
    config = with_name(PRESETS["bert-tiny"], "bert-tiny")
    text = plan_text(config, read_prices(prices(tmp_path)))
    assert "  rented GPUs (A100): less than a minute, at most $0.02 by pipeline/prices.toml" in text.splitlines()
    assert " 0%" not in text and "$0.00" not in text and " 0.00" not in text and "not sent" not in text
    assert "on 1 worker;" in text and "a GPU" not in text and "launch" not in text, "no GPU here, and none to rent"
    assert "a step has 2 slots of 32 rows, which 1, 2 workers share evenly" in text
    small = replace(config, batch=Batch(rows_per_step=64, rows_per_slot=32))
    here = plan_text(small, [], [("this machine", "fast")], gpus_here=True)
    rented = replace(read_prices(prices(tmp_path))[0], utilisation=1e-4)
    assert "on 1 worker;" in plan_text(config, [rented]), "GPUs to rent, but none here"
    assert "on 1 GPU worker;" in here and "  this machine  fast" in here.splitlines() and "gives a GPU" in here


def test_every_number_of_workers_that_is_asked_for_is_shown():
    assert (
        worlds_to_show(16, worker_range("2..7")) == [1, 2, 3, 4, 5, 6, 7, 8, 16]
        and worlds_to_show(16, worker_range(16)) == [1, 2, 4, 8, 16]
        and worlds_to_show(4, worker_range(1)) == [1, 2, 3, 4]
    )


def test_cost_is_machines_times_hours_times_price(tmp_path: Path):
    config = with_name(PRESETS["bert-mini"], "bert-mini")
    (box,) = read_prices(prices(tmp_path))
    work = list(loads(config))
    hours = sum(load.flops for load in work) / (0.5 * 312e12) / 3600
    line = next(line for line in plan_text(config, [box]).splitlines() if line.startswith("  box"))
    assert estimate(3600 * hours) in line and dollars(22 * hours) in line and dollars(13 * hours) in line
    steps, slots = config.steps, config.batch.slots_per_step
    assert f" {steps * slots / 16 / hours / 3600:,.0f} " in line
    assert dollars(22 * hours / work[0].tokens * 1e9) in line and " $22 / $13 " in line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chip": '"A1000"'}, r"box.chip \(A1000\) must be one of H100 SXM"),
        ({"gpus": "1.5"}, r"box.gpus \(1.5\) must be a whole number above 0"),
        ({"spot": "0"}, r"box.spot \(0\) must be a number above 0"),
        ({"spot": '"1"'}, r"box.spot \('1'\) must be a number above 0"),
        ({"utilisation": "30.0"}, r"box.utilisation \(30.0\) must be at most 1: it is a share of the peak"),
        (
            {"cpus": None},
            r"box must have the keys .*, utilisation, network_gigabits, link_gigabytes, but has chip, gpus, "
            r"on_demand, ",
        ),
        ({"gpus": "1"}, "box must have the keys .*, utilisation, network_gigabits, but has .*, link_gigabytes$"),
        ({"network_gigabits": "0"}, r"box.network_gigabits \(0\) must be a number above 0"),
        ({"chip": "A100"}, "is not valid TOML"),
    ],
)
def test_a_price_table_with_a_mistake_is_one_line(tmp_path: Path, changes: dict[str, str | None], message: str):
    with pytest.raises(ConfigError, match=message) as refused:
        read_prices(prices(tmp_path, **changes))
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="is missing"):
        read_prices(tmp_path / "other.toml")


def test_the_job_prints_the_plan_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipeline.train.few_steps.free_memory", lambda device: 1_000_000_000)
    assert pretrain.main(["bert-base", "--workers", "8", "--plan"]) == 0
    text = capsys.readouterr().out
    assert "110.1 M" in text and "AWS p5.48xlarge" in text and "  7                1 to 2" in text
    assert re.search(
        r"  this machine +not measured: its weights, gradients .* need about 1\.\d GB, and 1\.0 GB of", text
    )
    assert list(tmp_path.iterdir()) == []
    assert pretrain.main(["bert-base", "--workers", "9", "--batch.rows-per-slot", "32", "--plan"]) == 2
    assert "workers (9) must be at most the slots of a step (8" in capsys.readouterr().err


def test_a_plan_for_vectors_of_a_teacher_counts_sentences_and_the_projection() -> None:
    """38,400 rows of one to three sentences, on average two of 29.4 tokens; width 128 to 384."""
    config = replace(PRESETS["bert-tiny"], objective=DistilledVectors(), sampling=Sampling(pairs=Sentences(most=3)))
    wide = replace(config, objective=DistilledVectors(teacher_width=384))
    assert parameters(wide) - parameters(config) == 128 * 384 + 384
    lines = plan_text(with_name(config, "bert-tiny"), [machine()]).splitlines()
    facts = {name: " ".join(words) for name, *words in (line.split() for line in lines[1:] if line.strip())}
    assert facts["tokens"] == (
        "about 2.26 million in 38,400 rows; rows of English Wikipedia's sentences have about 59 tokens"
    )
    assert facts["teacher"] == "its operations and its memory are not counted"
    assert next(loads(config)).tokens == pytest.approx(38_400 * 2 * 29.4)
    for length, tokens in ((512, 2 * 29.4), (32, FILL * 32)):  # a longer maximum does not make longer sentences
        other = replace(config.sampling, maximum_length=length)
        assert next(loads(replace(config, sampling=other))).tokens == pytest.approx(38_400 * tokens, rel=1e-5)


def test_a_contrastive_plan_has_two_texts_per_row_and_counts_vectors() -> None:
    """600 steps of 64 rows of two texts, which are 0.59 of 128 tokens long."""
    config = replace(PRESETS["bert-tiny"], objective=Contrastive(), sampling=Sampling(pairs=TwoCrops()))
    lines = plan_text(with_name(config, "bert-tiny"), [machine()]).splitlines()
    facts = {name: " ".join(words) for name, *words in (line.split() for line in lines[1:] if line.strip())}
    assert facts["tokens"].startswith("about 5.80 million in 38,400 rows of two texts; ")
    assert facts["tokens"].endswith("fill 59% of a sequence's length")
    assert facts["operations"].endswith("matrix products, two forward passes and a backward, without similarities")
    assert facts["vectors"] == vectors_text(64, 128)
    given = replace(config, sampling=Sampling(pairs=GivenPairs(negatives=3)))
    lines = plan_text(with_name(given, "bert-tiny"), [machine()]).splitlines()
    facts = {name: " ".join(words) for name, *words in (line.split() for line in lines[1:] if line.strip())}
    assert facts["tokens"] == (  # 38,400 rows of 5 x 128 tokens
        "about 24.58 million in 38,400 rows of two texts; at most: rows are counted with two full texts and 3 hard "
        "negatives"
    )
    assert facts["vectors"] == vectors_text(64, 128, 3)


def test_a_plan_says_the_masks_of_phases_that_differ_in_nothing_else() -> None:
    masking = TokenMasking(share=0.3)
    config = replace(PRESETS["bert-tiny"], sampling=Sampling(masking=masking), phases=FallingMasks(), steps=300)
    lines = plan_text(with_name(config, "bert-tiny"), [machine()]).splitlines()
    (steps,) = [line.split(maxsplit=1)[1] for line in lines if line.startswith("  steps")]
    rows = config.batch.rows_per_step
    assert steps == "; ".join(f"100 of {rows} rows at length 128, {share}% masked" for share in (30, 15, 5))
    assert sum("a step has" in line for line in lines) == 1, "one table for phases of the same batch"
    work = list(loads(config))
    assert work[0].flops > work[1].flops > work[2].flops and len({load.tokens for load in work}) == 1
    assert "masked" not in plan_text(with_name(PRESETS["bert-base"], "bert-base"), [machine()]).split("tokens")[0]

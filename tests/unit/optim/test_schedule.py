import typing

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import TwoPhases
from pipeline.config.training import ConstantRate, CosineDecay, LinearDecay, PolynomialDecay, WarmupStableDecay
from pipeline.optim.schedule import SCHEDULES, decay_start, rate_share
from pipeline.saved.naming import GROWS, grows


def test_linear_decay_by_hand() -> None:
    # 2 of 6 steps warm up, then 4 steps go down to a quarter: the next one would be zero.
    shares = [rate_share(LinearDecay(warmup_share=1 / 3), step, 6) for step in range(7)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_constant_rate_by_hand() -> None:
    assert [rate_share(ConstantRate(warmup_steps=4), step, 6) for step in range(6)] == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1]
    )
    assert rate_share(ConstantRate(warmup_steps=0), 0, 1) == 1


def test_cosine_decay_by_hand() -> None:
    # 2 of 8 steps warm up, then half a cosine over 6: (1 + cos(0, 30, 60, 90, 120, 150, 180 degrees)) / 2.
    shares = [rate_share(CosineDecay(warmup_share=0.25), step, 8) for step in range(9)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 0.9330127, 0.75, 0.5, 0.25, 0.0669873, 0.0])


def test_polynomial_decay_by_hand() -> None:
    # 1 of 5 steps warms up, then the roots of 4/4, 3/4, 2/4 and 1/4; with a power of 2 their squares; with 1 the linear
    # decay.
    assert [rate_share(PolynomialDecay(warmup_share=0.2), step, 5) for step in range(6)] == pytest.approx(
        [1, 1, 0.8660254, 0.7071068, 0.5, 0]
    )
    assert [rate_share(PolynomialDecay(warmup_share=0.2, power=2), step, 5) for step in range(5)] == pytest.approx(
        [1, 1, 0.5625, 0.25, 0.0625]
    )
    linear = [rate_share(LinearDecay(warmup_share=0.1), step, 50) for step in range(51)]
    assert [rate_share(PolynomialDecay(warmup_share=0.1, power=1), step, 50) for step in range(51)] == pytest.approx(
        linear
    )


def test_warmup_stable_decay_by_hand() -> None:
    # 2 steps of warm-up; the last 3 of 10 decay: 3/4, 2/4, 1/4, and the next one would be zero.
    shares = [rate_share(WarmupStableDecay(warmup_steps=2, decay_share=0.3), step, 10) for step in range(11)]
    assert shares == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    assert [rate_share(WarmupStableDecay(warmup_steps=0, decay_share=0), step, 3) for step in range(3)] == [1, 1, 1]


def test_the_first_step_is_never_wasted() -> None:
    assert rate_share(LinearDecay(), 0, 1_000_000) > 0
    assert rate_share(LinearDecay(warmup_share=0), 0, 1) == 1


@pytest.mark.parametrize("kind", SCHEDULES)
def test_steps_may_grow_where_the_rates_so_far_stay(kind: type) -> None:
    so_far = [[rate_share(kind(), step, steps) for step in range(450)] for steps in (500, 1000)]
    assert (so_far[0] == so_far[1]) == (kind in GROWS) == grows(Pretrain(steps=500, schedule=kind()))


def test_steps_that_phases_share_may_not_grow() -> None:
    assert not grows(Pretrain(steps=500, schedule=ConstantRate(), phases=TwoPhases()))
    assert decay_start(Pretrain(steps=500, schedule=WarmupStableDecay(), phases=TwoPhases())) is None


def test_every_kind_of_schedule_has_its_function() -> None:
    assert set(SCHEDULES) == set(typing.get_args(typing.get_type_hints(Pretrain)["schedule"]))

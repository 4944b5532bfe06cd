import typing

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.training import ConstantRate, LinearDecay
from pipeline.train.schedule import GROWS, SCHEDULES, rate_share


def test_linear_decay_by_hand() -> None:
    # 2 of 6 steps warm up, then 4 steps go down to a quarter: the next one would be zero.
    shares = [rate_share(LinearDecay(warmup_share=1 / 3), step, 6) for step in range(7)]
    assert shares == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_constant_rate_by_hand() -> None:
    assert [rate_share(ConstantRate(warmup_steps=4), step, 6) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    assert rate_share(ConstantRate(warmup_steps=0), 0, 1) == 1


def test_the_first_step_is_never_wasted() -> None:
    assert rate_share(LinearDecay(), 0, 1_000_000) > 0
    assert rate_share(LinearDecay(warmup_share=0), 0, 1) == 1


def test_a_constant_rate_does_not_depend_on_the_steps() -> None:
    assert ConstantRate in GROWS and LinearDecay not in GROWS
    assert rate_share(ConstantRate(), 50, 100) == rate_share(ConstantRate(), 50, 1000)


def test_every_kind_of_schedule_has_its_function() -> None:
    assert set(SCHEDULES) == set(typing.get_args(typing.get_type_hints(Pretrain)["schedule"]))

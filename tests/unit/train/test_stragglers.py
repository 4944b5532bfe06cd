"""Who is called slow, from forward passes worked out by hand; the timing itself is in the faults' tests."""

import torch

from pipeline.train.stragglers import Stragglers


def test_a_worker_is_named_once_at_its_third_slow_interval():
    watch = Stragglers(torch.nn.Identity(), 0, 1, "worker 0 on here", torch.device("cpu"))
    watch.slow_for, watch.hosts = [0, 0, 0], ["worker 0 on a", "worker 1 on b", "worker 2 on c"]
    lines = [watch.name_straggler([10.0, slow, 12.0]) for slow in (30.0, 30.0, 11.0, 30.0, 30.0, 30.0, 30.0)]
    assert lines == [None] * 5 + [
        "worker 1 on b is slow: its forward passes take 30 ms, those of the other workers 11 ms; every step waits for "
        "this worker",
        None,
    ]


def test_workers_that_are_all_slow_are_nobodys_fault():
    watch = Stragglers(torch.nn.Identity(), 0, 1, "", torch.device("cpu"))
    watch.slow_for, watch.hosts = [0, 0], ["", ""]
    assert [watch.name_straggler([30.0, 29.0]) for _ in range(5)] == [None] * 5
    assert [watch.name_straggler([0.0, 29.0]) for _ in range(5)] == [None] * 5


def test_one_worker_is_not_timed():
    module = torch.nn.Identity()
    with Stragglers(module, 0, 1, "", torch.device("cpu")) as watch:
        module(torch.ones(1))
        assert watch.read() is None and not module._forward_hooks

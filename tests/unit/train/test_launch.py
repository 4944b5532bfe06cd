"""Environment variables for Ray Train, and the memory limit of a stream."""

from dataclasses import replace

from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.corpus.stream import STREAM_BYTES
from pipeline.train.launch import most_of_round, stream_bytes, train_environment


def test_an_elastic_run_does_not_wait_long_for_nodes_that_went():
    config = Pretrain(workers=2, placement=Placement(hang_seconds=33))
    hang = {"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "33"}
    assert train_environment(config) == hang
    assert train_environment(replace(config, workers="2..8")) == hang | {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5"}


def test_a_stream_may_hold_ten_rounds_of_as_many_workers_as_there_may_be():
    few = Pretrain(batch=Batch(rows_per_step=256, rows_per_slot=32), workers=4)
    assert stream_bytes(few) == STREAM_BYTES and most_of_round(few, few.all_phases[0]) == 4 * 32 * 32
    many = replace(few, batch=Batch(rows_per_step=4096, rows_per_slot=32), workers="4..64")
    assert most_of_round(many, many.all_phases[0]) == 64 * 256 * 32
    assert stream_bytes(many) == 10 * 6.25 * 64 * 256 * 32 * 128

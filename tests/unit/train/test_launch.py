"""What Ray Train is told through the environment."""

from dataclasses import replace

from pipeline.config.jobs import Pretrain
from pipeline.config.training import Placement
from pipeline.train.launch import train_environment


def test_an_elastic_run_does_not_wait_long_for_nodes_that_went():
    config = Pretrain(workers=2, placement=Placement(hang_seconds=33))
    hang = {"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "33"}
    assert train_environment(config) == hang
    assert train_environment(replace(config, workers="2..8")) == hang | {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "5"}

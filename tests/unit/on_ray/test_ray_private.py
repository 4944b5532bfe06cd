"""Assumptions about Ray's private names; a failure here names what a new Ray has changed."""

import inspect
import os
import subprocess
import sys
import tomllib
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import ray
from packaging.requirements import Requirement
from ray._private.runtime_env.context import RuntimeEnvContext
from ray._private.workers import setup_worker

from cluster import submit
from cluster.submit import RAYS_LINES
from pipeline.command_line.environment import JOB
from pipeline.on_ray import ray_private, ray_worker
from pipeline.on_ray.heads import address_file
from pipeline.on_ray.stderr_filter import RESTART_WARNING

MINORS = ("2.58", "2.59", "2.60")
"""Versions of Ray on which the tests of this file passed, and those of tests/ray that CONTRIBUTING.md names."""


def test_the_package_takes_the_minors_that_were_tried() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    written = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    ranges = [Requirement(line).specifier for line in written if line.startswith("ray[")]
    untried = ("2.57.9", "2.61.0", "3.0.0")
    assert len(ranges) == 2 and all(ray.__version__ in found for found in ranges)
    assert all(f"{minor}.0" in found for found in ranges for minor in MINORS)
    assert not [version for found in ranges for version in untried if version in found]


def test_a_connection_has_the_attributes_that_are_read() -> None:
    assert hasattr(ray._private.worker, "_global_node")
    node = ray._private.node.Node
    assert isinstance(node.gcs_address, property)
    assert callable(node.get_logs_dir_path)
    assert "self.ray_init_cluster" in inspect.getsource(ray._private.node)


@pytest.mark.parametrize(
    "variables", [{}, {"TMPDIR": "/a"}, {"RAY_TMPDIR": "/b"}, {"TMPDIR": "/a", "RAY_TMPDIR": "/b"}]
)
def test_the_file_with_the_head_s_address_is_where_ray_writes_it(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(address_file()) == ray._private.utils.get_ray_address_file(None)


def test_ray_listens_on_loopback_inside_the_context_and_as_before_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    read = "ray_constants.ENABLE_RAY_CLUSTER"
    modules = (ray._private.services, ray._private.node, ray._private.worker)
    assert any(read in inspect.getsource(module) for module in modules), f"Ray does not read {read} any more"
    before = ray._private.ray_constants.ENABLE_RAY_CLUSTER
    with ray_private.listening_on_loopback():
        assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
        assert ray._private.ray_constants.ENABLE_RAY_CLUSTER is False
        assert ray._private.services.resolve_ip_for_localhost("localhost") == "127.0.0.1"
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ
    assert before == ray._private.ray_constants.ENABLE_RAY_CLUSTER


def test_ray_takes_the_setup_script_of_its_processes_from_the_constant() -> None:
    script = Path(ray._private.__file__).parent / "workers" / ray._private.ray_constants.SETUP_WORKER_FILENAME
    assert script.is_file()
    with ray_private.light_worker_setup():
        assert Path(script.parent, ray._private.ray_constants.SETUP_WORKER_FILENAME) == Path(ray_worker.__file__)
    assert script.name == ray._private.ray_constants.SETUP_WORKER_FILENAME
    assert "ray_constants.SETUP_WORKER_FILENAME" in inspect.getsource(ray._private.node)


def test_a_process_is_set_up_as_by_ray_s_own_script(tmp_path: Path) -> None:
    """Ray's script adds the variables and runs the other arguments; so does ours, and leaves it to Ray's otherwise."""
    said, python = tmp_path / "said", sys.executable
    report = f"import os, sys; open({str(said)!r}, 'w').write(f'{{os.environ.get(chr(65))}} {{sys.argv[1:]}}')"
    passed = ["-c", report, "--node-ip-address=127.0.0.1", "two  'words'"]
    for variables, ours in (({}, True), ({"A": "b  'c'"}, True), ({"A": "${PATH}/${NONE_SUCH}"}, False)):
        context = RuntimeEnvContext(env_vars=variables)
        given = [*passed, f"--serialized-runtime-env-context={context.serialize()}", "--language=PYTHON"]
        if ours and variables:
            found = []
            for script in (ray_worker.__file__, setup_worker.__file__):
                subprocess.run([python, script, *given], check=True)
                found.append(said.read_text())
            assert found[0] == found[1] and str(passed[2:]) in found[0]
        command, added = ray_worker.worker_command(given)
        assert (command, added) == (
            ([python, *passed], variables) if ours else ([python, setup_worker.__file__, *given], {})
        )
    for other in (RuntimeEnvContext(py_executable="uv run"), RuntimeEnvContext(command_prefix=["nice"])):
        given = [*passed, f"--serialized-runtime-env-context={other.serialize()}", "--language=PYTHON"]
        assert ray_worker.worker_command(given) == ([python, setup_worker.__file__, *given], {})
    for rest in ([], ["--language=JAVA"], ["--serialized-runtime-env-context", "{}", "--language=PYTHON"]):
        assert ray_worker.worker_command([*passed, *rest]) == ([python, setup_worker.__file__, *passed, *rest], {})


def test_the_autoscaler_s_report_has_the_fields_that_are_read() -> None:
    from ray.core.generated.autoscaler_pb2 import ClusterConfig

    group = ClusterConfig(node_group_configs=[{"max_count": 4, "resources": {"GPU": 8}}]).node_group_configs[0]
    assert (group.max_count, dict(group.resources)) == (4, {"GPU": 8})
    assert callable(ray._private.state.state.get_cluster_config)


def test_the_scheduling_loop_calls_back_with_an_executor_of_these_attributes() -> None:
    from ray.data._internal.execution.operators.map_operator import MapOperator
    from ray.data._internal.execution.streaming_executor import StreamingExecutor

    assert list(inspect.signature(ray_private.execution_callback().on_execution_step).parameters) == [
        "self",
        "executor",
    ]
    assert callable(StreamingExecutor._consumer_idling)
    assert "self._topology" in inspect.getsource(StreamingExecutor)
    concrete = type("Concrete", (MapOperator,), {})
    concrete.__abstractmethods__ = frozenset()
    operator = concrete.__new__(concrete)
    operator._output_blocks_stats = [1, 2]
    ray_private.drop_block_statistics(SimpleNamespace(_topology={operator: None, "another": None}))
    assert operator._output_blocks_stats == []
    assert "self._output_blocks_stats" in inspect.getsource(MapOperator)


def test_the_base_of_the_process_group_is_ray_train_s_own() -> None:
    from ray.train.torch import TorchConfig

    assert TorchConfig().backend_cls is ray_private.torch_backend()


def test_cloud_logins_are_among_what_tune_hands_to_trials_and_can_be_kept_from_them() -> None:
    from ray.tune.execution import class_cache

    assert '"AWS_SECRET_ACCESS_KEY"' in inspect.getsource(class_cache)
    class_cache.ENV_VARS_TO_PROPAGATE.add("OF_THIS_TEST")
    ray_private.keep_from_trials(["OF_THIS_TEST", "NEVER_SET"])
    assert "OF_THIS_TEST" not in class_cache.ENV_VARS_TO_PROPAGATE


def test_ray_gives_the_submission_id_to_a_job_in_the_variable_that_is_read() -> None:
    from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
    from ray.dashboard.modules.job import job_supervisor
    from ray.dashboard.modules.job.common import JOB_ID_METADATA_KEY

    assert (RAY_JOB_CONFIG_JSON_ENV_VAR, JOB_ID_METADATA_KEY) == (JOB, "job_submission_id")
    assert '"metadata": self._metadata' in inspect.getsource(job_supervisor)


def test_ray_still_warns_that_actors_of_ray_data_cannot_restart() -> None:
    with open(ray._raylet.__file__, "rb") as library, mmap(library.fileno(), 0, access=ACCESS_READ) as content:
        assert content.find(RESTART_WARNING) >= 0


def test_the_first_lines_of_a_job_s_log_are_those_that_are_left_out() -> None:
    from ray.dashboard.modules.job import job_manager, job_supervisor

    assert 'info("Runtime env is setting up.")' in inspect.getsource(job_manager)
    assert 'f"Running entrypoint for job {self._job_id}: {self._entrypoint}\\n"' in inspect.getsource(job_supervisor)
    log = (
        "2026-11-27 17:07:45,021\tINFO job_manager.py:581 -- Runtime env is setting up.\n"
        "Running entrypoint for job pretrain-1: python jobs/pretrain.py bert-tiny\nstep 1\n"
    )
    assert RAYS_LINES.sub("", log) == "step 1\n"


@pytest.mark.parametrize("error", [ConnectionError("closed"), aiohttp.ServerDisconnectedError("closed")])
def test_a_head_that_ends_while_a_job_is_followed_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def follow(*_: object) -> int:
        raise error

    monkeypatch.setattr(submit, "follow", follow)
    assert submit.main("http://127.0.0.1:1", "pretrain-1", "{}", "{}", "true") == 1
    assert capsys.readouterr().err == "error: the Ray head at http://127.0.0.1:1 does not answer: closed\n"

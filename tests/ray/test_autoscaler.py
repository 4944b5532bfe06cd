"""Ray's autoscaler at work: a head that offers nothing, nodes that come when a run, a fine-tuning or a prediction asks
for them and go when it is done. Ray's own fake provider starts them on this machine.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.autoscaler.v2.sdk import get_cluster_status

from tests.chaos.simulated import RESOURCE, ROOT, Run, compare, free_port, history, program, small_corpus

IDLE_MINUTES = 0.2
PROVIDER = {
    "type": "external",  # Ray's package lacks the file of defaults that its own name for this provider asks for
    "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
    "head_node_id": FAKE_HEAD_NODE_ID,
    "launch_multiple": True,
    "use_node_id_as_ip": True,  # all nodes have this machine's address
    "disable_node_updaters": True,
    "disable_launch_config_check": True,
}
FILLED_IN = (
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "worker_start_ray_commands",
)
"""Settings that Ray's launcher adds to a file, and without which the autoscaler does not start."""
STEPS = 600
HEAD_ALONE = Counter({"ray.head.default": 1})


def node_types(most: int) -> dict[str, object]:
    """Node types as in cluster/aws.yaml: a head without resources, data nodes and trainer nodes, both starting at 0."""
    return {
        "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
        "cpu": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": most},
        "trainer": {"resources": {"CPU": 1, RESOURCE: 1}, "node_config": {}, "min_workers": 0, "max_workers": most},
    }


class AutoscaledSite:
    """A head whose autoscaler starts and ends nodes (`ray.cluster_utils.AutoscalingCluster` would stop every Ray of the
    machine).
    """

    def __init__(self, most: int) -> None:
        subprocess.run([program("ray"), "get-auth-token", "--generate"], check=True, capture_output=True)
        self.temporary = tempfile.mkdtemp(prefix="bs-", dir="/tmp")  # short: Ray puts sockets in it
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        config = {
            "cluster_name": "fake",
            "max_workers": 2 * most,
            "idle_timeout_minutes": IDLE_MINUTES,
            "provider": PROVIDER | {"gcs_address": self.address},
            "available_node_types": node_types(most),
            "head_node_type": "ray.head.default",
            "auth": {},
            "file_mounts": {},
            "upscaling_speed": 1.0,
            **{name: [] for name in FILLED_IN},
        }
        file = Path(self.temporary, "cluster.json")
        file.write_text(json.dumps(config))
        environment = os.environ | {
            "RAY_FAKE_CLUSTER": "1",
            "RAY_NODE_TYPE_NAME": "ray.head.default",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
            "RAY_enable_autoscaler_v2": "1",  # as `ray up` and KubeRay have it
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_TMPDIR": self.temporary,
        }
        start = (
            "start",
            "--head",
            "--block",
            "--node-ip-address",
            "127.0.0.1",
            "--port",
            str(port),
            "--num-cpus",
            "0",
            "--include-dashboard",
            "False",
            "--temp-dir",
            self.temporary,
        )
        self.log = Path(self.temporary, "log")
        with self.log.open("w") as log:
            self.head = subprocess.Popen(
                [program("ray"), *start, "--autoscaling-config", str(file)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def nodes(self) -> Counter[str]:
        """Return node type -> number of live nodes."""
        status = get_cluster_status(self.address)
        return Counter(node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes))

    def wait_for(self, wanted: Counter[str], seconds: float) -> None:
        """Wait until the cluster has these nodes and no others."""
        end = time.monotonic() + seconds
        found: Counter[str] | str = "nothing yet"
        while found != wanted:
            assert self.head.poll() is None and time.monotonic() < end, (
                f"{wanted} did not come within {seconds:.0f} s, there was {found}; "
                f"the head said:\n{self.log.read_text()[-2000:]}"
            )
            time.sleep(0.5)
            try:
                found = self.nodes()
            except ray.exceptions.RpcError as error:  # the head is not up yet
                found = str(error)

    def kill_trainer(self) -> None:
        """Send SIGKILL to all processes of a trainer node, like a preempted spot machine."""
        raylets = [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "raylet" and self.temporary in " ".join(process.info["cmdline"])
        ]
        raylet = next(
            process
            for process in raylets
            if any(word.startswith("--static_resource_list") and RESOURCE in word for word in process.info["cmdline"])
        )
        for process in (raylet, *raylet.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # gone with the one before
                process.kill()

    def stop(self) -> None:
        """Kill the head and its nodes, and no other process of the machine."""
        for process in psutil.process_iter(["cmdline"]):
            if any(self.temporary in word for word in process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):  # gone meanwhile
                    process.kill()
        self.head.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)


@pytest.fixture
def site() -> Iterator[AutoscaledSite]:
    site = AutoscaledSite(most=2)
    try:
        site.wait_for(HEAD_ALONE, 60)
        yield site
    finally:
        site.stop()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nodes_are_added_for_a_run_and_removed_after_it(site: AutoscaledSite, tmp_path: Path):
    run = Run(
        name="scaled", steps=60, workers="2", corpus=small_corpus(tmp_path / "corpus"), output=tmp_path / "output", tracking=f"sqlite:///{tmp_path}/output/mlflow.db",
        settings={"placement.autoscaled": True},
    )  # fmt: skip
    driver = run.drive(site.address)
    driver.wait_for_step(1)
    at_work = site.nodes()
    driver.wait_for_end()
    ended = time.monotonic()
    site.wait_for(HEAD_ALONE, 60)
    print(f"at work: {dict(at_work)}; the head alone {time.monotonic() - ended:.0f} s after the end")
    assert at_work["trainer"] == 2 and at_work["cpu"] >= 1
    assert sorted(history(run)["train/mlm_loss"]) == list(range(1, 61))

    reviews = tmp_path / "reviews.csv"
    reviews.write_text(
        "text,label\n" + "".join(f"a {word} film {n},{word}\n" for n in range(60) for word in ("good", "bad"))
    )
    scaled = ("--placement.autoscaled", "--placement.device", "cpu", "--placement.address", site.address)
    finetune = (
        "jobs/finetune.py",
        "--checkpoint",
        str(run.checkpoints.parent / "export"),
        "--train",
        str(reviews),
        "--seeds",
        "2",
        "--recipe.epochs",
        "1",
        "--trials.at-once",
        "2",
        "--output",
        str(run.output),
        *scaled,
    )
    done = subprocess.run([sys.executable, *finetune], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "several machines: output (" in done.stdout and site.nodes() != HEAD_ALONE
    model = done.stdout.strip().rpartition(": ")[2]
    predict = (
        "jobs/predict.py",
        "--checkpoint",
        model,
        "--input",
        str(reviews),
        "--output",
        str(tmp_path / "answers.jsonl"),
        "--actors",
        "1",
        *scaled,
    )
    site.wait_for(HEAD_ALONE, 60)
    done = subprocess.run([sys.executable, *predict], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 120
    site.wait_for(HEAD_ALONE, 60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_elastic_group_replaces_lost_nodes_with_new_ones(site: AutoscaledSite, tmp_path: Path):
    common = {
        "steps": STEPS,
        "corpus": small_corpus(tmp_path / "corpus"),
        "output": tmp_path / "output",
        "tracking": f"sqlite:///{tmp_path}/output/mlflow.db",
        "settings": {"placement.autoscaled": True},
    }
    undisturbed = Run(name="undisturbed", workers="1", **common)
    undisturbed.drive(site.address).wait_for_end()
    run = Run(name="elastic", workers="1..2", **common)
    driver = run.drive(site.address)
    one, two = "training on 1 worker of 1..2", "training on 2 workers of 1..2"
    first = driver.wait_for_line(two)
    before = driver.lines.count(one)  # it may have begun with the node that came first
    site.kill_trainer()
    alone = driver.wait_for(lambda: driver.lines.count(one) > before, 120, "a start of the worker that is left")
    again = driver.wait_for(
        lambda: driver.lines.count(two) == 2, 180, "a worker on the node that came in place of the one that went"
    )
    assert driver.step < STEPS
    driver.wait_for_end()
    difference = compare(history(undisturbed), history(run), STEPS)
    print(
        f"two workers after {first:.0f} s; a node was killed, and one worker went on after {alone:.0f} s; "
        f"two again {again:.0f} s later; {difference}"
    )
    assert (difference.rows_wrong, difference.missing) == (0, []) and difference.loss < 1e-4
    site.wait_for(HEAD_ALONE, 60)

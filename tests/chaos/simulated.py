"""A cluster of several Ray nodes on this machine, and `jobs/pretrain.py` as a process that trains on it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from pipeline.command_line.environment import set_ray_defaults

set_ray_defaults()

from ray.cluster_utils import Cluster  # noqa: E402  (Ray reads the environment when imported)

ROOT = Path(__file__).parents[2]
RESOURCE = "trainer"
SETTINGS = {
    "prepare.window-characters": 6_000,
    "prepare.piece-characters": 1_000,
    "prepare.heldout-share": 0.1,
    "prepare.near-duplicates": None,  # the small corpus repeats itself
    "vocabulary.size": 150,
    "sampling.maximum-length": 32,
    "model.layers": 2,
    "model.width": 64,
    "model.feed-forward": 256,
    "model.maximum-positions": 32,
    "batch.rows-per-step": 64,
    "batch.rows-per-slot": 16,
    "evaluation.every": 1_000_000,
    "evaluation.rows": 64,
    "checkpoint.every": 25,
    "tracking.every": 1,
    "placement.precision": "float32",
    "placement.compile": "off",
    "placement.device": "cpu",
    "placement.threads": 1,
    "placement.worker-cpus": 1,
    "placement.worker-resource": RESOURCE,
    "placement.restarts": 1_000,
    "placement.hang-seconds": 15,
}
OPTIMIZER = ("optimizer:adam-w", "--optimizer.learning-rate", "3e-3")


class Site:
    """A head with CPUs for data and the driver, and nodes of one trainer each."""

    def __init__(self, trainers: int) -> None:
        subprocess.run([program("ray"), "get-auth-token", "--generate"], check=True, capture_output=True)
        self.trainers: list[Any] = []
        self.start(trainers)

    def start(self, trainers: int) -> None:
        """Start the head and this number of nodes."""
        self.temporary = tempfile.mkdtemp(prefix="bs-", dir="/tmp")  # short: Ray puts sockets in it
        # Ray notes the newest head of a machine in this folder, for those who name none: this one is not for them.
        before = os.environ.get("RAY_TMPDIR")
        os.environ["RAY_TMPDIR"] = self.temporary
        os.makedirs(f"{self.temporary}/ray", exist_ok=True)
        try:
            self.cluster = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": 3, "include_dashboard": False, "temp_dir": self.temporary},
            )
        finally:
            os.environ.pop("RAY_TMPDIR") if before is None else os.environ.update(RAY_TMPDIR=before)
        self.trainers = []
        for _ in range(trainers):
            self.add()

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self, cpus: int = 1) -> None:
        """Add a node with a trainer; main thread only."""
        self.trainers.append(self.cluster.add_node(num_cpus=cpus, resources={RESOURCE: 1}))

    def remove(self, node: Any) -> None:
        """Kill all processes of a node."""
        self.trainers.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def drain(self, node: Any, seconds: int) -> None:
        """Announce to a node that it will be removed."""
        reason = (
            "--reason",
            "DRAIN_NODE_REASON_PREEMPTION",
            "--reason-message",
            "spot reclaim",
            "--deadline-remaining-seconds",
            str(seconds),
        )
        subprocess.run(
            [program("ray"), "drain-node", "--address", self.cluster.address, "--node-id", node.node_id, *reason],
            check=True,
            capture_output=True,
        )

    def processes(self, title: str) -> list[psutil.Process]:
        """Return this site's Ray processes whose title contains these words."""
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name().startswith("ray::") or "ray::" in "".join(process.cmdline()[:1]):
                    found += [process] if re.search(title, " ".join(process.cmdline())) else []
            except psutil.Error:  # gone meanwhile
                continue
        return found

    def trainer_processes(self) -> list[psutil.Process]:
        return self.processes("RayTrainWorker")

    def data_processes(self) -> list[psutil.Process]:
        """Return the processes that run a task of the stream now."""
        return self.processes(r"ray::(MapBatches|StreamingRepartition)")

    def stop(self) -> None:
        """Stop all nodes."""
        for node in list(self.trainers):
            self.remove(node)
        self.cluster.remove_node(self.cluster.head_node)
        shutil.rmtree(self.temporary, ignore_errors=True)


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def program(name: str) -> str:
    """Return the path of a program of this environment."""
    return str(Path(sys.executable).parent / name)


@dataclass(kw_only=True)
class Driver:
    """A running `jobs/pretrain.py`, whose output is read line by line."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)
    """Monotonic time at which a step was first printed."""

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.match(r"step +(\d+)/", line):
                self.steps.append((time.monotonic(), int(found[1])))

    @property
    def step(self) -> int:
        return max((step for _, step in self.steps), default=0)

    def wait_for(self, reached: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait until something is so and give the seconds that it took.

        Raises AssertionError when it takes too long or the driver ends.
        """
        started = time.monotonic()
        while not reached():
            if time.monotonic() - started > seconds or (self.process.poll() is not None and not reached()):
                self.kill()
                raise AssertionError(
                    "\n".join(
                        [
                            f"{what} did not come within {seconds:.0f} s; the job (exit code {self.process.poll()}) "
                            "said:",
                            *self.lines[-15:],
                        ]
                    )
                )
            time.sleep(0.05)
        return time.monotonic() - started

    def wait_for_step(self, step: int, seconds: float = 120) -> float:
        return self.wait_for(lambda: self.step >= step, seconds, f"step {step}")

    def wait_for_line(self, words: str, seconds: float = 120) -> float:
        return self.wait_for(lambda: any(words in line for line in self.lines), seconds, f"a line with {words!r}")

    def wait_for_end(self, seconds: float = 300) -> None:
        """Wait until the run is finished."""
        self.wait_for(lambda: self.process.poll() is not None, seconds, "the end")
        assert self.process.returncode == 0, "\n".join(self.lines[-15:])

    def kill(self) -> None:
        """Send SIGKILL, as if the machine were lost."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True, kw_only=True)
class Run:
    """A named run of a fixed configuration; each `drive` starts another driver for it."""

    name: str
    steps: int
    corpus: Path
    output: Path
    workers: str
    tracking: str
    settings: dict[str, Any] = field(default_factory=dict)

    def drive(self, address: str) -> Driver:
        settings = (
            SETTINGS
            | {
                "steps": self.steps,
                "name": self.name,
                "corpus": self.corpus,
                "output": self.output,
                "workers": self.workers,
            }
            | self.settings
        )
        flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        environment = os.environ | {
            "RAY_ADDRESS": address,
            "PYTHONUNBUFFERED": "1",
            "MLFLOW_TRACKING_URI": self.tracking,
        }
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "pretrain.py"), "bert-tiny", *flags, *OPTIMIZER],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True,
        )  # fmt: skip
        driver = Driver(process=process)
        threading.Thread(target=driver.read, daemon=True).start()
        return driver

    @property
    def checkpoints(self) -> Path:
        return self.output / "runs" / self.name / "checkpoints"


History = dict[str, dict[int, float]]
COMPARED = ("stream/rows_crc32", "train/mlm_loss", "train/nsp_loss", "train/gradient_norm")


def history(run: Run) -> History:
    """Return metric -> step -> value of a finished run. Raises AssertionError if a step occurs twice."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=run.tracking)
    (found,) = client.search_runs(
        [client.get_experiment_by_name("pretrain").experiment_id], f"attributes.run_name = '{run.name}'"
    )
    points = {name: client.get_metric_history(found.info.run_id, name) for name in COMPARED}
    for name, of_metric in points.items():
        assert len({point.step for point in of_metric}) == len(of_metric), f"{run.name}: {name} holds a step twice"
    return {name: {point.step: point.value for point in of_metric} for name, of_metric in points.items()}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Differences between a disturbed run and an undisturbed one."""

    rows: int
    """Number of steps compared."""
    rows_wrong: int
    """Number of steps whose rows differ from the undisturbed run's."""
    missing: list[int]
    """Steps without a point."""
    loss: float
    """Largest difference of a loss, in nats."""


def compare(
    one: History, other: History, steps: int, rows_per_step: int = SETTINGS["batch.rows-per-step"]
) -> Difference:
    """Compare two runs step by step."""
    wanted = range(1, steps + 1)
    missing = [step for step in wanted if any(step not in other[name] for name in COMPARED)]
    there = [step for step in wanted if step not in missing]
    crc = COMPARED[0]
    wrong = [
        step for step in there if other[crc][step] != one[crc][step]
    ]  # the figure of a step is the CRC of all rows up to it: one wrong row, and all after it are
    loss = max(abs(other[name][step] - one[name][step]) for step in there for name in COMPARED[1:3])
    return Difference(
        rows=len(there) * rows_per_step, rows_wrong=len(wrong) * rows_per_step, missing=missing, loss=loss
    )


def job(name: str, *flags: str, tracking: Path, ray_folder: Path) -> subprocess.Popen[str]:
    """Start a job as a user would, with its own Ray."""
    environment = os.environ | {
        "TMPDIR": str(ray_folder),  # without the address file of a head of this machine
        "MLFLOW_TRACKING_URI": f"sqlite:///{tracking}/mlflow.db",
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(ROOT / "jobs" / f"{name}.py"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """Return the output of a job, which must exit with 0."""
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    return text


def small_corpus(folder: Path) -> Path:
    """A folder of 80 short made-up documents in which each word follows from the one before, so that there is something
    to learn.
    """
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    words = np.array([a + b for a in ("ka", "lo", "mi", "ne", "su", "ta") for b in ("r", "nd", "p", "st", "l", "m")])
    random = np.random.default_rng(7)
    for number in range(80):
        sentences = []
        for _ in range(12):
            steps = np.cumsum(random.choice([1, 1, 1, 5], size=random.integers(4, 12))) + random.integers(36)
            sentences.append(" ".join(words[steps % 36]).capitalize() + ".")
        (folder / f"{number:02}.txt").write_text("\n".join(" ".join(sentences[i : i + 4]) for i in (0, 4, 8)) + "\n")
    return folder


class Server:
    """An MLflow server on this machine that can be stopped and restarted."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        import urllib.error
        import urllib.request

        command = [
            program("mlflow"),
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--workers",
            "1",
            "--backend-store-uri",
            f"sqlite:///{self.folder}/server.db",
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=1).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise AssertionError(f"no MLflow server at {self.uri}")

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def spread(values: Sequence[float]) -> str:
    """Return median and maximum as text."""
    ordered = sorted(values)
    return f"median {ordered[len(ordered) // 2]:.0f}, most {ordered[-1]:.0f}" if ordered else "none"

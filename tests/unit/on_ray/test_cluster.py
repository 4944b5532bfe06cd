import math
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from pipeline.command_line.stopping import interrupt, interrupts_deferred
from pipeline.config.placement import Placement
from pipeline.config.workers import worker_range
from pipeline.errors import ClusterLost, ConfigError, DataError
from pipeline.on_ray.cluster import (
    SHARES,
    STAGES,
    NodeGroup,
    WorkerResources,
    connect,
    fit_workers,
    is_loopback,
    is_unreachable_for,
    listens_only_on_loopback,
    ray_errors_as_cluster_lost,
    stream_cpus,
)
from pipeline.on_ray.heads import is_listening, local_head_address
from pipeline.on_ray.local_ray import make_token, ray_folders, start_remedy


def node(cpus: float, gpus: float = 0, **custom: float) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus} | custom


@pytest.mark.parametrize(
    ("cpus", "workers", "share"),
    [
        (2, 1, 1.0),
        (2, 2, 0.5),
        (8, 4, 1.0),
        (2, 4, 0.25),
        (4, 4, 0.75),
        (4, 9, 0.3125),
        (64, 3, 1.0),
        (1.5, 1, 0.5),
        (2, 10, 0.0625),
    ],
)
def test_workers_share_what_one_cpu_for_data_leaves(cpus: float, workers: int, share: float) -> None:
    assert fit_workers(Placement(), worker_range(workers), [node(cpus)]) == WorkerResources(cpus=share, gpu=False)


def test_one_cpu_is_left_for_data_and_the_suggested_worker_count_fits() -> None:
    for cpus in range(2, 20):
        for workers in range(1, 400):
            try:
                resources = fit_workers(Placement(), worker_range(workers), [node(cpus)])
            except ConfigError as error:
                most = workers - 1
                assert f"use at most {most} workers" in str(error)
                break
            assert resources.cpus * workers <= cpus - 1 and SHARES[-1] <= resources.cpus <= 1.0
            assert workers * resources.cpus // resources.cpus == workers  # as Ray counts how many fit
        assert most == 16 * (cpus - 1)


def test_some_node_keeps_a_whole_cpu_for_any_placement() -> None:
    # Ray may put three workers on each of three nodes, or four on one: 4 CPUs less 4 shares of 0.75 is 1.
    assert fit_workers(Placement(), worker_range(12), [node(4, 4)] * 3).cpus == 0.75
    assert (
        fit_workers(Placement(), worker_range(5), [node(2)] * 3).cpus == 1.0
    )  # two to a node, and a fifth: one node keeps a CPU
    assert fit_workers(Placement(), worker_range(6), [node(2)] * 3).cpus == 0.5
    assert fit_workers(Placement(), worker_range(8), [node(1)] * 8 + [node(4)]).cpus == 1.0
    with pytest.raises(ConfigError, match="the cluster has 8 CPUs, and one whole CPU must be left for the data stream"):
        fit_workers(Placement(), worker_range(8), [node(1)] * 8)


@pytest.mark.parametrize(
    ("cpus", "workers", "message"),
    [
        (
            1,
            1,
            "workers (1) do not fit: the cluster has 1 CPUs, and one whole CPU must be left for the data stream; "
            "give Ray 2 CPUs or more",
        ),
        (
            2,
            32,
            "workers (32) do not fit: the cluster has 2 CPUs, and one whole CPU must be left for the data stream; "
            "use at most 16 workers",
        ),
        (
            0,
            1,
            "workers (1) do not fit: the cluster has 0 CPUs, and one whole CPU must be left for the data stream; "
            "give Ray 2 CPUs or more",
        ),
    ],
)
def test_workers_that_do_not_fit_are_refused(cpus: float, workers: int, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fit_workers(Placement(), worker_range(workers), [node(cpus)])
    assert str(refused.value) == message


def test_gpus_are_used_where_every_worker_gets_one() -> None:
    def uses(device: str, gpus: float) -> bool:
        return fit_workers(Placement(device=device), worker_range(2), [node(8, gpus)]).gpu

    assert uses("auto", 2) and uses("auto", 8) and uses("cuda", 2)
    assert not uses("auto", 0) and not uses("auto", 1) and not uses("cpu", 8)


def test_cuda_without_gpus_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        fit_workers(Placement(device="cuda"), worker_range(2), [node(8, 1)])
    assert (
        str(refused.value)
        == "workers (2) with placement.device cuda need one GPU each, but the cluster has 1 GPUs; use fewer workers, "
        "placement.device cpu, or placement.autoscaled"
    )


def test_what_ray_is_asked_for() -> None:
    assert WorkerResources(cpus=0.5, gpu=False).to_ray() == {"CPU": 0.5}
    assert WorkerResources(cpus=1.0, gpu=True).to_ray() == {"CPU": 1.0, "GPU": 1}


def closed_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_an_address_answers_where_something_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_listening(f"127.0.0.1:{port}") and is_listening(f"ray://127.0.0.1:{port}")
    assert not is_listening(f"127.0.0.1:{closed_port()}") and not is_listening(f"ray://127.0.0.1:{closed_port()}")


def test_words_are_left_to_ray_and_nonsense_does_not_answer() -> None:
    assert is_listening("auto") and is_listening("local")
    assert not any(
        is_listening(address)
        for address in ("", "localhost", "127.0.0.1:", ":6379", "127.0.0.1:port", "no.such.host.invalid:6379")
    )


@pytest.mark.parametrize("name", ["placement.address", "RAY_ADDRESS"])
def test_an_address_that_does_not_answer_is_refused_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # another test of this session may have started one
    address = f"127.0.0.1:{closed_port()}"
    if name == "RAY_ADDRESS":
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError) as refused:
        connect(address if name == "placement.address" else None)
    assert str(refused.value) == (
        f"{name} ({address}) does not answer; start a head at this address (ray start --head), "
        "or leave the address out to run on this machine alone"
    )


def test_an_elastic_group_cannot_fill_the_remaining_nodes() -> None:
    elastic, whole = worker_range("1..5"), Placement(worker_cpus=1)
    with pytest.raises(ConfigError) as refused:
        fit_workers(whole, elastic, [node(2)] * 3)
    assert str(refused.value) == (
        "workers (1..5) do not fit: the cluster has 6 CPUs, and one whole CPU must be left for the data stream; "
        "use at most 1 worker, or restrict training to some nodes with placement.worker_resource"
    )
    assert fit_workers(Placement(), elastic, [node(2)] * 3).cpus == 0.1875  # five of them leave a CPU on one node
    assert fit_workers(whole, elastic, [node(6)]) == WorkerResources(cpus=1, gpu=False)
    # A node holds no more workers than it has GPUs, or units of the resource.
    assert fit_workers(whole, elastic, [node(1, 1)] * 3 + [node(1)]) == WorkerResources(cpus=1, gpu=True)
    trains = Placement(worker_cpus=1, worker_resource="trainer")
    assert fit_workers(trains, elastic, [node(1, trainer=1)] * 3 + [node(1)]) == WorkerResources(
        cpus=1, gpu=False, custom="trainer"
    )
    with pytest.raises(ConfigError, match="one whole CPU must be left for the data stream"):
        fit_workers(trains, elastic, [node(1, trainer=1)] * 3)


def test_nodes_that_train_must_be_there_for_the_least_workers() -> None:
    with pytest.raises(ConfigError) as refused:
        fit_workers(Placement(worker_resource="trainer"), worker_range("2..4"), [node(8, trainer=1)])
    assert str(refused.value) == (
        "workers (2..4) need one unit of placement.worker_resource (trainer) each, but the cluster has 1 units; "
        "start nodes with --resources '{\"trainer\": 1}', or use placement.autoscaled"
    )
    assert WorkerResources(cpus=1.0, gpu=True, custom="trainer").to_ray() == {"CPU": 1.0, "GPU": 1, "trainer": 1}


def test_a_cluster_that_grows_is_asked_for_what_is_not_there() -> None:
    assert fit_workers(
        Placement(autoscaled=True, device="cuda", worker_cpus=4), worker_range(8), []
    ) == WorkerResources(cpus=4, gpu=True)
    assert fit_workers(Placement(autoscaled=True, device="cpu"), worker_range("2..8"), []) == WorkerResources(
        cpus=1, gpu=False
    )
    with pytest.raises(ConfigError, match="placement.autoscaled needs placement.device cuda or cpu"):
        fit_workers(Placement(autoscaled=True), worker_range(8), [])


AUTOSCALED = Placement(device="cuda", autoscaled=True)
GROUPS = [  # as in cluster/aws.yaml
    NodeGroup(most=0, resources={}),
    NodeGroup(most=8, resources={"CPU": 16}),
    NodeGroup(most=4, resources={"CPU": 4, "GPU": 4}),
    NodeGroup(most=0, resources={"CPU": 4, "GPU": 4}),
]


def test_more_workers_than_a_cluster_may_start_are_refused() -> None:
    assert fit_workers(AUTOSCALED, worker_range("4..16"), [], GROUPS) == WorkerResources(cpus=1.0, gpu=True)
    assert fit_workers(AUTOSCALED, worker_range("4..32"), [], []) == WorkerResources(
        cpus=1.0, gpu=True
    )  # nothing is known of what may come
    for workers in ("17", "4..32"):
        with pytest.raises(ConfigError) as refused:
            fit_workers(AUTOSCALED, worker_range(workers), [], GROUPS)
        assert str(refused.value) == (
            f"workers ({workers}) do not fit: all nodes that the cluster may start have room for 16 workers of 1 CPU, "
            f"1 GPU; "
            "use fewer workers, or raise max_workers (maxReplicas on Kubernetes) of a node type"
        )
    assert fit_workers(
        AUTOSCALED,
        worker_range(999),
        [],
        [NodeGroup(most=math.inf, resources={"GPU": 1, "CPU": 1}), NodeGroup(most=math.inf, resources={"CPU": 8})],
    ).gpu


def test_a_stream_asks_for_no_more_than_the_nodes_for_data_have() -> None:
    gpu, cpu = WorkerResources(cpus=1.0, gpu=True), WorkerResources(cpus=2.0, gpu=False)
    assert stream_cpus(gpu, worker_range("4..16"), GROUPS) == 8 * 16 - STAGES
    assert stream_cpus(cpu, worker_range("1..4"), [NodeGroup(most=3, resources={"CPU": 8})]) == 24 - 8 - STAGES
    assert stream_cpus(cpu, worker_range(4), [NodeGroup(most=1, resources={"CPU": 8})]) == 1
    assert stream_cpus(gpu, worker_range(4), []) == math.inf


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only sleeping moves on."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "pipeline.on_ray.cluster.time",
        SimpleNamespace(monotonic=lambda: found.now, sleep=lambda seconds: setattr(found, "now", found.now + seconds)),
    )
    return found


def test_a_head_is_lost_when_it_is_silent_for_long_and_not_before(clock: SimpleNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_unreachable_for(f"127.0.0.1:{port}", 10.0, lambda: clock.now < 100)
    assert not is_unreachable_for(f"127.0.0.1:{port}", 10.0, lambda: clock.now < 109) and 109 <= clock.now <= 110
    assert is_unreachable_for(f"127.0.0.1:{port}", 10.0, lambda: clock.now < 200) and 119 <= clock.now <= 121


def test_a_head_that_comes_back_is_not_lost(clock: SimpleNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    servers: list[socket.socket] = []

    def wanted() -> bool:
        if clock.now >= 8 and not servers:
            servers.append(socket.create_server(("127.0.0.1", port)))
        return clock.now < 100

    assert not is_unreachable_for(f"127.0.0.1:{port}", 10.0, wanted)
    servers[0].close()


@pytest.mark.parametrize(
    "error",
    [
        ray.exceptions.ActorDiedError(),
        ray.exceptions.RaySystemError("The actor died.\nMore"),
        ConnectionError("The actor died."),
        ray.exceptions.RayTaskError("work", "trace", ray.exceptions.ActorDiedError()),
    ],
)
def test_what_ray_raises_when_it_dies_is_one_line(error: Exception) -> None:
    with pytest.raises(ClusterLost) as lost, ray_errors_as_cluster_lost():
        raise error
    assert "\n" not in str(lost.value) and str(lost.value).startswith("Ray, or one of its processes, has died (")
    assert (
        str(lost.value).endswith("; start the same command again, and it continues from what is already done")
        and lost.value.exit_code == 1
    )


@pytest.mark.parametrize(
    "error",
    [
        ray.exceptions.RayTaskError("work", "trace", ZeroDivisionError("a fault")),
        DataError("a file"),
        ZeroDivisionError("a fault"),
    ],
)
def test_errors_of_what_ray_runs_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, ray_errors_as_cluster_lost():
        raise error
    assert raised.value is error


STOPPED = """
import signal, sys, time
from pipeline.command_line.stopping import exit_code, interrupt_on_sigterm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell without job control has it ignored
interrupt_on_sigterm()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    try:
        print("stopping", flush=True)
        time.sleep(0.5)
    except KeyboardInterrupt:
        print("interrupted again", flush=True)
    sys.exit(exit_code())
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_process_says_by_its_exit_code_what_stopped_it(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == "stopping\n"
    if number == signal.SIGTERM:
        process.send_signal(number)  # as a scheduler that sends it to all processes of a group, and to the first
    assert process.communicate()[0] == "" and process.returncode == code


def test_sigterm_is_handled_here_after_ray_has_set_a_handler_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    monkeypatch.setattr("pipeline.on_ray.cluster.watch_head", lambda: None)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    try:
        connect(None)
        assert signal.getsignal(signal.SIGTERM) is interrupt
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def ray_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a folder of the test's own for the address file of `ray start`, so that no head of this machine is found."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray"


def test_a_start_of_ray_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out(**_: object) -> None:
        raise Exception("The current node timed out during startup.\nSee the logs.")  # as Ray does

    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pipeline.on_ray.cluster.local_head_address", lambda: None)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", timed_out)
    with pytest.raises(ConfigError) as refused:
        connect(None)
    assert str(refused.value) == (
        "Ray did not start on this machine: The current node timed out during startup.; "
        "run the same command again, if possible when the machine is less busy"
    )


def test_it_says_which_ray_it_is_but_not_in_a_job_that_was_submitted_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(address: str | None) -> list[str]:
        lines: list[str] = []
        connect(address, lines.append)
        return lines

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    for name, answer in (("init", None), ("is_initialized", False), ("cluster_resources", {"CPU": 2.0})):
        monkeypatch.setattr(f"ray.{name}", lambda *_, answer=answer, **__: answer)
    for name in ("start", "watch_head", "interrupt_on_sigterm"):
        monkeypatch.setattr(f"pipeline.on_ray.cluster.{name}", lambda **_: None)
    monkeypatch.setattr("pipeline.on_ray.cluster.local_head_address", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert said(None) == said("local") == ["Ray: started for this command alone, 2 CPUs, 0 GPUs"]
        assert said(address) == [f"Ray: joined at {address}, 2 CPUs, 0 GPUs"]
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"metadata": {"job_submission_id": "pretrain-1"}}')
        assert said(address) == []


@pytest.mark.parametrize("home", ["missing", "file"])
def test_a_home_that_cannot_hold_the_token_is_named(
    home: str, ray_tmpdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ray_tmpdir / "file").touch()
    monkeypatch.setenv("HOME", str(ray_tmpdir / home))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError) as refused:
        connect(None)
    reason = {"missing": "No such file or directory", "file": "Not a directory"}[home]
    assert str(refused.value) == (
        f"HOME ({ray_tmpdir / home}) cannot hold Ray's token, .ray/auth_token: {reason}; set HOME to a folder that you "
        "can write to, or RAY_AUTH_TOKEN to a secret"
    )


def test_a_folder_for_temporary_files_that_is_missing_too_long_or_full_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = "a folder whose path has at most 9 bytes, such as /scratch"

    def refused(folder: str) -> str:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        with ExitStack() as folders, pytest.raises(ConfigError) as refused:
            ray_folders(folders)
        return str(refused.value)

    assert refused("/absent") == (
        "Ray needs folders for temporary files: [Errno 2] No such file or directory: '/absent'; set RAY_TMPDIR to "
        f"{short}, and TMPDIR to any, with free space, that you can write to"
    )
    assert refused("/scratch/é") == (
        f"RAY_TMPDIR (/scratch/é) has 11 bytes, too long for Ray's sockets: leave it out, or set it to {short}"
    )
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=7_000_000))
    assert start_remedy() == (
        f"/tmp has 7 MB of free space for Ray's temporary files: free more, or set RAY_TMPDIR to {short}"
    )


def test_a_head_of_this_machine_is_joined_where_this_user_started_it(ray_tmpdir: Path) -> None:
    assert local_head_address() is None
    address_file = ray_tmpdir / "ray_current_cluster"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        address_file.write_text(address)
        assert local_head_address() == address
        if os.getuid() == 0:  # everybody can write to that folder
            os.chown(address_file, 65534, 65534)
            assert local_head_address() is None
        address_file.rename(ray_tmpdir / "other")
        address_file.symlink_to(ray_tmpdir / "other")
        assert local_head_address() is None
    address_file.unlink()
    address_file.write_text(address)
    assert local_head_address() is None  # it has ended


def test_the_token_is_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    token = tmp_path / ".ray" / "auth_token"
    make_token()
    first = token.read_text()
    assert len(first) == 64 and stat.S_IMODE(token.stat().st_mode) == 0o600
    token.chmod(0o644)
    make_token()
    assert token.read_text() == first and stat.S_IMODE(token.stat().st_mode) == 0o600
    token.unlink()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    make_token()
    assert not token.exists()


def test_hosts_that_no_other_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.1.1", "localhost", "[::1]", "::1")))
    assert not any(map(is_loopback, ("", "10.0.0.1", "0.0.0.0", "head", "ray://127.0.0.1")))


def test_a_head_that_listens_on_all_addresses_is_joined_at_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.2")
    with socket.create_server(("127.0.0.1", 0)) as alone, socket.create_server(("0.0.0.0", 0)) as everywhere:
        assert listens_only_on_loopback(f"127.0.0.1:{alone.getsockname()[1]}")
        assert not listens_only_on_loopback(f"127.0.0.1:{everywhere.getsockname()[1]}")
    assert not listens_only_on_loopback("auto") and not listens_only_on_loopback("10.0.0.1:6379")


def test_a_deferred_interrupt_sets_the_event_and_a_second_one_raises() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_deferred() as stopped:
        assert not stopped.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stopped.is_set()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_deferred_interrupts_in_another_thread_leave_the_handlers() -> None:
    handler, found = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interrupts_deferred():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [handler]

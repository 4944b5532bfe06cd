"""Environment variables that must be set before Ray, MLflow and torch are used, because they read them once."""

import json
import os

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable that Ray sets for what `ray job submit` runs, with the submission id and the metadata of `ray job submit`.

Not in on_ray/ray_private.py, which imports Ray: jobs read this variable first.
"""
DEFAULTS = {
    # Without a token, anyone who reaches a Ray port can run commands (CVE-2023-48022). The Ray head and the clients
    # must use the same value.
    "RAY_AUTH_MODE": "token",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # seconds until a lost worker, or the end of training, is detected
    "RAY_worker_niceness": "0",  # with Ray's default of 15, a run gets little CPU time while other programs are busy
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Metrics for Prometheus are off, because they make Ray Data's _StatsActor grow by about 9 MB per minute (ray 2.60).
    "RAY_enable_metrics_collection": "0",
    # Maximum tasks that `ray list tasks` can show. Ray's default of 100,000 needs about 100 MB of memory in the head.
    "RAY_task_events_max_num_task_in_gcs": "10000",
    # A request passes through fewer threads of Ray Serve's processes. Our code blocks none of their event loops.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; Ray warns if the variable is not set
}


def set_ray_defaults() -> None:
    """Set the variables that the user has not set. Jobs call this before they import Ray or MLflow."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def set_torch_defaults() -> None:
    """Set the variables that the user has not set. Every job calls this before it imports torch."""
    # oneDNN compiles each matrix product of a new shape, and it and torch keep the newest. Batches have ever new
    # numbers of tokens, so most are never used again: the 1,024 of each default take up to 0.7 GB together.
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "128")


def set_server_defaults() -> None:
    """Set the variables that the user has not set. `serve` calls this before it imports torch."""
    # How often libgomp's threads look for work before they sleep. By default they do so for milliseconds after each
    # operator, and where other programs want the cores too, a request takes several times as long.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def submission_id() -> str | None:
    """Return the id of the Ray job that this process belongs to; None if it was not started by `ray job submit`."""
    return _job_metadata().get("job_submission_id")


def stops_with_client() -> bool:
    """Return whether Ctrl-C in the command that has submitted this job stops the job, as cluster/head.sh does."""
    return _job_metadata().get("stopped_by") == "Ctrl-C"


def _job_metadata() -> dict[str, str]:
    """Return the metadata of the Ray job that this process belongs to; empty outside of jobs."""
    return json.loads(os.environ.get(JOB) or "{}").get("metadata") or {}

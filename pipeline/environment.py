"""Environment variables that must be set before Ray and MLflow are imported, because both read them once."""

import os

DEFAULTS = {
    "RAY_AUTH_MODE": "token",  # an open Ray port is an open shell (CVE-2023-48022); heads and clients must agree
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # how soon a lost worker, or the end, is detected
    "RAY_worker_niceness": "0",  # Ray's default of 15 starves a run while other programs are busy
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # For Prometheus; while it is on, Ray Data's _StatsActor grows by about 9 MB a minute (ray 2.60)
    "RAY_enable_metrics_collection": "0",
    # That `ray list tasks` shows; the default of 100,000 takes the head some 100 MB
    "RAY_task_events_max_num_task_in_gcs": "10000",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; set to avoid its warning
}


def set_ray_defaults() -> None:
    """Set the variables that the user has not set; a job calls this first."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)

"""Messages about output folders that all machines of a cluster must share."""

from pipeline.errors import ConfigError
from pipeline.files.locations import is_url
from pipeline.reporting import Report


def report_shared_output(output: str, several_machines: bool, report: Report) -> None:
    """Report that all machines must share a local output folder; a no-op for a single machine or a URL."""
    if several_machines and not is_url(output):
        report(f"several machines: output ({output}) must be a folder that all of them share, or a URL")


def unshared_output(output: str, missing: str) -> ConfigError:
    """Return the error for an output folder that differs between machines; `missing` says which file is missing."""
    return ConfigError(
        f"output ({output}) is not the same folder on all machines: {missing}; use a shared folder or a URL"
    )

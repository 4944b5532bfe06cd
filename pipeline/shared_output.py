"""Outputs that every machine of a cluster must see: what to say of them, and what to raise where one is not seen."""

from pipeline.errors import ConfigError
from pipeline.locations import is_url
from pipeline.reporting import Report


def report_shared_output(output: str, several_machines: bool, report: Report) -> None:
    """Report that a local output folder must be seen by all machines, where there are several."""
    if several_machines and not is_url(output):
        report(f"several machines: output ({output}) must be a folder that all of them see, or a URL")


def unshared_output(output: str, missing: str) -> ConfigError:
    """Return the error for an output folder that is not the same on all machines; `missing` is what shows that."""
    return ConfigError(
        f"output ({output}) is not the same folder on all machines: {missing}; use a shared folder or a URL"
    )

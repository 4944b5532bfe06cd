"""Submit a job to a Ray head, print what the job prints, and fail if the job fails; cluster/head.sh calls this script.

`ray job submit` first prints a screen of its own lines, and has no option to leave them out.
"""

import asyncio
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Sequence

import aiohttp
from ray.job_submission import JobStatus, JobSubmissionClient

RAYS_LINES = re.compile(
    r"^(\S+ \S+\tINFO job_manager\.py:\d+ -- Runtime env is setting up\.|Running entrypoint for job .*)\n", re.M
)
"""The first lines of every job's log."""
NOT_READ = 141
"""Exit code if nobody reads the output any more, as of programs that SIGPIPE ends."""


async def print_log(client: JobSubmissionClient, job: str) -> None:
    """Print a job's lines until the job ends."""
    async for lines in client.tail_job_logs(job):
        try:
            print(RAYS_LINES.sub("", lines), end="", flush=True)
        except BrokenPipeError:
            os._exit(NOT_READ)


def follow(address: str, job: str, metadata: str, environment: str, words: Sequence[str]) -> int:
    """Submit the words as a job, print its lines, and return 1 if it has failed."""
    client = JobSubmissionClient(address)
    client.submit_job(
        entrypoint=shlex.join(words),
        submission_id=job,
        metadata=json.loads(metadata),
        runtime_env={"env_vars": json.loads(environment)},
    )
    print(f"Ray job {job}; Ctrl-C stops it", flush=True)
    asyncio.run(print_log(client, job))
    ended = client.get_job_info(job)
    if ended.status == JobStatus.FAILED:
        print(f"error: the job has failed: {ended.message}", file=sys.stderr)
    return int(ended.status == JobStatus.FAILED)


def main(address: str, job: str, metadata: str, environment: str, *words: str) -> int:
    """Follow a job, and say in one line if the head does not answer."""
    for name in ("ray", "ray.dashboard.modules.job.sdk"):  # Ray sets the level of the second itself
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return follow(address, job, metadata, environment, words)
    except (OSError, RuntimeError, aiohttp.ClientError) as error:
        print(f"error: the Ray head at {address} does not answer: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

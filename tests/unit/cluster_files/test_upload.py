"""Files that a job uploads with cluster/job.yaml."""

import zipfile
from pathlib import Path

import pytest
import yaml

from tests.unit.cluster_files.changing import ROOT

CODE = {"pipeline/a.py", "pipeline/text/b.py", "jobs/pretrain.py"}
SECRETS = {
    ".env",
    ".env.local",
    "aws.env",
    "key.pem",
    "id.key",
    "credentials",
    "aws-credentials.json",
    "my-service-account.json",
    "auth_token",
    "pipeline/.env",
}
BULK = {"output/runs/r/checkpoint", "data/books.txt", ".venv/bin/python", ".git/config", "pipeline/__pycache__/a.pyc"}
LOOSE = {"books.txt", "wiki/articles.jsonl", "README.md", "tests/unit/test_a.py"}


@pytest.mark.parametrize(("by_file", "sent"), [(True, CODE), (False, CODE | LOOSE)])
def test_a_jobs_upload_holds_the_code_and_no_data_runs_or_secrets(
    by_file: bool, sent: set[str], tmp_path: Path
) -> None:
    """With cluster/job.yaml the code alone; with --working-dir . still nothing that .gitignore names."""
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import create_package

    project = tmp_path / "project"
    for name in CODE | SECRETS | BULK | LOOSE:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    job = yaml.safe_load((ROOT / "cluster/job.yaml").read_text())
    excludes = get_runtime_env_default_excludes() + (job["excludes"] if by_file else [])
    create_package(str(project), tmp_path / "upload.zip", include_gitignore=True, excludes=excludes)
    with zipfile.ZipFile(tmp_path / "upload.zip") as upload:
        assert job["working_dir"] == "." and set(upload.namelist()) - {".gitignore"} == sent

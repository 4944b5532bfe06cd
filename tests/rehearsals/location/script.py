"""Give a job a file by a relative path."""

from pathlib import Path

from pipeline.config.export import Export
from pipeline.config.locations import with_absolute_locations
from tests.rehearsals.steps import settings

asked = settings(Export, ["--run", "runs/tiny", "--notes", "notes.txt"])
assert with_absolute_locations(asked).notes == str(Path("notes.txt").absolute())
assert with_absolute_locations(settings(Export, ["--run", "runs/tiny", "--notes", "s3://a/b"])).notes == "s3://a/b"

"""All mutants of the pipeline. tests/README.md says which guarantee each proves, and how to add one."""

from tests.mutants.rows import OF_ROWS
from tests.mutants.safety import OF_SAFETY
from tests.mutants.training import OF_TRAINING

MUTANTS = OF_TRAINING + OF_ROWS + OF_SAFETY

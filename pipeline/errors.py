"""What the user can fix: every message is one line that names the setting or file, both values, and what would work."""


class PipelineError(Exception):
    """Base of the errors that a job reports in one line and answers with exit code 2."""


class ConfigError(PipelineError):
    """A setting, or two settings together, that cannot work."""


class DataError(PipelineError):
    """Input text, a vocabulary or a prepared corpus that cannot be used."""


class AwayError(DataError):
    """Data whose storage does not let it be read now: nothing is known to be wrong with it, and a later try may read it."""


class CheckpointError(PipelineError):
    """A checkpoint or export that is missing, damaged or of another run."""

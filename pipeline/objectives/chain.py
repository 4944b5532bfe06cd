"""Add to a tagger what its task needs: a chain that knows the scheme of its tags, and intents."""

from torch import nn

from pipeline.objectives.tokens import TagTask
from pipeline.tasks.tag_schemes import scheme_of
from pipeline.tasks.task import Task


def add_chain(module: nn.Module, task: Task) -> None:
    """Add a chain to a tagger. Raises ValueError for another kind of task, and for tags that form no scheme."""
    scheme = scheme_of(task.labels)
    if not isinstance(module, TagTask) or scheme is None:
        raise ValueError(f"{task.name} of kind {task.kind} has no tags of the schemes IOB2 or BIOES")
    module.add_chain(scheme.start, scheme.following, scheme.end)


def add_intents(module: nn.Module, task: Task) -> None:
    """Tell a tagger how many of its outputs are intents. Other modules and tasks without intents are unchanged."""
    if isinstance(module, TagTask):
        module.add_intents(len(task.intents))

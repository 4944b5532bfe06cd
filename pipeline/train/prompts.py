"""Prompts of a contrastive training: those of the initial model, if the settings name none."""

from dataclasses import replace

from pipeline.config.jobs import Pretrain
from pipeline.reporting import Report
from pipeline.saved.prompts import prompts_in


def with_prompts(config: Pretrain, report: Report) -> Pretrain:
    """Return the settings. For rows of two texts, unset prompts become those of the model at config.init, if any.

    Empty prompts become None. Prompts of the model are reported. Raises CheckpointError if they cannot be read.
    """
    sampling = config.sampling
    if not sampling.two_texts:
        return config
    of_init = prompts_in(config.init) if config.init else (None, None)
    given = (sampling.query_prompt, sampling.document_prompt)
    taken = [theirs if own is None else None for own, theirs in zip(given, of_init)]
    query, document = (own if theirs is None else theirs for own, theirs in zip(given, taken))
    if any(taken):
        report(f"prompts of init {config.init}: {_taken_text(*taken)}")
    chosen = replace(sampling, query_prompt=query or None, document_prompt=document or None)
    return replace(config, sampling=chosen)


def _taken_text(query: str | None, document: str | None) -> str:
    """Describe the prompts that are taken from a model; None for one that is not."""
    if document is None:
        return f"{query!r} before the first text of each row; sampling.query_prompt '' leaves it out"
    if query is None:
        return f"{document!r} before the other texts of each row; sampling.document_prompt '' leaves it out"
    return (
        f"{query!r} before the first text of each row, {document!r} before its other texts; sampling.query_prompt '' "
        "and sampling.document_prompt '' leave them out"
    )

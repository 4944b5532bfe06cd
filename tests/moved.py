"""Names of modules before files moved to their rooms, and their names since, for code that imports them.

    python -m tests.moved FILE...      rewrites the imports of files; it stays until the next release

Functions that moved to another module are found by the error that Python gives; `git log -S NAME` says where they are.
"""

import re
import sys
from pathlib import Path

MOVED = {
    "bigbird_presets": "presets.bigbird",
    "cluster": "on_ray.cluster",
    "columns": "command_line.columns",
    "command_line": "command_line.main",
    "config.arguments": "command_line.arguments",
    "config.called": "errors",
    "config.command": "command_line.command",
    "config.help_text": "command_line.help_text",
    "config.options": "command_line.options",
    "config.toml": "command_line.toml",
    "corpus.bz2_blocks": "wikipedia.bz2_blocks",
    "corpus.dump": "wikipedia.dump",
    "corpus.dump_ranges": "wikipedia.dump_ranges",
    "corpus.multistream": "wikipedia.multistream",
    "corpus.opening": "files.opening",
    "corpus.progress": "command_line.progress",
    "corpus.records": "tables.records",
    "corpus.tasks": "on_ray.tasks",
    "corpus.web": "files.web",
    "durations": "reporting",
    "embed.distributed": "embed.embedding",
    "embed.module_settings": "saved.module_settings",
    "embed.prompts": "train.prompts",
    "embed.recipe": "saved.recipe",
    "embed.unfinished": "predict.unfinished",
    "encoder_folder": "files.encoder_folder",
    "environment": "command_line.environment",
    "exit_codes": "command_line.exit_codes",
    "finetune.answering": "on_ray.answering",
    "finetune.paired": "evaluation.paired",
    "host_copies": "model.host_copies",
    "inputs": "workflows.inputs",
    "local_files": "files.local_files",
    "locations": "files.locations",
    "locks": "files.locks",
    "longformer_presets": "presets.longformer",
    "memory": "embed.memory",
    "minimal_pairs.figures": "evaluation.minimal_pairs.figures",
    "minimal_pairs.ngrams": "evaluation.minimal_pairs.ngrams",
    "minimal_pairs.pairs": "evaluation.minimal_pairs.pairs",
    "minimal_pairs.paradigms": "evaluation.minimal_pairs.paradigms",
    "minimal_pairs.results": "evaluation.minimal_pairs.results",
    "minimal_pairs.rows": "evaluation.minimal_pairs.rows",
    "minimal_pairs.scoring": "evaluation.minimal_pairs.scoring",
    "model.published": "saved.files",
    "modernbert_presets": "presets.modernbert",
    "pictures.corpus_sources": "show.corpus_sources",
    "pictures.example_sentences": "show.example_sentences",
    "pictures.head_lines": "show.head_lines",
    "pictures.heads": "show.heads",
    "pictures.loss_by_frequency": "show.loss_by_frequency",
    "pictures.model_texts": "show.model_texts",
    "pictures.run_difference": "show.run_difference",
    "pictures.run_end": "show.run_end",
    "pictures.run_points": "show.run_points",
    "pictures.style": "show.style",
    "pictures.text_map": "show.text_map",
    "pictures.word_contexts": "show.word_contexts",
    "plan": "train.plan",
    "plan_here": "train.plan_here",
    "predict.answers": "fine_tuned.answers",
    "predict.encoders": "embed.encoders",
    "predict.retrieval": "embed.retrieval",
    "predict.similarity": "embed.similarity",
    "presets": "presets.table",
    "ray_private": "on_ray.ray_private",
    "ray_worker": "on_ray.ray_worker",
    "retries": "files.retries",
    "retrieval.beir": "evaluation.retrieval.beir",
    "retrieval.bm25": "evaluation.retrieval.bm25",
    "retrieval.collection": "evaluation.retrieval.collection",
    "retrieval.cranfield": "evaluation.retrieval.cranfield",
    "retrieval.measures": "evaluation.retrieval.measures",
    "retrieval.ranking": "evaluation.retrieval.ranking",
    "retrieval.reading": "evaluation.retrieval.reading",
    "shared_output": "files.shared_output",
    "standard_output": "command_line.standard_output",
    "stopping": "command_line.stopping",
    "storage": "files.storage",
    "tasks.bad_rows": "tables.bad_rows",
    "tasks.columns": "tables.columns",
    "tasks.content": "tables.content",
    "tasks.entities": "tasks.metrics.entities",
    "tasks.lengths": "tasks.metrics.lengths",
    "tasks.metrics": "tasks.metrics.label_metrics",
    "tasks.ranking_metrics": "tasks.metrics.ranking",
    "tasks.readers": "tables.readers",
    "tasks.recognise": "tables.recognise",
    "tasks.saved": "fine_tuned.record",
    "tasks.squad": "tables.squad",
    "tasks.squad_metrics": "tasks.metrics.squad",
    "tasks.submission": "finetune.submission_zip",
    "tasks.word_columns": "tables.word_columns",
    "text.extracted": "wikipedia.extracted",
    "text.formulas": "wikipedia.formulas",
    "text.residue": "wikipedia.residue",
    "text.template_arguments": "wikipedia.template_arguments",
    "text.template_prose": "wikipedia.template_prose",
    "text.template_quantities": "wikipedia.template_quantities",
    "text.templates": "wikipedia.templates",
    "text.wikilines": "wikipedia.wikilines",
    "text.wikinames": "wikipedia.wikinames",
    "text.wikitext": "wikipedia.wikitext",
    "train.answers": "fine_tuned.decoding",
    "train.blanks": "evaluation.blanks",
    "train.blimp": "evaluation.blimp",
    "train.candidates": "finetune.candidates",
    "train.chain": "objectives.chain",
    "train.drivers": "tracking.drivers",
    "train.evaluate": "evaluation.evaluate",
    "train.failures": "tracking.failures",
    "train.few_labels": "finetune.few_labels",
    "train.gather": "evaluation.gather",
    "train.heldout": "evaluation.heldout",
    "train.heldout_words": "evaluation.heldout_words",
    "train.lamb": "optim.lamb",
    "train.loss_scale": "optim.loss_scale",
    "train.muon": "optim.muon",
    "train.naming": "saved.naming",
    "train.optim": "optim.build",
    "train.origin": "tracking.origin",
    "train.pictures": "tracking.curves",
    "train.points": "tracking.points",
    "train.published_tuned": "fine_tuned.published_tuned",
    "train.run": "train.run_identity",
    "train.schedule": "optim.schedule",
    "train.seen_words": "finetune.seen_words",
    "train.stable_adam_w": "optim.stable_adam_w",
    "train.token_frequency": "evaluation.token_frequency",
    "train.tracker": "tracking.tracker",
    "train.tracking": "tracking.runs",
    "train.trial": "finetune.trial",
    "train.trial_rows": "finetune.trial_rows",
    "train.trial_state": "finetune.trial_state",
    "train.tuned": "fine_tuned.tuned",
    "train.views": "tracking.views",
    "wire_format": "files.wire_format",
}
"""Module in pipeline/ before -> module since."""
BEFORE = re.compile(r"\bpipeline\.(" + "|".join(sorted(map(re.escape, MOVED), key=len, reverse=True)) + r")\b(?!\.)")
FROM = re.compile(r"^([ \t]*)from (pipeline(?:\.\w+)?) import ([\w, ]+?)(?=[ \t]*(?:#.*)?$)", re.MULTILINE)


def rewritten(text: str) -> str:
    """Return a program with the names of modules since, in both forms of import; imports in brackets do not change."""

    def since(match: re.Match[str]) -> str:
        indent, package, names = match.groups()
        lines = []
        for name, _, alias in (words.strip().partition(" as ") for words in names.split(",")):
            place = MOVED.get(f"{package}.{name}".removeprefix("pipeline."))
            folder, module = (package, name) if place is None else f"pipeline.{place}".rsplit(".", 1)
            called = alias or name
            lines.append(f"{indent}from {folder} import {module}{'' if called == module else f' as {called}'}")
        return match.group() if all(line.split()[1] == package for line in lines) else "\n".join(lines)

    return FROM.sub(since, BEFORE.sub(lambda match: f"pipeline.{MOVED[match[1]]}", text))


def main(files: list[str]) -> None:
    """Rewrite files in place, and print those that changed."""
    for file in map(Path, files):
        before = file.read_text()
        if (since := rewritten(before)) != before:
            file.write_text(since)
            print(f"{file}: imports rewritten")


if __name__ == "__main__":
    main(sys.argv[1:])

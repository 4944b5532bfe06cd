"""Embed texts, part by part, and write the manifest of their vectors."""

import time

from pipeline.config.embed import Embed
from pipeline.config.locations import with_absolute_locations
from pipeline.embed import folder
from pipeline.embed.embedding import about, embed_missing
from pipeline.embed.formats import require_format
from pipeline.embed.model import describe_on_cpu
from pipeline.embed.results import embedded_lines
from pipeline.embed.texts import text_files
from pipeline.files import storage
from pipeline.files.locks import locked_name
from pipeline.reporting import Report


def embed(config: Embed, report: Report) -> None:
    """Embed all texts of the input, and write the manifest.

    Raises PipelineError, with a one-line message, for everything that the user can fix.
    """
    embed_texts(config, report, "texts")


def embed_texts(config: Embed, report: Report, texts: str) -> None:
    """Embed as `embed` does; `texts` is what the lines call the texts, such as "pieces of 6 documents"."""
    config, begun = with_absolute_locations(config), time.monotonic()
    storage.require_writable("output", config.output.rpartition("/")[0] or "/")
    storage.children(config.output)  # raises ConfigError for a file
    described = describe_on_cpu(config)
    require_format(config.format, described.dimension)
    files = text_files(config)
    asked = about(config, files, described)
    with locked_name(config.output):
        if folder.begin(config.output, asked, config.replace):
            report(f"{config.output} has these vectors already")
            return
        embed_missing(config, files, described, folder.parts_in(config.output), report, texts)
        counts = folder.publish(config.output, asked, described, config.format)
    for line in embedded_lines(counts, described, config.output, time.monotonic() - begun, texts):
        report(line)

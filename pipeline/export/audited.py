"""The block of a model card about the texts that an audit has looked for in the training."""

from collections.abc import Mapping
from typing import Any

from pipeline.export.markdown import table

COUNTS = ("texts", "seen", "not_seen", "too_short")


def audited(splits: Mapping[str, Any]) -> str:
    """Return the card's section, with its heading; empty without an audit."""
    if not splits:
        return ""
    rows = [(name, *(f"{about[count]:,}" for count in COUNTS)) for name, about in splits.items()]
    steps = sorted({about["step"] for about in splits.values()})
    return "\n".join(
        [
            "## Test sets in the training text",
            "",
            "Texts of which a training row had 13 words in a row, or, with 5 to 12 words, all of them. Shorter texts "
            f"cannot be told from chance. Searched in the rows up to step {', '.join(f'{step:,}' for step in steps)}.",
            "",
            table(("split", *(count.replace("_", " ") for count in COUNTS)), rows),
            "",
            "",
        ]
    )

"""Write an ablation's table and picture into its folder."""

from io import BytesIO
from typing import TYPE_CHECKING

from pipeline.ablation.results import AblationResult
from pipeline.ablation.table import as_json, markdown
from pipeline.files import storage

if TYPE_CHECKING:  # an ablation should start without matplotlib
    from matplotlib.figure import Figure

TABLE, PICTURE, VALUES = "table.md", "differences", "ablation.json"


def publish(result: AblationResult, figure: "Figure", folder: str) -> list[str]:
    """Write the picture as PNG and SVG, the table as Markdown and, last, all values as JSON.

    Return lines that name the folder and the files.
    """
    from pipeline.tracking.curves import DPI

    for kind in ("png", "svg"):
        content = BytesIO()
        figure.savefig(content, format=kind, dpi=DPI)
        storage.write_bytes(storage.join(folder, f"{PICTURE}.{kind}"), content.getvalue())
    storage.write_bytes(storage.join(folder, TABLE), markdown(result).encode())
    storage.write_json(storage.join(folder, VALUES), as_json(result))
    return [f"table, values and picture: {folder}/ ({TABLE}, {VALUES}, {PICTURE}.png and .svg)"]

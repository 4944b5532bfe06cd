"""Set the style of all pictures (colours, panels, white background), and write pictures to files."""

import os
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.errors import ConfigError
from pipeline.tracking.curves import BLUE, DPI, RED

GREEN, YELLOW, PURPLE, CYAN = "#228833", "#ccbb44", "#aa3377", "#66ccee"
"""These colours, BLUE, RED and GREY remain distinct in common forms of colour blindness (Paul Tol, bright)."""
LIGHT = "#dddddd"
COLOURS = (BLUE, RED, GREEN, YELLOW, PURPLE, CYAN, "#ee7733", "#000000", "#999933", "#bb9977")
"""Colours of categories, in this order."""
ENDINGS = (".png", ".svg", ".pdf")


def require_picture(path: str) -> None:
    """Raise ConfigError if a picture cannot be written to this file."""
    folder = Path(path).parent
    if Path(path).suffix.lower() not in ENDINGS:
        raise ConfigError(f"picture ({path}) must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if not folder.is_dir():
        raise ConfigError(f"picture ({path}) cannot be written: there is no folder {folder}; make it, or name another")
    if Path(path).is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"picture ({path}) cannot be written: name a file in a folder that you may write to")


def write_picture(figure: Figure, path: str) -> None:
    """Write a figure to a file. The ending of the file's name determines the format."""
    figure.savefig(path, dpi=DPI)


def white_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches. Its background is white, so that text is readable on dark pages."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Axes) -> None:
    """Add a light grid behind a panel's contents, and remove its top and right borders."""
    axes.grid(color=LIGHT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain(text: str) -> str:
    """Escape dollar signs, because matplotlib treats text between dollar signs as a formula."""
    return text.replace("$", r"\$")

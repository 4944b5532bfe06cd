"""Checks for publishing a model: its license as an SPDX identifier, and its name on the Hugging Face hub."""

import difflib
import re

from pipeline.command_line.options import did_you_mean
from pipeline.config.checks import require
from pipeline.errors import ConfigError

REPOSITORY = re.compile(r"[A-Za-z0-9]([\w.-]*\w)?", re.ASCII)
"""Names that the hub allows for an owner or a repository."""
LONGEST = 96
"""Maximum characters of a name on the hub."""
MOST_NEAR = 3
ON_THE_HUB = frozenset(
    [
        "afl-3.0",
        "agpl-3.0",
        "apache-2.0",
        "artistic-2.0",
        "bsd-2-clause",
        "bsd-3-clause",
        "bsd-3-clause-clear",
        "bsl-1.0",
        "cc-by-2.0",
        "cc-by-2.5",
        "cc-by-3.0",
        "cc-by-4.0",
        "cc-by-nc-2.0",
        "cc-by-nc-3.0",
        "cc-by-nc-4.0",
        "cc-by-nc-nd-3.0",
        "cc-by-nc-nd-4.0",
        "cc-by-nc-sa-2.0",
        "cc-by-nc-sa-3.0",
        "cc-by-nc-sa-4.0",
        "cc-by-nd-4.0",
        "cc-by-sa-3.0",
        "cc-by-sa-4.0",
        "cc0-1.0",
        "cdla-permissive-1.0",
        "cdla-permissive-2.0",
        "cdla-sharing-1.0",
        "ecl-2.0",
        "epl-1.0",
        "epl-2.0",
        "etalab-2.0",
        "eupl-1.1",
        "gpl-2.0",
        "gpl-3.0",
        "isc",
        "lgpl-2.1",
        "lgpl-3.0",
        "lppl-1.3c",
        "mit",
        "mpl-2.0",
        "ms-pl",
        "ncsa",
        "ofl-1.1",
        "osl-3.0",
        "postgresql",
        "unlicense",
        "wtfpl",
        "zlib",
    ]
)
"""SPDX identifiers that the hub lists (huggingface.co/docs/hub/repositories-licenses).

The hub's name for any other license is `other`.
"""


def spdx_identifier(given: str) -> str:
    """Return the official spelling of an SPDX identifier; `given` may be in upper or lower case.

    Raises ConfigError, with the most similar identifiers, if the identifier is unknown.
    """
    from packaging.licenses._spdx import LICENSES  # packaging's public function suggests no similar identifiers

    known = {name: str(about["id"]) for name, about in LICENSES.items()}
    if (identifier := known.get(given.lower())) is None:
        near = difflib.get_close_matches(given.lower(), known, n=MOST_NEAR)
        raise ConfigError(
            f"license ({given}) is not an SPDX identifier (spdx.org/licenses), such as apache-2.0 or cc-by-4.0"
            f"{did_you_mean(known[name].lower() for name in near)}"
        )
    return identifier


def license_fields(identifier: str) -> dict[str, str]:
    """Return the license fields of a model card's header; `identifier` has SPDX's spelling."""
    name = identifier.lower()
    if name in ON_THE_HUB:
        return {"license": name}
    return {"license": "other", "license_name": name, "license_link": f"https://spdx.org/licenses/{identifier}.html"}


def require_hub_name(name: str) -> None:
    """Raise ConfigError unless `name` is a valid OWNER/NAME of the hub."""
    owner, slash, own = name.partition("/")
    require(slash != "", f"push_to_hub ({name}) names no owner: give OWNER/NAME, such as my-name/{name or 'my-bert'}")
    usable = all(REPOSITORY.fullmatch(part) and "--" not in part and ".." not in part for part in (owner, own))
    require(
        usable and len(name) <= LONGEST and not own.endswith(".git"),
        f"push_to_hub ({name}) is not a valid name on the hub: give OWNER/NAME of at most {LONGEST} characters; OWNER "
        "and NAME each begin with a letter or digit, continue with letters, digits, _ and single - or ., and do not "
        "end with -, . or .git",
    )

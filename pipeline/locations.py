"""Locations: files and folders by path or URL, made absolute, and refused with a login in them."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.errors import ConfigError
from pipeline.local_files import path_problem

LOGIN = re.compile(r"(?i)^(?:((?:https?|hf)://)[^/?#]*@|([\w+.-]+://)[^/?#@:]*:(?!\d+(?:/|$))[^@]*@)")
"""NAME:PASSWORD@ in a URL; the password may hold any character but @, and must not look like a port.

A name without a password counts as a login for http(s) and hf only: gs://anonymous@BUCKET holds no secret.
"""
KEY_OPTION = re.compile(
    r"(?i)([?&;#](?:[\w-]*(?:access_?key(?:id)?|secret(?:_?key)?|api[_-]?key|subscription-key|token|signature"
    r"|credential|password|passwd)|sig|auth|pwd|key)=)[^&;#]*"
)
"""Keys among the options of a bucket URL, and signatures of signed URLs."""
LOCAL_URL = "file://"
MOST_SHOWN = 80
"""Characters of an invalid path that a message shows."""


def is_url(location: str) -> bool:
    """Return whether `location` has a scheme, as in s3://bucket/key."""
    return "://" in location


def is_absolute(location: str) -> bool:
    """Return whether a location means the same in every process, as those that `absolute` returns."""
    return location.startswith("/") or (is_url(location) and not location.startswith(LOCAL_URL))


def absolute(location: str) -> str:
    """Return a location that means the same in every process: URLs unchanged, local paths made absolute.

    Raises ConfigError for a URL with a login in it, and for an invalid path.
    """
    _refuse_login(location)
    if location.startswith(LOCAL_URL):
        return urlsplit(location).path
    if is_url(location):
        return location.rstrip("/")
    require_valid_path(location)
    return str(Path(location).expanduser().absolute())


def require_valid_path(path: str) -> None:
    """Raise ConfigError for a path that no file can have."""
    if problem := path_problem(path):
        shown = path.encode("utf-8", "backslashreplace").decode()
        raise ConfigError(f"{shown[:MOST_SHOWN]}{'…' * (len(shown) > MOST_SHOWN)} is no path: {problem}")


def _refuse_login(location: str) -> None:
    """Raise ConfigError for a URL with a login; the message leaves it out, since locations appear in logs, manifests
    and MLflow.
    """
    if without_login(location) != location:
        raise ConfigError(
            f"{without_login(location)} was given with a login in it, which would stand in logs, manifests and MLflow: "
            "put it into the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS) "
            "or into ~/.netrc (https://), and fetch what a signed URL names yourself"
        )


def without_login(location: str) -> str:
    """Return a URL with *** instead of name and password, and instead of keys among its options."""
    if not is_url(location):
        return location
    return KEY_OPTION.sub(r"\1***", LOGIN.sub(lambda match: f"{match[1] or match[2]}***@", location))

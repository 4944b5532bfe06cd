"""Locations of files and folders: make paths absolute, and refuse URLs that contain a login."""

import re
from pathlib import Path
from urllib.parse import unquote

from pipeline.errors import ConfigError
from pipeline.files.local_files import path_problem

LOGIN = re.compile(r"(?i)^(?:((?:https?|hf)://)[^/?#]*@|([\w+.-]+://)[^/?#@:]*:(?!\d+(?:/|$))[^@]*@)")
"""NAME:PASSWORD@ in a URL. The password may hold any character except @, but must not look like a port.

A name without a password counts as a login only in http(s):// and hf://, since gs://anonymous@BUCKET has no secret.
"""
KEY_OPTION = re.compile(
    r"(?i)([?&;#](?:[\w-]*(?:access_?key(?:id)?|secret(?:_?key)?|api[_-]?key|subscription-key|token|signature"
    r"|credential|password|passwd)|sig|auth|pwd|key)=)[^&;#]*"
)
"""Secrets among the options of a URL: access keys of buckets, and signatures of signed URLs."""
LOCAL_URL = "file://"
SQLITE = "sqlite:///"
"""Prefix of the URI of a local SQLite file."""
MOST_SHOWN = 80
"""Maximum number of characters of an invalid path in a message."""


def is_url(location: str) -> bool:
    """Return whether `location` has a scheme, as in s3://bucket/key."""
    return "://" in location


def is_absolute(location: str) -> bool:
    """Return whether a location means the same in every process, as the results of `absolute` do."""
    return location.startswith("/") or (is_url(location) and not location.startswith(LOCAL_URL))


def absolute(location: str) -> str:
    """Return a location that means the same in every process: an absolute path, or a URL without a slash at its end.

    file:// URLs become paths. Raises ConfigError for a URL that contains a login, for an invalid path, and for a file://
    URL without an absolute path.
    """
    _refuse_login(location)
    if location.startswith(LOCAL_URL):
        # Not by urlsplit, which ends the path at a # or ?: people write file:// before a path as it is.
        host, _, path = location.removeprefix(LOCAL_URL).partition("/")
        if host not in ("", "localhost"):
            raise ConfigError(f"{location} has no absolute path: write {LOCAL_URL}/FOLDER/FILE, or the path alone")
        return "/" + unquote(path)
    if is_url(location):
        return location.rstrip("/")
    require_valid_path(location)
    return str(Path(location).expanduser().absolute())


def require_valid_path(path: str) -> None:
    """Raise ConfigError for a path that no file can have."""
    if problem := path_problem(path):
        shown = path.encode("utf-8", "backslashreplace").decode()
        raise ConfigError(f"{shown[:MOST_SHOWN]}{'…' * (len(shown) > MOST_SHOWN)} is not a valid path: {problem}")


def _refuse_login(location: str) -> None:
    """Raise ConfigError for a URL with a login, because locations appear in logs, manifests and MLflow.

    The message does not repeat the login.
    """
    if without_login(location) != location:
        raise ConfigError(
            f"{without_login(location)} was given with a login in it, which would appear in logs, manifests and "
            "MLflow: put the login into the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS) or into ~/.netrc (https://); download the file of a signed URL yourself, "
            "and give its path"
        )


def without_login(location: str) -> str:
    """Return a location with *** in place of name and password, and in place of secrets among a URL's options."""
    if not is_url(location):
        return location
    return KEY_OPTION.sub(r"\1***", LOGIN.sub(lambda match: f"{match[1] or match[2]}***@", location))


def sqlite_uri(path: str) -> str:
    """Return the URI of a SQLite file. SQLAlchemy takes what follows a question mark for options, and decodes %XX."""
    return SQLITE + path.replace("%", "%25").replace("?", "%3F")


def sqlite_file(uri: str) -> str | None:
    """Return the path of the SQLite file of a URI, which may have options after a "?"; None for the URI of a server."""
    return unquote(uri[len(SQLITE) :].partition("?")[0]) if uri.startswith(SQLITE) else None

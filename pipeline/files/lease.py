"""Give a name in an object store to one process at a time: a lease, which is written by conditional puts alone.

- **Take**: create the object. If it exists, replace it with the next attempt's number, provided that it was released
  or did not change for LEASE_SECONDS while this process watched. The put is refused if another process renewed or took
  the lease since it was read. No time is stored, so the clocks of two machines are never compared.
- **Renew**: replace the version that was written last, every RENEW_SECONDS. If storage fails, try again the next time.
  A refused put means that the lease is lost, unless the object is of this process: a put whose answer was lost.
- **Release**: mark it, so that the next process need not wait. The object stays, because attempts need new numbers.
- A lease cannot stop a plain put that is on its way. So every attempt writes under names of its own, and the lease
  records from which step each attempt counts (`began`): readers leave out what earlier attempts wrote after that step.
- A holder reads the lease before it publishes, and once more before it deletes older files: whoever takes the lease
  after the second look has seen the newer files, however late the answer comes.
"""

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore, ObjectStore, S3Store

from pipeline.errors import CheckpointError
from pipeline.files import storage

LEASE_SECONDS = 60.0
"""A lease that did not change for this long, by the clock of the process that watches it, may be taken."""
RENEW_SECONDS = 15.0
POLL_SECONDS = 5.0
"""Between two looks at another process's lease."""
Version = dict[str, str]
"""ETag (S3) and generation (Google) of an object."""


class PutRefused(Exception):
    """A conditional put was refused, because the object has changed since it was read."""


class Conditional(Protocol):
    """An object that is replaced only if it did not change."""

    def read(self) -> tuple[bytes, Version] | None:
        """Return the content and its version; None if the object does not exist. Raises OSError."""

    def write(self, content: bytes, version: Version | None) -> Version:
        """Replace a version; for None, create the object. Raises PutRefused, and OSError if storage fails."""


class LeaseClock:
    """The clock of this process; tests have others."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class LeaseRecord:
    """Content of a lease."""

    attempt: int
    driver: str
    """Process that holds the lease, for messages."""
    holder: str
    """Random text that distinguishes two processes with the same name."""
    renewals: int = 0
    released: bool = False
    began: dict[str, int] = field(default_factory=dict)
    """Attempt -> step from which it counts. An attempt that never trained is missing."""


class LeaseHeld(Exception):
    """Another process holds the lease; the only argument is its record."""


class LeaseLost(Exception):
    """Another process took the lease; the only argument is its record, or None if the object is gone."""


class Lease:
    """A lease of this process. Its methods may be called from several threads."""

    def __init__(self, stored: Conditional, driver: str, clock: LeaseClock) -> None:
        self.stored, self.driver, self.clock = stored, driver, clock
        self.holder = secrets.token_hex(8)
        self.lock = threading.Lock()
        self.version: Version | None = None
        self.record: LeaseRecord | None = None
        """Record that this process wrote last; None before `take`."""

    def read(self) -> tuple[LeaseRecord, Version] | None:
        """Return what the store has now; None for nothing. Raises OSError, and CheckpointError for a damaged object."""
        if (found := self.stored.read()) is None:
            return None
        try:
            return LeaseRecord(**storage.parse_json(found[0])), found[1]
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"a lease is damaged ({error}): delete it when no driver is left") from error

    def take(self, least: int, watching: Callable[[LeaseRecord], None]) -> None:
        """Take the lease, with a number above `least`. Raises LeaseHeld, and OSError if storage fails.

        `watching` is called before this process watches a lease that was not released.
        """
        found = self.read()
        if found and not found[0].released:
            watching(found[0])
            found = self._watched(found)
        before, version = found or (None, None)
        number = 1 + max(least, before.attempt if before else 0)
        began = before.began if before else {}
        try:
            self._write(LeaseRecord(attempt=number, driver=self.driver, holder=self.holder, began=began), version)
        except LeaseLost as error:
            (newer,) = error.args
            if newer is None:
                raise OSError("the lease was deleted while it was taken") from error
            raise LeaseHeld(newer) from error

    def _watched(self, found: tuple[LeaseRecord, Version]) -> tuple[LeaseRecord, Version] | None:
        """Return the lease once it may be taken; None if it was deleted. Raises LeaseHeld if it was renewed."""
        since = self.clock.now()
        while self.clock.now() - since < LEASE_SECONDS:
            self.clock.wait(POLL_SECONDS)
            seen = self.read()
            if seen is None or seen[0].released:
                return seen
            if seen[1] != found[1]:
                raise LeaseHeld(seen[0])
        return found

    def renew(self) -> None:
        """Show that this process lives. Raises LeaseLost, OSError if storage fails, and CheckpointError as `read`."""
        with self.lock:
            record = self.held()
            self._write(replace(record, renewals=record.renewals + 1), self.version)

    def begin(self, step: int) -> int:
        """Record the step from which this attempt counts; return the attempt's number. Raises as `renew` does."""
        with self.lock:
            record = self.held()
            self._write(replace(record, began=record.began | {str(record.attempt): step}), self.version)
            return record.attempt

    def is_kept(self) -> bool:
        """Return whether the store refuses to create the lease again; False for a store that ignores conditions."""
        with self.lock:
            try:
                self.version = self.stored.write(_content(self.held()), None)
            except PutRefused:
                return True
            return False

    def release(self) -> None:
        """Let the next process take the lease at once. If storage fails, or the object is damaged, do nothing."""
        with self.lock, suppress(OSError, LeaseLost, CheckpointError):
            self._write(replace(self.held(), released=True), self.version)

    def held(self) -> LeaseRecord:
        """Return what this process wrote last."""
        assert self.record is not None, "take the lease first"
        return self.record

    def _write(self, record: LeaseRecord, version: Version | None) -> None:
        """Replace `version`. Raises LeaseLost if another process has written since, and OSError if storage fails."""
        try:
            self.version = self.stored.write(_content(record), version)
        except PutRefused as error:
            found = self.read()
            if found and found[1] == version:  # two puts met, and the store refused both
                raise OSError(storage.first_line(error)) from error
            if found is None or found[0].holder != record.holder:
                raise LeaseLost(found and found[0]) from error
            if found[0] != record:  # an earlier put of this process had arrived, and its answer was lost
                self._write(record, found[1])
                return
            self.version = found[1]  # this put had arrived
        self.record = record


def _content(record: LeaseRecord) -> bytes:
    return json.dumps(asdict(record)).encode()


class InStore:
    """An object in S3 or in Google's store, written with obstore."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self.store, self.key = store, key

    def read(self) -> tuple[bytes, Version] | None:
        try:
            found = obstore.get(self.store, self.key)
            return bytes(found.bytes()), _version(found.meta)
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise OSError(storage.first_line(error)) from error

    def write(self, content: bytes, version: Version | None) -> Version:
        mode: Any = version or "create"
        try:
            return _version(obstore.put(self.store, self.key, content, mode=mode))
        except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:  # not found: it was deleted
            raise PutRefused(storage.first_line(error)) from error
        except BaseError as error:
            raise OSError(storage.first_line(error)) from error


def _version(about: Mapping[str, Any]) -> Version:
    """Return the entries of an answer of obstore that tell two versions apart."""
    return {name: about[name] for name in ("e_tag", "version") if about[name] is not None}


def in_store(location: str) -> InStore | None:
    """Return the object at a URL; None for a store that is neither S3 nor Google's. Raises OSError and ConfigError.

    Also None for an emulator of Google's store: only Arrow knows its address, and obstore would ask Google.
    """
    system, path = storage.filesystem(location)
    bucket, _, key = path.partition("/")
    options: Any = {"client_options": {"timeout": "15s", "allow_http": True}, "retry_config": {"max_retries": 2}}
    if system.type_name == "gcs" and not os.environ.get("CLOUD_STORAGE_EMULATOR_ENDPOINT"):
        return InStore(GCSStore(bucket, **options), key)
    if system.type_name != "s3":
        return None
    return InStore(S3Store(bucket, region=system.region, credential_provider=_aws_login(), **options), key)


def _aws_login() -> Any:
    """Return boto3's login, which may be a profile of ~/.aws; None for what obstore finds: environment, role, pod."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider()
    except (ImportError, ValueError):  # boto3 is not installed, or finds no login
        return None

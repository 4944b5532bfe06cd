"""Mutants of what must not be lost, shown or run: checkpoints, outputs, errors, locks, secrets and tracking."""

from tests.mutants.mutant import Mutant

STORAGE = "tests/unit/files/test_storage.py"

OF_SAFETY = (
    # Checkpoints
    Mutant(
        name="digest-unverified",
        guarantee="checkpoints: size and digest of every file are verified",
        file="files/storage.py",
        before="if sha256(location) != digest:",
        after="if not sha256(location):",
        tests=(STORAGE,),
    ),
    Mutant(
        name="oldest-checkpoint",
        guarantee="checkpoints: the newest sound one is loaded",
        file="saved/checkpoints.py",
        before="for folder in reversed(folders.values()):",
        after="for folder in folders.values():",
        tests=("tests/unit/train/test_checkpoint.py::test_newest_sound_skips_damaged_checkpoints",),
    ),
    Mutant(
        name="storage-away-is-damage",
        guarantee="checkpoints: storage that fails for a while costs no work",
        file="files/storage.py",
        before="return isinstance(error, FileNotFoundError) or error.errno == errno.EIO",
        after="return isinstance(error, OSError)",
        tests=(STORAGE,),
    ),
    Mutant(
        name="one-checkpoint-too-many",
        guarantee="retention: the newest checkpoints are kept, and the best one beside them",
        file="train/checkpoint.py",
        before="[-keep:]",
        after="[-keep - 1 :]",
        tests=("tests/unit/train/test_checkpoint.py::test_the_newest_are_kept",),
    ),
    Mutant(
        name="lease-without-condition",
        guarantee="fenced runs: a lease is replaced only at the version that was read",
        file="files/lease.py",
        before='mode: Any = version or "create"',
        after='mode: Any = "overwrite"',
        tests=("tests/unit/tracking/test_attempt.py::test_an_object_is_created_once_and_replaced_only_at_its_version",),
    ),
    Mutant(
        name="superseded-counts",
        guarantee="fenced runs: what an attempt wrote after a take-over does not count",
        file="saved/checkpoints.py",
        before="counting = [each for each in found if each not in superseded]",
        after="counting = found",
        tests=("tests/unit/saved/test_checkpoints.py::test_what_counts_of_several_attempts",),
    ),
    Mutant(
        name="superseded-deletes",
        guarantee="fenced runs: a superseded attempt deletes nothing",
        file="train/saver.py",
        before="""        require_current(self.folder, self.attempt)
        kept""",
        after="        kept",
        tests=(
            "tests/unit/tracking/test_attempt.py::"
            "test_a_driver_that_wakes_in_the_middle_of_a_checkpoint_publishes_and_deletes_nothing_that_counts",
        ),
    ),
    Mutant(
        name="best-checkpoint-deleted",
        guarantee="retention: the newest checkpoints are kept, and the best one beside them",
        file="train/checkpoint.py",
        before="if old not in kept and old not in stays:",
        after="if old not in kept:",
        tests=("tests/unit/train/test_saver.py::test_the_best_is_kept_beside_the_newest",),
    ),
    Mutant(
        name="other-settings-continue",
        guarantee="resume: a run of other settings is refused with both values",
        file="train/run_identity.py",
        before="if recorded.get(key) != wanted.get(key)]",
        after="if key not in recorded]",
        tests=("tests/unit/train/test_run_identity.py",),
    ),
    # Nothing half-written
    Mutant(
        name="manifest-first",
        guarantee="nothing half-written: a manifest is written last",
        file="files/storage.py",
        before="    make_folder(target)\n    files = {}\n",
        after="    make_folder(target)\n    write_json(join(target, MANIFEST), about)\n    files = {}\n",
        tests=(STORAGE,),
    ),
    Mutant(
        name="manifest-deleted-last",
        guarantee="nothing half-written: a manifest is deleted first",
        file="files/storage.py",
        before="    if is_file(manifest):\n        delete_file(manifest)\n",
        after="",
        tests=(STORAGE,),
    ),
    Mutant(
        name="written-in-place",
        guarantee="nothing half-written: readers never see a part of a file",
        file="files/storage.py",
        before="        replace_file(path, content)\n",
        after="        with open(path, 'wb') as stream:\n            stream.write(content)\n",
        tests=(STORAGE,),
    ),
    # Errors, locks and secrets
    Mutant(
        name="fixable-errors-exit-with-1",
        guarantee="errors: one line, and exit code 2 for what the user can fix",
        file="errors.py",
        before="exit_code = 2",
        after="exit_code = 1",
        tests=("tests/unit/command_line/test_exit_codes.py",),
    ),
    Mutant(
        name="errors-on-standard-output",
        guarantee="errors: one line, and exit code 2 for what the user can fix",
        file="command_line/exit_codes.py",
        before='print(as_called(f"error: {error}"), file=sys.stderr)',
        after='print(as_called(f"error: {error}"))',
        tests=("tests/unit/command_line/test_exit_codes.py",),
    ),
    Mutant(
        name="lock-shared",
        guarantee="locks: a second process that would write the same folder is refused",
        file="files/locks.py",
        before="fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB",
        after="fcntl.LOCK_EX if wait else fcntl.LOCK_SH | fcntl.LOCK_NB",
        tests=("tests/unit/files/test_locks.py",),
    ),
    Mutant(
        name="process-id-is-enough",
        guarantee="locks: a driver is gone when its process has ended, also if its id was given again",
        file="tracking/drivers.py",
        before="and abs(process.create_time() - start) <= SAME_START",
        after="and start > 0",
        tests=("tests/unit/tracking/test_drivers.py",),
    ),
    Mutant(
        name="pickles-run",
        guarantee="no pickle: a file that asks for more than tensors is refused and not run",
        file="saved/files.py",
        before="weights_only=True, mmap=archive",
        after="weights_only=False, mmap=archive",
        tests=("tests/unit/saved/test_files.py",),
    ),
    Mutant(
        name="secrets-in-options",
        guarantee="secrets: no login and no key of a location is shown or recorded",
        file="files/locations.py",
        before='return KEY_OPTION.sub(r"\\1***", LOGIN.sub(lambda match: f"{match[1] or match[2]}***@", location))',
        after='return LOGIN.sub(lambda match: f"{match[1] or match[2]}***@", location)',
        tests=("tests/unit/files/test_locations.py::test_no_location_of_a_run_may_have_a_login_in_it",),
    ),
    Mutant(
        name="logins-accepted",
        guarantee="secrets: no login and no key of a location is shown or recorded",
        file="files/locations.py",
        before="    _refuse_login(location)\n    if location.startswith(LOCAL_URL):",
        after="    if location.startswith(LOCAL_URL):",
        tests=("tests/unit/files/test_locations.py::test_no_location_of_a_run_may_have_a_login_in_it",),
    ),
    Mutant(
        name="no-token-needed",
        guarantee="closed ports: a server with a token answers nobody without it",
        file="serve/gate.py",
        before="if not hmac.compare_digest(digest(given), self.token):",
        after="if given and not hmac.compare_digest(digest(given), self.token):",
        tests=("tests/unit/serve/test_routes.py::test_a_token_is_needed_everywhere_but_for_health",),
    ),
    # MLflow
    Mutant(
        name="steps-logged-twice",
        guarantee="MLflow: a restarted run doubles no step",
        file="tracking/tracker.py",
        before="for key, value in metrics.items() if step not in self.points.get(key, {})}",
        after="for key, value in metrics.items()}",
        tests=("tests/unit/tracking/test_runs.py::test_a_second_tracker_drops_the_steps_that_are_there",),
    ),
    Mutant(
        name="metrics-after-the-checkpoint",
        guarantee="MLflow: a run that goes on from a checkpoint has every step before it",
        file="train/saver.py",
        before="""        self.flush()
        self._write_with_retries(state, lambda: self._publish(state, taken), "be written")
""",
        after="""        self._write_with_retries(state, lambda: self._publish(state, taken), "be written")
        self.flush()
""",
        tests=("tests/unit/train/test_saver.py",),
    ),
)

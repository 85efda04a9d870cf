# SPDX-License-Identifier: Apache-2.0
"""The lease of an output folder: one command at a time owns it, and says so in `_owner.json` until it ends.

The command that drives a job owns its folder. The workers of the job, wherever they are, never look at the file, except
for the last step, which publishes only if the folder is still its own. An owner renews its file. It counts as dead when
the file stays the same for `SILENT_SECONDS` while another command looks on; no clocks are compared. On a disk the file
is also locked with `flock`, which the kernel releases however an owner dies: who gets the lock of an owner on the same
machine, perhaps in another container, goes on at once. The job that a dead owner, or one that has detached itself, gave
to a runner elsewhere may live: the runner is asked.

Without locks an owner writes its name, and checks a moment later that the name is still there. If two start at once,
the last one to write wins, provided that neither takes longer from looking to writing than `SETTLE_SECONDS` or twice
the time of the other. If one does, the other finds out when it next renews the file, and does not publish.
"""

import contextlib
import errno
import json
import logging
import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Self

from pydantic import TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB, RunnerJob, is_over

OWNER = "_owner.json"
"""The name of the file; a folder without an owner has none."""
BEAT_SECONDS = 10.0
"""How often an owner renews its file."""
SILENT_SECONDS = 60.0
SETTLE_SECONDS = 3.0
_PATIENCE_SECONDS = 1.0
"""How long who has the lock may take to write its name, or to see that nobody else has it."""
_MOST_BYTES = 1 << 16
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EPERM, errno.EINVAL}
"""Errors of filesystems that have no locks."""


@dataclass(frozen=True)
class _Owner:
    """The contents of `_owner.json`."""

    nonce: str
    """Random, because a process may own a folder twice."""
    command: str
    since: str
    host: str
    pid: int
    machine: str
    """An id that its containers share, and that changes when it starts; the name of the host if there is none."""

    @classmethod
    def read(cls, output: str) -> Self | None:
        """Returns the owner that a folder names, dead or alive; None if it names none that can be read."""
        try:
            with storage.open_read(storage.join(output, OWNER)) as handle:
                owner = json_files.parse(handle.read(_MOST_BYTES).decode(), TypeAdapter(_Owner), OWNER)
            return cls(**vars(owner))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    def __str__(self) -> str:
        return f"{self.command}, process {self.pid} on {self.host!r}, since {self.since}"


@dataclass(frozen=True)
class Lease:
    """A command's claim on a folder; it travels to workers with the job."""

    output: str
    nonce: str

    def check(self) -> None:
        """Raises if the folder has another owner now.

        Raises:
          ValueError: naming the other owner.
          OSError: if the owner cannot be found out.
        """
        owner = _Owner.read(self.output)
        for _ in range(5):  # HDFS replaces a file in two steps, and here it is written in place
            if owner is not None:
                break
            time.sleep(0.1)
            owner = _Owner.read(self.output)
        if owner is None:
            raise ValueError(f"output folder {self.output!r} has lost its {OWNER}; nothing is published")
        if owner.nonce != self.nonce:
            raise ValueError(f"output folder {self.output!r} was taken over by {owner}; nothing is published")


@contextlib.contextmanager
def own(output: str, command: str, on_lost: Callable[[], None] = lambda: None) -> Iterator[Lease]:
    """Owns a folder while the block runs; creates a missing folder.

    Args:
      output: the folder.
      command: the name of the command, shown to others that want the folder meanwhile.
      on_lost: called, in another thread, when another command has taken the folder because this process seemed dead.

    Raises:
      ValueError: if another command owns the folder; the message says which, where, since when, and what to do.
      OSError: if the folder cannot be written to.
    """
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    owner = _Owner(uuid.uuid4().hex, command, since, platform.node(), os.getpid(), _machine())
    lease = Lease(output, owner.nonce)
    with contextlib.ExitStack() as stack:
        descriptor = None if storage.is_remote(output) else _lock(output)
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        _take(output, owner, descriptor)
        stack.callback(_release, lease)
        is_over = threading.Event()
        beat = threading.Thread(target=_renew, args=(lease, owner, on_lost, is_over), name="owner", daemon=True)
        stack.callback(beat.join)
        stack.callback(is_over.set)
        beat.start()
        yield lease


def check_free(output: str) -> None:
    """Raises ValueError if a command that is known to live owns a folder: before long work, in which `own` comes last.

    It is silent where only `own` can tell, as on a store.
    """
    owner = _Owner.read(output)
    if owner is not None and _is_locked(output):
        raise ValueError(_in_use(output, owner))


def living_owner(output: str) -> str | None:
    """Returns a description of the folder's living owner, or of its job on a runner; None if it seems to have none."""
    if (owner := _Owner.read(output)) is None:
        return None
    if (job := _job_of(output, owner)) is None or not job.detached:
        is_alive = _is_locked(output) if owner.machine == _machine() else None
        if is_alive is None:
            is_alive = time.time() - storage.changed_at(storage.join(output, OWNER)) < SILENT_SECONDS
        if is_alive:
            return str(owner)
    with contextlib.suppress(OSError):
        return None if job is None or is_over(job.state()) else str(job)
    return None


def _is_locked(output: str) -> bool | None:
    """Returns whether an owner on this machine has the lock; None if that cannot be told, as on a store."""
    if not storage.is_remote(output):
        with contextlib.suppress(OSError), open(storage.join(output, OWNER), "rb") as file:
            return not _is_locked_by_us(file.fileno())
    return None


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def _lock(output: str) -> int | None:
    """Returns the descriptor of the file, locked as long as it is open; None if the filesystem has no locks.

    Raises:
      ValueError: if another command has the lock. OSError: if the folder cannot be written to.
    """
    path, deadline = storage.join(output, OWNER), time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            storage.make_directory(output)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            is_file = isinstance(error, FileExistsError | NotADirectoryError)
            reason = f"{error.filename!r} is a file" if is_file else error.strerror
            advice = "choose another output.path"
            raise OSError(f"output folder {output!r} cannot be written to: {reason}; {advice}") from error
        try:
            # An owner removes its file while it has the lock; who has opened it before locks what has no name.
            if _is_locked_by_us(descriptor) and os.fstat(descriptor).st_nlink:
                return descriptor
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                return None
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise ValueError(_in_use(output, _Owner.read(output)))
        time.sleep(0.02)


def _is_locked_by_us(descriptor: int) -> bool:
    """Locks an open file for as long as it is open; returns False if it is locked already."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, "no locks of this kind")
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(output: str, owner: _Owner, descriptor: int | None) -> None:
    """Writes the name of an owner into a folder, which has the lock if there are locks; raises ValueError if taken."""
    started = time.monotonic()
    if (earlier := _Owner.read(output)) is not None:
        job = _job_of(output, earlier)
        is_dead = descriptor is not None and (earlier.machine == owner.machine or earlier.host == owner.host)
        if not is_dead and (job is None or not job.detached):
            _wait_until_silent(output, earlier)
            started = time.monotonic()
        if job is not None:
            _refuse_running(output, job)
    if descriptor is not None:
        data = owner.to_json()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        return
    storage.write_atomic(storage.join(output, OWNER), owner.to_json())
    # Another command may have looked before we wrote; its own write takes about as long as ours did.
    time.sleep(max(SETTLE_SECONDS, 2 * (time.monotonic() - started)))
    if (winner := _Owner.read(output)) is None or winner.nonce != owner.nonce:
        raise ValueError(_in_use(output, winner))


def _wait_until_silent(output: str, owner: _Owner) -> None:
    """Waits until an owner has not renewed its file for `SILENT_SECONDS`; raises ValueError if it does."""
    path = storage.join(output, OWNER)
    logging.getLogger(__name__).warning(
        "output folder %r belongs to %s, unless that is dead, which takes %.0f s to tell", output, owner, SILENT_SECONDS
    )
    renewed, started = storage.changed_at(path), time.monotonic()
    while time.monotonic() - started < SILENT_SECONDS:
        time.sleep(min(1.0, BEAT_SECONDS / 2))
        try:
            if storage.changed_at(path) != renewed:
                raise ValueError(_in_use(output, owner))
        except FileNotFoundError:
            return  # it has ended meanwhile


def _job_of(output: str, owner: _Owner) -> RunnerJob | None:
    """Returns the job that an owner has given to a runner elsewhere, if it has."""
    job = RunnerJob.read(output)
    return job if job is not None and job.nonce == owner.nonce else None


def _refuse_running(output: str, job: RunnerJob) -> None:
    """Raises ValueError if a runner elsewhere still does the job of a dead owner, or cannot be asked."""
    try:
        state = job.state()
    except OSError as error:
        raise ValueError(
            f"output folder {output!r} is in use by {job}, if that still runs: {error}; start the job server, or "
            f"if the job is gone for good, delete {RUNNER_JOB}"
        ) from None
    if not is_over(state):
        raise ValueError(
            f"output folder {output!r} is in use: {job} is {state}; `tokenmill attach {output}` waits for it, with "
            "--cancel it is stopped"
        )


def _in_use(output: str, owner: _Owner | None) -> str:
    who = owner or "another command that has just started"
    return f"output folder {output!r} is in use: {who}; wait until it is done, stop it, or choose another folder"


def _renew(lease: Lease, owner: _Owner, on_lost: Callable[[], None], is_over: threading.Event) -> None:
    path = storage.join(lease.output, OWNER)
    while not is_over.wait(BEAT_SECONDS):
        try:
            lease.check()
            if storage.is_remote(path):
                storage.write_atomic(path, owner.to_json())
            else:
                os.utime(path)
        except ValueError:
            on_lost()
            return
        except OSError:
            continue  # the store is not reachable; try again at the next beat


def _release(lease: Lease) -> None:
    # If this fails, the file names an owner that counts as dead once this process has ended.
    with contextlib.suppress(ValueError, OSError):
        lease.check()
        job = RunnerJob.read(lease.output)  # of an earlier owner, if its nonce is another
        if job is None or job.nonce != lease.nonce or not job.detached:
            storage.delete(storage.join(lease.output, RUNNER_JOB))
            storage.delete(storage.join(lease.output, OWNER))

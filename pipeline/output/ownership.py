# SPDX-License-Identifier: Apache-2.0
"""Ownership of an output folder: one command at a time owns it, and says so in `_owner.json` until it ends.

The command that drives a job owns its folder. The workers of the job, wherever they are, never look at the file, except
for the last step, which publishes only if the folder is still its own. These signs tell a dead owner from a living one,
strongest first:

- On local disks the file is locked with `flock`, and the kernel releases the lock when the owner dies, however it
  dies. A command that gets the lock on the same machine may go on at once, also from another container.
- If the owner is on this machine, its process is looked up.
- Any other owner counts as dead when it has not renewed the file for `SILENT_SECONDS`, by the clock of the store:
  machines that share a store need not agree on the time.

The job that a dead owner, or one that has detached itself, gave to a runner elsewhere may live: the runner is asked.

Without locks, as on object stores, an owner writes its name, and checks a moment later that the name is still there.
If two start at once, the last one to write wins, provided that neither takes longer from looking to writing than
`SETTLE_SECONDS` or twice the time of the other. If one does, the other finds out when it next renews the file, and does
not publish.
"""

import contextlib
import errno
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import BinaryIO, Self

from pydantic import TypeAdapter

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.running.processes import Process
from tokenmill.pipeline.running.runner_jobs import RUNNER_JOB, RunnerJob, is_over

OWNER = "_owner.json"
"""The name of the file; a folder without an owner has none."""

BEAT_SECONDS = 30.0
"""How often an owner renews its file."""

SILENT_SECONDS = 600.0
"""An owner whose process cannot be looked up counts as dead when its file is older than this."""

SETTLE_SECONDS = 3.0
"""Without locks: the least time between writing the file and checking who wrote it last."""

_PATIENCE_SECONDS = 2.0
"""How long another command, which has the lock of a dead owner, may take to write its own name."""

_MOST_BYTES = 1 << 16

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EPERM, errno.EINVAL}
"""Errors of filesystems that have no locks or no hard links."""


@dataclass(frozen=True)
class _Owner:
    """The contents of `_owner.json`."""

    nonce: str
    """Random, because a process may own a folder twice."""
    command: str
    since: str
    process: Process

    @classmethod
    def read(cls, output: str) -> Self | None:
        """Returns the owner that a folder names, dead or alive; None if it names none that can be read."""
        try:
            with storage.open_read(storage.join(output, OWNER)) as handle:
                owner = json_files.parse(handle.read(_MOST_BYTES).decode(), TypeAdapter(_Owner), OWNER)
            return cls(**vars(owner))
        except (FileNotFoundError, ValueError):
            return None
        except OSError:
            if storage.exists(storage.join(output, OWNER)):
                raise
            return None  # Beam's filesystems have no particular error for a missing file

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    def __str__(self) -> str:
        return f"{self.command}, process {self.process.pid} on {self.process.host!r}, since {self.since}"


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
        found = _Owner.read(self.output)
        for _ in range(5):  # HDFS replaces a file in two steps; between them there is none
            if found is not None:
                break
            time.sleep(0.1)
            found = _Owner.read(self.output)
        if found is None:
            raise ValueError(f"output folder {self.output!r} has lost its {OWNER}; nothing is published")
        if found.nonce != self.nonce:
            raise ValueError(f"output folder {self.output!r} was taken over by {found}; nothing is published")


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
    owner = _Owner(uuid.uuid4().hex, command, since, Process.current())
    lease = Lease(output, owner.nonce)
    with contextlib.ExitStack() as stack:
        descriptor = None if storage.is_remote(output) else _take_locked(output, owner)
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        else:
            _take_unlocked(output, owner)
        stack.callback(_release, lease)
        is_over = threading.Event()
        beat = threading.Thread(target=_renew, args=(lease, owner, on_lost, is_over), name="owner", daemon=True)
        stack.callback(beat.join)
        stack.callback(is_over.set)
        beat.start()
        yield lease


def check_free(output: str) -> None:
    """Raises ValueError if a command that is known to live owns a folder: before long work, in which `own` comes last.

    It is silent where only `own` can tell, as on a store, whose clock decides.
    """
    found = _Owner.read(output)
    if found is not None and found.process.is_dead(Process.current()) is False:
        raise ValueError(_in_use(output, found))


def living_owner(output: str) -> str | None:
    """Returns a description of the folder's living owner, or of its job on a runner; None if it seems to have none."""
    found = _Owner.read(output)
    if found is None:
        return None
    is_dead = found.process.is_dead(Process.current())
    if is_dead is None:
        changed = storage.changed_at(storage.join(output, OWNER))
        is_dead = changed is not None and time.time() - changed > SILENT_SECONDS
    job = _job_of(output, found)
    if not is_dead and (job is None or not job.detached):
        return str(found)
    with contextlib.suppress(OSError):
        return None if job is None or is_over(job.state()) else str(job)
    return None


def _take_locked(output: str, owner: _Owner) -> int | None:
    """Returns the descriptor of a lock that is held as long as it is open; None if the filesystem has no locks.

    The file appears complete and already locked, because a temporary file is linked or renamed to its name. So no other
    command ever sees a part of it, or locks it before us.
    """
    path = storage.join(output, OWNER)
    staged = f"{path}.{owner.nonce}.tmp"
    try:
        storage.make_directory(output)
        descriptor = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{error.filename!r} is a file" if is_file else error.strerror
        raise OSError(f"output folder {output!r} cannot be written to: {reason}; choose another output.path") from error
    try:
        os.write(descriptor, owner.to_json())
        _lock(descriptor)
        _put(output, staged, owner)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno in _NO_LOCKS:
            return None
        raise
    finally:
        storage.delete(staged)
    return descriptor


def _put(output: str, staged: str, owner: _Owner) -> None:
    """Gives the staged file the name `OWNER`, if there is no such file yet or its owner is dead."""
    path = storage.join(output, OWNER)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            os.link(staged, path)
        except FileExistsError:
            pass
        else:
            return
        with contextlib.suppress(FileNotFoundError), _open_existing(path) as there:
            is_ours = _lock(there.fileno())
            if os.fstat(there.fileno()).st_ino != os.stat(path).st_ino:
                continue  # it has been replaced since it was opened
            found = _Owner.read(output)
            if is_ours:
                # We got the lock, so an owner on the same kernel is dead: it would hold the lock if it were alive.
                boot = found.process.boot if found is not None else ""
                if found is not None and not (boot and boot == owner.process.boot):
                    _refuse_living(output, found, owner)
                _refuse_running(output, found)
                os.replace(staged, path)
                return
            is_taken = found is not None and not found.process.is_dead(owner.process)
            if is_taken or time.monotonic() > deadline:
                raise ValueError(_in_use(output, found))
        time.sleep(0.02)


def _open_existing(path: str) -> BinaryIO:
    try:
        return open(path, "r+b")  # some filesystems lock only files that are open for writing
    except PermissionError:  # the file of another user
        return open(path, "rb")


def _lock(descriptor: int) -> bool:
    """Locks an open file for as long as it is open; returns False if it is locked already."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, "no locks of this kind")
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_unlocked(output: str, owner: _Owner) -> None:
    started = time.monotonic()
    found = _Owner.read(output)
    if found is not None:
        _refuse_living(output, found, owner)
    _refuse_running(output, found)
    storage.write_atomic(storage.join(output, OWNER), owner.to_json())
    # Another command may have looked before we wrote; its own write takes about as long as ours did.
    time.sleep(max(SETTLE_SECONDS, 2 * (time.monotonic() - started)))
    found = _Owner.read(output)
    if found is None or found.nonce != owner.nonce:
        raise ValueError(_in_use(output, found))


def _refuse_living(output: str, found: _Owner, here: _Owner) -> None:
    is_dead, job = found.process.is_dead(here.process), _job_of(output, found)
    if is_dead or (job is not None and job.detached):
        return
    if is_dead is None:
        silent = _silence(output)
        if silent is None:
            more = f"; if it is gone for good, delete {OWNER}, for this store tells no times"
            raise ValueError(_in_use(output, found) + more)
        if silent > SILENT_SECONDS:
            return
        more = (
            f"; its last sign of life was {silent:.0f} s ago, and if it is gone for good the folder is free "
            f"{SILENT_SECONDS:.0f} s after that"
        )
        raise ValueError(_in_use(output, found) + more)
    raise ValueError(_in_use(output, found))


def _job_of(output: str, found: _Owner | None) -> RunnerJob | None:
    """Returns the job that an owner has given to a runner elsewhere, if it has."""
    job = RunnerJob.read(output)
    return job if job is not None and found is not None and job.nonce == found.nonce else None


def _refuse_running(output: str, found: _Owner | None) -> None:
    """Raises ValueError if a runner elsewhere still does the job of a dead owner, or cannot be asked."""
    job = _job_of(output, found)
    if job is None:
        return
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


def _in_use(output: str, found: _Owner | None) -> str:
    who = found or "another command that has just started"
    return f"output folder {output!r} is in use: {who}; wait until it is done, stop it, or choose another folder"


def _silence(output: str) -> float | None:
    """Returns for how many seconds an owner has not renewed its file; None if the store has no times.

    The clock is that of the store: the time of a file that is written now is its present time.
    """
    probe = storage.join(output, f"{OWNER}.{uuid.uuid4().hex}.tmp")
    try:
        with storage.create(probe) as handle:
            handle.write(b".")  # Beam's filesystem for S3 cannot write an empty file
        now, then = storage.changed_at(probe), storage.changed_at(storage.join(output, OWNER))
    finally:
        storage.delete(probe)
    return now - then if now is not None and then is not None else None


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

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from flask_spiderpool.tasks.leash import Leash

CHILD = """
import os, sys, threading
from flask_spiderpool.tasks.leash import Leash
leash = Leash()
if os.fork() == 0:
    done = threading.Event()
    leash.watch(done.set, forked=True)
    sys.stdout.write(f"{os.getpid()}\\n"); sys.stdout.flush()
    done.wait(30)
    sys.stdout.write("released\\n"); sys.stdout.flush()
    os._exit(0)
sys.stdin.read()
"""


def test_letting_go_tells_the_watcher_of_this_process():
    """The threads pool: signal handler and slices live in one process."""
    leash, told = Leash(), threading.Event()
    leash.watch(told.set, forked=False)
    assert not told.is_set()
    leash.let_go()
    assert told.wait(5)
    leash.let_go()  # idempotent


def test_a_child_is_told_when_its_parent_is_killed():
    """kill -9 of a prefork parent: the kernel lets go, and the child's slices hand on."""
    parent = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(5)
    assert parent.stdout.readline() == b"released\n"
    parent.stdout.close()
    parent.stdin.close()
    assert child_pid != parent.pid

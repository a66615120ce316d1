"""Tasks for workers, which import them by name."""

import os
import signal
import time


def square(number, slow=0):
    time.sleep(0.3 if slow and number < slow else 0.01 if slow else 0)
    return number * number


def end_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)

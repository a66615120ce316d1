"""Tasks for workers, which import them by name."""

import os
import signal
import time


def square(number):
    return number * number


def wait_and_square(number, slow):
    time.sleep(0.3 if number < slow else 0.01)
    return number * number


def end_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)

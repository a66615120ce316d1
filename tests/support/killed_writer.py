"""A process that forks the writer and kills it, as often as its input says.

A line of input is a delay in seconds, or "end" for a run that is left alone; an answer is the exit
status, a signal as a negative number. TensorFlow is imported once.
"""

import os
import signal
import sys
import time

from kaggle_tfr.parallel import use_backend
from kaggle_tfr.write.parts import write_parts

if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            use_backend(2)
            write_parts(*sys.argv[1:])
            os._exit(0)
        if line.strip() != "end":
            time.sleep(float(line))
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

"""A process that begins the writer anew and kills it, as often as its input says.

It imports TensorFlow once and forks, so that a kill costs milliseconds. Each line of its input says
how many shards to wait for, and then how many seconds, or is "end" for a run that is left alone;
each answer is the exit status, a signal as a negative number.
"""

import os
import signal
import sys
import time
from pathlib import Path


def ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def main(work, out):
    from kaggle_tfr.parallel import use_backend
    from kaggle_tfr.write.parts import write_parts

    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            use_backend(2)
            write_parts(work, out)
            os._exit(0)
        if line.strip() != "end":
            shards, delay = line.split()
            while len(list(Path(out).glob("*/*.tfrec"))) < int(shards) and not ended(child):
                time.sleep(0.002)
            time.sleep(float(delay))
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

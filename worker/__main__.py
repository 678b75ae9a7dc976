"""`python -P -m worker --model MODEL`: what `pagemill worker` and `pagemill run` start."""

import sys

from jobs.ctrl_c import ends_at_once

if __name__ == "__main__":
    ends_at_once()  # until the worker has something to leave in order

    from worker.starting import main

    sys.exit(main(sys.argv[1:]))

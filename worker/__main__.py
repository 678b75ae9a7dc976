"""`python -P -m worker --model MODEL`: what `pagemill worker` and `pagemill run` start."""

import sys

from worker.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

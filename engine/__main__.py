"""`python -P -m engine READ_FD WRITE_FD`: started by the worker, never by hand."""

import sys

from engine.process import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

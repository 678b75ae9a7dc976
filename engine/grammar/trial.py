"""`python -P -m engine.grammar.trial READ_FD WRITE_FD`: tries out whether grammars compile.

A grammar may be written so that its compilation takes hours or all memory, or overflows the
stack, which ends a process. Here that harms nobody: the engine compiles what has been compiled
here. No vocabulary is needed for it, and no model.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import threading
from multiprocessing.connection import Connection

import llguidance

from engine.grammar.dialects import translate
from engine.grammar.limits import COMPILE_BYTES, COMPILE_CPU_SECONDS, parser_limits
from engine.grammar.spec import GrammarKind

# Half of what the engine has for the same, so that what fits here fits there.
STACK_BYTES = 8 << 20


def main(read_fd: int, write_fd: int) -> int:
    """Try grammars until the engine closes the pipe. Returns the exit status."""
    # As the engine does: they reach the whole process group, and a row would be blamed for its end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (COMPILE_BYTES, COMPILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=_serve, args=(read_fd, write_fd))
    thread.start()
    thread.join()
    return 0


def _serve(read_fd: int, write_fd: int) -> None:
    reader, writer = Connection(read_fd, writable=False), Connection(write_fd, readable=False)
    try:
        while True:
            asked = json.loads(reader.recv_bytes())
            _allow_time()
            answer = attempt(GrammarKind(asked["kind"]), asked["text"])
            writer.send_bytes(json.dumps(answer).encode())
    except (EOFError, OSError):
        return  # the engine is gone


def attempt(kind: GrammarKind, text: str) -> dict[str, str]:
    """`grammar`, as llguidance reads it, or `error`."""
    try:
        grammar = translate(kind, text)
        error = llguidance.LLMatcher.validate_grammar(grammar, limits=parser_limits())
    except MemoryError:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        return {"error": str(error) or type(error).__name__}
    return {"error": error} if error else {"grammar": grammar}


def _allow_time() -> None:
    """Let the system end this process if the next grammar takes more time than it may."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + COMPILE_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

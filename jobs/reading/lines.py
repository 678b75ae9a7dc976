"""Cutting a stream of bytes into lines, with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

MAX_LINE_BYTES = 16 << 20
READ_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


def split_lines(
    read: Callable[[int], bytes], limit: int = MAX_LINE_BYTES, read_bytes: int = READ_BYTES
) -> Iterator[tuple[int, bytes | None]]:
    """Number and content of each line that is not blank.

    Lines end with LF; a CR before it counts as blank space, as JSON has it. A UTF-8 byte order
    mark at the start is dropped. Of a line over `limit` bytes nothing is kept: its content is
    None.

    Args:
        read: reads at most so many bytes, and none only at the end.
    """
    pieces: list[bytes] = []  # the line that has begun
    held, number, at_start = 0, 0, True
    while block := read(read_bytes):
        if at_start:
            while len(block) < len(_BOM) and (more := read(len(_BOM) - len(block))):
                block += more
            block, at_start = block.removeprefix(_BOM), False
        parts = block.split(b"\n")
        for part in parts[:-1]:
            number += 1
            if held:
                held += len(part)
                line = b"".join((*pieces, part)) if held <= limit else None
                pieces, held = [], 0
            else:
                line = part if len(part) <= limit else None
            if line is None or (line and not line.isspace()):
                yield number, line
        held += len(parts[-1])
        if held > limit:
            pieces = []
        elif parts[-1]:
            pieces.append(parts[-1])
    if held > limit:
        yield number + 1, None
    elif (line := b"".join(pieces)) and not line.isspace():
        yield number + 1, line

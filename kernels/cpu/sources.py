"""Identity of the C++ sources, which a library carries that was built from them."""

from __future__ import annotations

import hashlib
from pathlib import Path

_FOLDER = Path(__file__).parent


def sources_digest() -> str:
    """Hexadecimal digest of all C++ files beside this one."""
    digest = hashlib.sha256()
    for path in sorted((*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]

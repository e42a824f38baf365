"""The protocol between clients and servers.

A frame is four bytes of size, one byte for the sender (CLIENT or PEER), and an encoded tuple:

    request of a client    (number, operation, argument)
    response               (number, code, content)

Responses may be out of order. PEER frames contain Raft's messages, see `raft_messages.py`.
"""

from typing import Final

PEER: Final = b"R"
CLIENT: Final = b"C"

# ── what ─────────────────────────────────────────────────────────────────────────────────────
#: A command for the state machine; bytes.
COMMAND: Final = 1
#: A query of the state machine; bytes.
QUERY: Final = 2
#: The status of the server; no argument. Any server responds for itself.
STATUS: Final = 3
#: Add a voter; (host, port, id, directory id).
ADD: Final = 4
#: Remove a voter; id.
REMOVE: Final = 5

# ── codes ────────────────────────────────────────────────────────────────────────────────────
#: What the state machine answers, or what the status is.
OK: Final = 0
#: Not applied. (host, port) of the leader, or nothing if there is none now.
REDIRECT: Final = 1
#: Possibly applied: retry with the same number of the command. A text.
UNCERTAIN: Final = 2
#: Not applied; retry later. A text.
BUSY: Final = 3
#: Not applied, and a retry would fail as well. A text.
REFUSED: Final = 4

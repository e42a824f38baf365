"""What clients and servers say to each other.

A frame is four bytes of size, one byte that says who speaks (CLIENT or PEER), and a packed tuple:

    question of a client    (number, what, argument)
    answer                  (number, code, content)

Answers come in any order. PEER frames hold Raft's messages, see `raft_messages.py`.
"""

from typing import Final

PEER: Final = b"R"
CLIENT: Final = b"C"

# ── what ─────────────────────────────────────────────────────────────────────────────────────
#: A command for the state machine; bytes.
COMMAND: Final = 1
#: A question to the state machine; bytes.
QUERY: Final = 2
#: How the server is; nothing. Any server answers for itself.
STATUS: Final = 3
#: A new voter; (host, port, id, directory id).
ADD: Final = 4
#: A voter less; id.
REMOVE: Final = 5

# ── codes ────────────────────────────────────────────────────────────────────────────────────
#: What the state machine answers, or what the status is.
OK: Final = 0
#: Not done. (host, port) of the leader, or nothing if there is none now.
REDIRECT: Final = 1
#: Maybe done: ask again, with the same number of the command. A text.
UNCERTAIN: Final = 2
#: Not done, for the moment. A text.
BUSY: Final = 3
#: Not done, and asking again would not help. A text.
REFUSED: Final = 4

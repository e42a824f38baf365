"""The mark of a progress group, to which a Spark query commits its positions.

The metadata of each committed offset contains the word `spark-progress`, beside a retention hold if
the query has one, so that a broker can tell these groups from those of consumers.
"""

import re
from typing import Final

PROGRESS: Final = "spark-progress"

_PROGRESS: Final = re.compile(rf"(?:^|\s){PROGRESS}(?=\s|$)")


def is_progress(metadata: str) -> bool:
    return bool(metadata) and _PROGRESS.search(metadata) is not None

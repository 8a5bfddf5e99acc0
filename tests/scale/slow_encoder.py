"""An encoder that takes its time, so that nodes can go and come while it works."""

import time

from channelhash.scale.encode import ShardEncoder


class SlowEncoder(ShardEncoder):
    """Encodes a shard in a quarter of a second."""

    def __call__(self, *arguments):
        time.sleep(0.25)
        return super().__call__(*arguments)

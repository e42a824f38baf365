"""The parts of a consumer: subscription, groups, fetching, decoding."""

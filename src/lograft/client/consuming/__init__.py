"""The parts of a consumer: subscription, group membership, fetching, decoding of records."""

"""The parts of a producer, in the order in which a record passes through them: serializers,
partitioner, accumulator with its batches, sender."""

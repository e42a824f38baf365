// kafkajs copies in transactions: node copy.mjs BOOTSTRAP SOURCE TARGET COUNT GROUP
import kafkajs from "kafkajs";

const { Kafka, logLevel } = kafkajs;
const [bootstrap, source, target, count, group] = process.argv.slice(2);
const PER_TRANSACTION = 10;
const retry = { retries: 30, initialRetryTime: 100, maxRetryTime: 500 };
const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry });
const positions = {};
const sum = () => Object.values(positions).reduce((total, offset) => total + offset, 0);
const all = Promise.withResolvers ? Promise.withResolvers() : {};
if (!all.promise) all.promise = new Promise((resolve) => (all.resolve = resolve));

const producer = kafka.producer({ transactionalId: source, maxInFlightRequests: 1, idempotent: true });
await producer.connect();
const consumer = kafka.consumer({
  groupId: group,
  heartbeatInterval: 300,
  maxWaitTimeInMs: 100,
  readUncommitted: false,
});
await consumer.connect();
await consumer.subscribe({ topics: [source], fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch, heartbeat, isRunning, isStale }) => {
    for (let first = 0; first < batch.messages.length; first += PER_TRANSACTION) {
      if (!isRunning() || isStale()) return;
      const messages = batch.messages.slice(first, first + PER_TRANSACTION);
      const offset = Number(messages.at(-1).offset) + 1;
      const partitions = [{ partition: batch.partition, offset: String(offset) }];
      const transaction = await producer.transaction();
      try {
        await transaction.send({ topic: target, messages: messages.map(({ value }) => ({ value })) });
        await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] });
        await transaction.commit();
      } catch (error) {
        await transaction.abort();
        throw error; // the batch is fetched again, from what is committed
      }
      positions[batch.partition] = offset;
      if (sum() >= Number(count)) all.resolve();
      await heartbeat();
    }
  },
});
await all.promise;
await consumer.disconnect();
await producer.disconnect();
console.log(JSON.stringify({ copied: sum() }));

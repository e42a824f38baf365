// kafkajs in groups and transactions, and what it saw: node groups.mjs BOOTSTRAP TOPIC
import kafkajs from "kafkajs";

const { Kafka, logLevel } = kafkajs;
const [bootstrap, topic] = process.argv.slice(2);
const PARTITIONS = 4;
const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
const seen = {};

const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true });

async function send(producer, count) {
  const messages = [];
  for (let number = 0; number < count * PARTITIONS; number++) {
    messages.push({ value: String(number), partition: number % PARTITIONS });
  }
  await producer.send({ topic, messages });
}

async function until(isReached) {
  for (const deadline = Date.now() + 60_000; !isReached(); ) {
    if (Date.now() > deadline) throw new Error("not reached: " + isReached);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// A running member: what it owns and what it read.
async function join(isolation = {}) {
  const consumer = kafka.consumer({
    groupId: topic,
    heartbeatInterval: 100,
    maxWaitTimeInMs: 100,
    ...isolation,
  });
  const self = { consumer, owned: [], values: [] };
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    self.owned = event.payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ message }) => void self.values.push(message.value.toString()),
  });
  return self;
}

const plain = kafka.producer();
await plain.connect();
await send(plain, 25);
const first = await join();
await until(() => first.values.length === 100);
const second = await join();
await until(() => first.owned.length === 2 && second.owned.length === 2);
seen.shared = [...first.owned, ...second.owned].sort();
await send(plain, 1);
await until(() => first.values.length + second.values.length >= 104);
seen.read = first.values.length + second.values.length;
await second.consumer.disconnect();
await until(() => first.owned.length === PARTITIONS);
seen.described = (await admin.describeGroups([topic])).groups[0].state;
await first.consumer.disconnect();

const [offsets] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
seen.committed = offsets.partitions.map((one) => Number(one.offset));
await admin.resetOffsets({ groupId: topic, topic, earliest: true });
const [reset] = await admin.fetchOffsets({ groupId: topic, topics: [topic], resolveOffsets: true });
seen.reset = reset.partitions.map((one) => Number(one.offset));
seen.listed = (await admin.listGroups()).groups.some((one) => one.groupId === topic);

const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true });
await producer.connect();
for (const ends of ["commit", "abort", "commit"]) {
  const transaction = await producer.transaction();
  await transaction.send({ topic, messages: [{ value: ends, partition: 0 }] });
  const partitions = [{ partition: 0, offset: ends === "commit" ? "26" : "3" }];
  await transaction.sendOffsets({ consumerGroupId: topic, topics: [{ topic, partitions }] });
  await transaction[ends]();
}
await producer.disconnect();
const [position] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
seen.position = Number(position.partitions.find((one) => one.partition === 0).offset);
const reader = await join({ readUncommitted: false });
await until(() => reader.values.filter((value) => value === "commit").length === 2);
seen.aborted = reader.values.filter((value) => value === "abort").length;
await reader.consumer.disconnect();
seen.deleted = (await admin.deleteGroups([topic]))[0].errorCode ?? 0;
await plain.disconnect();
await admin.disconnect();
console.log(JSON.stringify(seen));

// A kafkajs client that administers and produces, and says what it saw: node scenario.mjs BOOTSTRAP TOPIC
import kafkajs from "kafkajs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 3 } });
const seen = {};

// A broker may not lead a new partition yet; kafkajs does not retry this request.
async function offsetsOf(name) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await admin.fetchTopicOffsets(name);
    } catch (error) {
      if (!error.retriable || attempt === 200) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const admin = kafka.admin();
await admin.connect();
seen.created = await admin.createTopics({
  topics: [{ topic, numPartitions: 2, configEntries: [{ name: "retention.ms", value: "3600000" }] }],
});
seen.createdAgain = await admin.createTopics({ topics: [{ topic }] });

const offsets = [];
const settings = [{ compression: CompressionTypes.None }, { compression: CompressionTypes.GZIP }];
for (const idempotent of [false, true]) {
  const producer = kafka.producer({ idempotent });
  await producer.connect();
  for (const { compression } of settings) {
    const messages = [
      { key: "k", value: "plain", partition: 1, headers: { from: "kafkajs" } },
      { key: "k", value: null, partition: 1 },
    ];
    const [answer] = await producer.send({ topic, messages, compression, acks: -1 });
    offsets.push(Number(answer.baseOffset));
  }
  await producer.disconnect();
}
seen.offsets = offsets;

seen.ends = await offsetsOf(topic);
await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
seen.partitions = topics[0].partitions.length;
const { resources } = await admin.describeConfigs({
  includeSynonyms: false,
  resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
});
seen.retention = resources[0].configEntries[0].configValue;
await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: "3" }] });
seen.afterDelete = (await offsetsOf(topic)).find((one) => one.partition === 1);
const cluster = await admin.describeCluster();
seen.brokers = cluster.brokers.length;
await admin.disconnect();
console.log(JSON.stringify(seen));

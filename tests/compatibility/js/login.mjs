// Logs in with a bearer token and writes a record: node login.mjs BOOTSTRAP TOPIC TOKEN
import { Kafka, logLevel } from "kafkajs";

const [bootstrap, topic, token] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [bootstrap],
  logLevel: logLevel.NOTHING,
  retry: { retries: 3 },
  sasl: { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) },
});
const producer = kafka.producer();
try {
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "x" }] });
  console.log(JSON.stringify({ produced: 1 }));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await producer.disconnect();
}

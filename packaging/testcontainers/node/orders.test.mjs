import assert from "node:assert/strict";
import test from "node:test";
import { Kafka, logLevel } from "kafkajs";
import { startLograft } from "./lograft-container.mjs";

test("an order is consumed", async () => {
  const { container, bootstrapServers } = await startLograft();
  try {
    const kafka = new Kafka({ brokers: [bootstrapServers], logLevel: logLevel.ERROR });
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: "orders", messages: [{ value: "tea" }] });
    await producer.disconnect();

    const consumer = kafka.consumer({ groupId: "billing" });
    await consumer.connect();
    await consumer.subscribe({ topic: "orders", fromBeginning: true });
    const value = await new Promise((resolve) => {
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value?.toString()) });
    });
    await consumer.disconnect();
    assert.equal(value, "tea");
  } finally {
    await container.stop();
  }
});

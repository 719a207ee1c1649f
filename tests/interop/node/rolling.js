// Writes numbers and reads them as a group until a file appears, then until all are read. Any error
// that kafkajs gives the application ends the program.
"use strict";

const fs = require("node:fs");

async function roll(kafka, job) {
  const acknowledged = new Set();
  const read = new Set();
  let twice = 0;
  let failure = null;
  const consumer = kafka.consumer({ groupId: "rolling-node" });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    // It restarts by itself after what it calls retriable; the application hears of the rest.
    if (!payload.restart) failure = payload.error;
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [job.topic], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => {
      const value = message.value.toString();
      if (read.has(value)) twice += 1;
      read.add(value);
    },
  });
  // The idempotent producer of kafkajs, which it calls experimental, counts wrong after a refusal:
  // OUT_OF_ORDER_SEQUENCE_NUMBER, on Apache Kafka too.
  const producer = kafka.producer();
  await producer.connect();
  const send = async (value) => {
    // One record each: of several, kafkajs forgets those that a broker refused if their next leader
    // has answered for others before (responsePerBroker in its sendMessages.js).
    await producer.send({ topic: job.topic, acks: -1, messages: [{ key: value, value }] });
    acknowledged.add(value);
  };
  for (let number = 0; failure === null && !fs.existsSync(job.stop); number += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, n) => send(String(number + n))));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await producer.disconnect();
  while (failure === null && [...acknowledged].some((value) => !read.has(value))) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  if (failure !== null) throw failure;
  await consumer.disconnect();
  return { acknowledged: acknowledged.size, read: read.size, twice };
}

module.exports = { roll };

// Logs in with kafkajs and, if it gets in, writes a record and reads it as a member of a group.
"use strict";

const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

function secured(job) {
  const shown = job.credentials;
  const settings = {
    brokers: [job.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    connectionTimeout: 60000,
    authenticationTimeout: 60000,
    requestTimeout: 60000,
  };
  if (shown.ca) {
    settings.ssl = { ca: [fs.readFileSync(shown.ca, "utf8")] };
    if (shown.certificate) {
      settings.ssl.cert = settings.ssl.key = fs.readFileSync(shown.certificate, "utf8");
    }
  }
  if (shown.mechanism === "OAUTHBEARER") {
    settings.sasl = {
      mechanism: "oauthbearer",
      oauthBearerProvider: async () => ({ value: shown.token }),
    };
  } else if (shown.mechanism) {
    settings.sasl = {
      mechanism: shown.mechanism.toLowerCase(),
      username: shown.user,
      password: shown.password,
    };
  }
  return settings;
}

async function roundTrip(kafka, job) {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: job.topic, messages: [{ value: "x".repeat(200000) }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: job.topic });
  await consumer.connect();
  await consumer.subscribe({ topics: [job.topic], fromBeginning: true });
  const length = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.length) }).catch(reject);
  });
  await consumer.disconnect();
  return `${length} bytes`;
}

async function main() {
  const job = JSON.parse(fs.readFileSync(0, "utf8"));
  const kafka = new Kafka(secured(job));
  const admin = kafka.admin();
  let answer;
  try {
    await admin.connect();
    await admin.disconnect();
    answer = { read: await roundTrip(kafka, job) };
  } catch (error) {
    answer = { error: error.name, said: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
  process.exit(0);
}

main();

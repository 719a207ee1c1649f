// The client program in JavaScript on kafkajs; see ../clients.py for the JSON it reads and prints.
// Reads only as a member of a group (verb "join"): kafkajs knows no other consumer.
"use strict";

const fs = require("node:fs");
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs");
const snappy = require("snappyjs");
const lz4 = require("lz4js");
const zstd = require("@bokuweb/zstd-wasm");
const { roll } = require("./rolling.js");

const never = () => {
  throw new Error("this program does not read");
};
const codec = (compress) => () => ({
  compress: async (encoder) => Buffer.from(await compress(encoder.buffer)),
  decompress: never,
});
CompressionCodecs[CompressionTypes.Snappy] = codec((bytes) => snappy.compress(bytes));
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4Frame);
CompressionCodecs[CompressionTypes.ZSTD] = codec((bytes) => zstd.compress(bytes, 3));

// lz4js writes frames of dependent blocks, which Apache Kafka refuses; its blocks alone are fine.
function lz4Frame(bytes) {
  const header = Buffer.from([0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]); // independent, 64 KiB
  const pieces = [header];
  for (let start = 0; start < bytes.length; start += 65536) {
    const block = bytes.subarray(start, start + 65536);
    const packed = Buffer.alloc(lz4.compressBound(block.length));
    const size = lz4.compressBlock(block, packed, 0, block.length, new Uint32Array(1 << 16));
    const length = Buffer.alloc(4);
    const smaller = size > 0 && size < block.length;
    // The high bit says that the block is stored as it is.
    length.writeUInt32LE(smaller ? size : (block.length | 0x80000000) >>> 0);
    pieces.push(length, smaller ? packed.subarray(0, size) : block);
  }
  return Buffer.concat([...pieces, Buffer.alloc(4)]);
}

const KINDS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));

async function produce(kafka, job) {
  const producer = kafka.producer({ idempotent: job.idempotent === true });
  await producer.connect();
  const messages = job.records.map((record) => ({
    partition: job.partition,
    timestamp: String(record.timestamp),
    key: bytes(record.key),
    value: record.size ? Buffer.alloc(record.size, record.fill) : bytes(record.value),
    headers: Object.fromEntries(record.headers.map(([name, value]) => [name, bytes(value)])),
  }));
  const answers = await producer.send({
    topic: job.topic,
    acks: -1,
    compression: KINDS[job.compression],
    messages,
  });
  await producer.disconnect();
  const first = Number(answers[0].baseOffset);
  return { offsets: messages.map((_, index) => first + index) };
}

async function offsetForTime(kafka, job) {
  const admin = kafka.admin();
  await admin.connect();
  const found = await admin.fetchTopicOffsetsByTimestamp(job.topic, job.time);
  await admin.disconnect();
  return { offset: Number(found.find((one) => one.partition === job.partition).offset) };
}

// A topic's whole life through kafkajs's admin client.
async function administer(kafka, job) {
  const admin = kafka.admin();
  await admin.connect();
  const answer = {};
  answer.created = await admin.createTopics({
    topics: [
      {
        topic: job.topic,
        numPartitions: 2,
        configEntries: [{ name: "retention.ms", value: "1000000" }],
      },
    ],
  });
  await admin.createPartitions({ topicPartitions: [{ topic: job.topic, count: 3 }] });
  const metadata = await admin.fetchTopicMetadata({ topics: [job.topic] });
  answer.partitions = metadata.topics[0].partitions.length;
  const cluster = await admin.describeCluster();
  answer.brokers = cluster.brokers.length;
  await admin.alterConfigs({
    resources: [
      { type: 2, name: job.topic, configEntries: [{ name: "retention.ms", value: "2000000" }] },
    ],
  });
  const configs = await admin.describeConfigs({
    resources: [{ type: 2, name: job.topic, configNames: ["retention.ms"] }],
  });
  answer.retention = configs.resources[0].configEntries[0].configValue;
  answer.listed = (await admin.listTopics()).includes(job.topic);
  await admin.deleteTopics({ topics: [job.topic] });
  answer.stillListed = (await admin.listTopics()).includes(job.topic);
  await admin.disconnect();
  return answer;
}

// Reads the values of a topic as a member of a group, and commits.
async function join(kafka, job) {
  const consumer = kafka.consumer({ groupId: job.group });
  await consumer.connect();
  await consumer.subscribe({ topics: [job.topic], fromBeginning: true });
  const values = await new Promise((resolve, reject) => {
    const found = [];
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ topic, partition, message }) => {
          found.push(message.value.toString("base64"));
          const offset = String(Number(message.offset) + 1);
          await consumer.commitOffsets([{ topic, partition, offset }]);
          if (found.length === job.count) resolve(found);
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  return { values };
}

async function main() {
  const job = JSON.parse(fs.readFileSync(0, "utf8"));
  await zstd.init();
  const kafka = new Kafka({
    brokers: job.bootstrap.split(","),
    logLevel: logLevel.ERROR,
    connectionTimeout: 60000,
    requestTimeout: 60000,
  });
  const verbs = { produce, offset_for_time: offsetForTime, administer, join, roll };
  process.stdout.write(JSON.stringify(await verbs[job.verb](kafka, job)) + "\n");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

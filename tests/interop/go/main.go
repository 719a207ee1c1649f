// The client program in Go on franz-go; see ../clients.py for the JSON it reads and prints.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const tooLargeToPrint = 100_000

type record struct {
	Offset    int64       `json:"offset"`
	Timestamp int64       `json:"timestamp"`
	Key       []byte      `json:"key"`
	Value     interface{} `json:"value"`
	Headers   [][2]any    `json:"headers"`
}

type job struct {
	Verb        string `json:"verb"`
	Bootstrap   string `json:"bootstrap"`
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Compression string `json:"compression"`
	Offset      int64  `json:"offset"`
	Count       int    `json:"count"`
	Group       string `json:"group"`
	Time        int64  `json:"time"`
	Stop        string `json:"stop"`
	Credentials credentials `json:"credentials"`
	Records     []struct {
		Timestamp int64                 `json:"timestamp"`
		Key       []byte                `json:"key"`
		Value     []byte                `json:"value"`
		Headers   [][2]*json.RawMessage `json:"headers"`
		Size      int                   `json:"size"`
		Fill      byte                  `json:"fill"`
	} `json:"records"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var asked job
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	ctx, cancel := context.WithTimeout(context.Background(), 140*time.Second)
	defer cancel()
	answer := map[string]any{}
	switch asked.Verb {
	case "produce":
		answer["offsets"] = produce(ctx, asked)
	case "consume":
		answer["records"] = consume(ctx, asked)
	case "join":
		answer["values"] = join(ctx, asked)
	case "roll":
		answer = roll(ctx, asked)
	case "login":
		answer = login(ctx, asked)
	case "offset_for_time":
		answer["offset"] = offsetForTime(ctx, asked)
	default:
		must(fmt.Errorf("no such verb: %s", asked.Verb))
	}
	must(json.NewEncoder(os.Stdout).Encode(answer))
}

func produce(ctx context.Context, asked job) []int64 {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[asked.Compression]),
		kgo.ProducerLinger(50*time.Millisecond),
		kgo.ProducerBatchMaxBytes(100<<20),
		kgo.BrokerMaxWriteBytes(101<<20),
	)
	must(err)
	defer client.Close()
	var sent []*kgo.Record
	for _, one := range asked.Records {
		r := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition,
			Timestamp: time.UnixMilli(one.Timestamp), Key: one.Key, Value: one.Value}
		if one.Size > 0 {
			r.Value = bytes.Repeat([]byte{one.Fill}, one.Size)
		}
		for _, h := range one.Headers {
			var header kgo.RecordHeader
			must(json.Unmarshal(*h[0], &header.Key))
			if h[1] != nil {
				must(json.Unmarshal(*h[1], &header.Value))
			}
			r.Headers = append(r.Headers, header)
		}
		sent = append(sent, r)
	}
	offsets := []int64{}
	for _, result := range client.ProduceSync(ctx, sent...) {
		must(result.Err)
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets
}

func consume(ctx context.Context, asked job) []record {
	from := map[string]map[int32]kgo.Offset{
		asked.Topic: {asked.Partition: kgo.NewOffset().At(asked.Offset)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap), kgo.ConsumePartitions(from))
	must(err)
	defer client.Close()
	records := []record{}
	for len(records) < asked.Count {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			headers := [][2]any{}
			for _, h := range r.Headers {
				headers = append(headers, [2]any{h.Key, h.Value})
			}
			var value any = r.Value
			if len(r.Value) > tooLargeToPrint {
				value = fmt.Sprintf("sha256:%x", sha256.Sum256(r.Value))
			}
			records = append(records,
				record{r.Offset, r.Timestamp.UnixMilli(), r.Key, value, headers})
		})
	}
	return records
}

// Reads the values of a topic as a member of a group, and commits.
func join(ctx context.Context, asked job) [][]byte {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap), kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer client.Close()
	values := [][]byte{}
	for len(values) < asked.Count {
		fetches := client.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, r.Value) })
	}
	must(client.CommitUncommittedOffsets(ctx))
	return values
}

func offsetForTime(ctx context.Context, asked job) int64 {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap))
	must(err)
	defer client.Close()
	listed, err := kadm.NewClient(client).ListOffsetsAfterMilli(ctx, asked.Time, asked.Topic)
	must(err)
	found, _ := listed.Lookup(asked.Topic, asked.Partition)
	must(found.Err)
	// Where no record is that young, kadm asks again for the end of the log; -1 says so elsewhere.
	if found.Timestamp == -1 {
		return -1
	}
	return found.Offset
}

// Sends delayed records to a companion topic and receives the delivered ones, with franz-go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"headrace.bench/delay/rows"
)

func main() {
	switch action, given := rows.Parse(); action {
	case "send":
		send(given)
	case "receive":
		receive(given)
	default:
		rows.Must(fmt.Errorf("no such action: %s", action))
	}
}

func send(given rows.Arguments) {
	partitions := given.Number("partitions")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(given["address"]),
		kgo.DefaultProduceTopic(given["topic"]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.MaxBufferedRecords(50_000),
	)
	rows.Must(err)
	ctx := context.Background()
	rows.Must(client.Ping(ctx))
	var accepted atomic.Int64
	plan := rows.PlanOf(given)
	for i := int64(0); i < plan.Count; i++ {
		due := plan.Wait(i)
		header := kgo.RecordHeader{Key: "headrace-deliver-at", Value: strconv.AppendInt(nil, due, 10)}
		client.Produce(ctx, &kgo.Record{Partition: int32(i % partitions), Value: plan.Value(i, due),
			Headers: []kgo.RecordHeader{header}}, func(_ *kgo.Record, err error) {
			rows.Must(err)
			accepted.Add(1)
		})
	}
	rows.Must(client.Flush(ctx))
	plan.Report(accepted.Load())
	client.Close()
}

func receive(given rows.Arguments) {
	from := map[int32]kgo.Offset{}
	for number := int64(0); number < given.Number("partitions"); number++ {
		from[int32(number)] = kgo.NewOffset().AtEnd()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(given["address"]),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given["topic"]: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	rows.Must(err)
	rows.Must(client.Ping(context.Background()))
	file := rows.Open(given["out"])
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			received := time.Now().UnixMilli()
			fetches.EachRecord(func(r *kgo.Record) { file.Add(r.Value, r.Timestamp, received) })
		}
	}()
	fmt.Println("ready")
	rows.UntilTold()
	file.Flush()
	os.Exit(0)
}

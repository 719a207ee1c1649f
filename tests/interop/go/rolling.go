package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Writes numbers and reads them as a group until a file appears, then until all are read. Any error
// that the client gives the application ends the program.
func roll(ctx context.Context, asked job) map[string]any {
	var guard sync.Mutex
	acknowledged, read, twice := map[string]bool{}, map[string]bool{}, 0
	seeds := strings.Split(asked.Bootstrap, ",")
	producer, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	must(err)
	finished := make(chan struct{})
	go func() {
		for number := 0; ; number++ {
			if _, err := os.Stat(asked.Stop); err == nil {
				break
			}
			value := fmt.Sprint(number)
			record := &kgo.Record{Topic: asked.Topic, Key: []byte(value), Value: []byte(value)}
			producer.Produce(ctx, record, func(r *kgo.Record, err error) {
				must(err)
				guard.Lock()
				acknowledged[string(r.Value)] = true
				guard.Unlock()
			})
			time.Sleep(2 * time.Millisecond)
		}
		must(producer.Flush(ctx))
		close(finished)
	}()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup("rolling-go"),
		kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	for over := false; !over; {
		soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := consumer.PollFetches(soon)
		cancel()
		for _, one := range fetches.Errors() {
			if one.Err != context.DeadlineExceeded {
				must(one.Err)
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if read[string(r.Value)] {
				twice++
			}
			read[string(r.Value)] = true
		})
		if fetches.NumRecords() > 0 {
			must(consumer.CommitUncommittedOffsets(ctx))
		}
		select {
		case <-finished:
			guard.Lock()
			over = true
			for value := range acknowledged {
				over = over && read[value]
			}
			guard.Unlock()
		default:
		}
	}
	consumer.Close()
	producer.Close()
	return map[string]any{"acknowledged": len(acknowledged), "read": len(read), "twice": twice}
}

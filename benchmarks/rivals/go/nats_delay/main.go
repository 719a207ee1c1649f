// Publishes scheduled messages to NATS JetStream and receives the delivered ones, with nats.go.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"headrace.bench/delay/rows"
)

func main() {
	action, given := rows.Parse()
	connection, err := nats.Connect(given["address"], nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	rows.Must(err)
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(4096))
	rows.Must(err)
	switch action {
	case "create":
		create(connection)
	case "send":
		send(stream, given)
	case "receive":
		receive(stream, given)
	default:
		rows.Must(fmt.Errorf("no such action: %s", action))
	}
}

// The stream is made by its JSON: the client library need not know the newest settings.
func create(connection *nats.Conn) {
	settings := `{"name":"delayed","subjects":["wait.>","out.>"],"storage":"file",
		"retention":"limits","max_msgs":-1,"max_bytes":-1,"num_replicas":1,
		"allow_msg_schedules":true,"allow_msg_ttl":true}`
	answer, err := connection.Request("$JS.API.STREAM.CREATE.delayed", []byte(settings), 10*time.Second)
	rows.Must(err)
	fmt.Println(string(answer.Data))
}

func send(stream jetstream.JetStream, given rows.Arguments) {
	var accepted atomic.Int64
	plan := rows.PlanOf(given)
	for i := int64(0); i < plan.Count; i++ {
		due := plan.Wait(i)
		message := nats.NewMsg(fmt.Sprintf("wait.%d", plan.First+i))
		message.Header.Set("Nats-Schedule",
			"@at "+time.UnixMilli(due).UTC().Format("2006-01-02T15:04:05.000Z"))
		message.Header.Set("Nats-Schedule-Target", fmt.Sprintf("out.%d", i%8))
		message.Data = plan.Value(i, due)
		future, err := stream.PublishMsgAsync(message, jetstream.WithStallWait(time.Minute))
		rows.Must(err)
		if i%1000 == 0 {
			go func() {
				select {
				case <-future.Ok():
				case err := <-future.Err():
					rows.Must(err)
				}
			}()
		}
		accepted.Add(1)
	}
	<-stream.PublishAsyncComplete()
	plan.Report(accepted.Load())
}

func receive(stream jetstream.JetStream, given rows.Arguments) {
	consumer, err := stream.OrderedConsumer(context.Background(), "delayed",
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{"out.>"},
			DeliverPolicy: jetstream.DeliverNewPolicy})
	rows.Must(err)
	file := rows.Open(given["out"])
	_, err = consumer.Consume(func(message jetstream.Msg) {
		received := time.Now().UnixMilli()
		about, err := message.Metadata()
		rows.Must(err)
		file.Add(message.Data(), about.Timestamp, received)
	}, jetstream.PullMaxMessages(4096))
	rows.Must(err)
	fmt.Println("ready")
	rows.UntilTold()
	file.Flush()
	os.Exit(0)
}

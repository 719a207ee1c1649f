// Logs in with franz-go and, if it gets in, writes a record and reads it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type credentials struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

func secured(shown credentials) []kgo.Opt {
	options := []kgo.Opt{}
	if shown.CA != "" {
		pem, err := os.ReadFile(shown.CA)
		must(err)
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		if shown.Certificate != "" {
			pair, err := tls.LoadX509KeyPair(shown.Certificate, shown.Certificate)
			must(err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	auth := scram.Auth{User: shown.User, Pass: shown.Password}
	switch shown.Mechanism {
	case "PLAIN":
		options = append(options,
			kgo.SASL(plain.Auth{User: shown.User, Pass: shown.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(auth.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: shown.Token}.AsMechanism()))
	}
	return options
}

func login(ctx context.Context, asked job) map[string]any {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	from := map[string]map[int32]kgo.Offset{asked.Topic: {0: kgo.NewOffset().AtStart()}}
	options := append(secured(asked.Credentials),
		kgo.SeedBrokers(asked.Bootstrap), kgo.RequestRetries(0), kgo.ConsumePartitions(from))
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	// A connection can also just be lost on a busy machine; why it cannot be had comes with the next.
	err = client.Ping(ctx)
	for tries := 1; isVague(err) && tries < 5; tries++ {
		time.Sleep(200 * time.Millisecond)
		err = client.Ping(ctx)
	}
	if err != nil {
		return map[string]any{"error": nameOf(err)}
	}
	value := []byte(strings.Repeat("x", 200_000))
	must(client.ProduceSync(ctx, &kgo.Record{Topic: asked.Topic, Value: value}).FirstErr())
	fetches := client.PollFetches(ctx)
	must(fetches.Err())
	return map[string]any{"read": fmt.Sprintf("%d bytes", len(fetches.Records()[0].Value))}
}

func isVague(err error) bool {
	return err != nil && strings.HasPrefix(nameOf(err), "other: ")
}

func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if strings.Contains(err.Error(), "tls: ") {
		return "TLS"
	}
	return "other: " + err.Error()
}

package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type loginReport struct {
	Produced int `json:"produced"`
}

// login writes a record after it has logged in: with a bearer token, or through SCRAM with the id and
// the HMAC of a delegation token.
func login(ctx context.Context, bootstrap, topic, mechanism, user, secret string) (*loginReport, error) {
	var chosen sasl.Mechanism
	switch mechanism {
	case "OAUTHBEARER":
		chosen = oauth.Auth{Token: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		chosen = scram.Auth{User: user, Pass: secret, IsToken: true}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		chosen = scram.Auth{User: user, Pass: secret, IsToken: true}.AsSha512Mechanism()
	default:
		return nil, fmt.Errorf("unknown mechanism %s", mechanism)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.SASL(chosen), kgo.AllowAutoTopicCreation(), kgo.RecordRetries(3),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	record := &kgo.Record{Topic: topic, Value: []byte("x")}
	return &loginReport{Produced: 1}, client.ProduceSync(ctx, record).FirstErr()
}

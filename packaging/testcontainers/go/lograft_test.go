package lograft

import (
	"context"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAnOrderIsConsumed(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	node, err := Run(ctx, "lograft")
	if node != nil {
		testcontainers.CleanupContainer(t, node)
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(node.BootstrapServers),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	order := &kgo.Record{Topic: "orders", Value: []byte("tea")}
	if err := client.ProduceSync(ctx, order).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	if value := string(fetches.Records()[0].Value); value != "tea" {
		t.Fatalf("consumed %q", value)
	}
}

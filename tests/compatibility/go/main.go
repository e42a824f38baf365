// A franz-go client that does something with a new topic and says as JSON what it saw.
//
//	scenario basics BOOTSTRAP TOPIC        creates, produces, reads by assignment, deletes
//	scenario group BOOTSTRAP TOPIC [HOW]   subscribes, rebalances, commits; HOW: range, cooperative, server
//	scenario transact BOOTSTRAP TOPIC      copies in transactions, some of them aborted
//	scenario login BOOTSTRAP TOPIC MECHANISM USER SECRET   writes a record after a login with a token
//	scenario copy BOOTSTRAP SOURCE TARGET COUNT GROUP   the same for topics that are there
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const recordsPerCodec = 200

type report struct {
	Produced   int             `json:"produced"`
	Consumed   int             `json:"consumed"`
	InOrder    bool            `json:"in_order"`
	Headers    string          `json:"headers"`
	EndOffsets map[int32]int64 `json:"end_offsets"`
	LowAfter   int64           `json:"low_after_delete"`
	Config     string          `json:"retention_ms"`
	Brokers    int             `json:"brokers"`
	Deleted    bool            `json:"deleted"`
}

func main() {
	bounded, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var seen any
	var err error
	what, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	switch what {
	case "group":
		seen, err = group(bounded, bootstrap, topic, os.Args[4])
	case "transact":
		seen, err = transact(bounded, bootstrap, topic)
	case "login":
		seen, err = login(bounded, bootstrap, topic, os.Args[4], os.Args[5], os.Args[6])
	case "copy":
		var count int
		if count, err = strconv.Atoi(os.Args[5]); err == nil {
			seen = &transactionReport{}
			err = copyTopic(bounded, bootstrap, topic, os.Args[4], count, os.Args[6], seen.(*transactionReport))
		}
	default:
		seen, err = basics(bounded, bootstrap, topic)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(seen)
}

func basics(ctx context.Context, bootstrap, topic string) (*report, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "3600000"
	configs := map[string]*string{"retention.ms": &retention}
	if _, err := admin.CreateTopic(ctx, 2, 1, configs, topic); err != nil {
		return nil, err
	}
	seen := &report{InOrder: true, EndOffsets: map[int32]int64{}}
	if err := produceWithEveryCodec(ctx, bootstrap, topic, seen); err != nil {
		return nil, err
	}
	if err := consumeByAssignment(ctx, bootstrap, topic, seen); err != nil {
		return nil, err
	}
	return seen, administer(ctx, admin, topic, seen)
}

func produceWithEveryCodec(ctx context.Context, bootstrap, topic string, seen *report) error {
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
		kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(bootstrap),
			kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for number := 0; number < recordsPerCodec; number++ {
			records = append(records, &kgo.Record{
				Topic:     topic,
				Partition: 1,
				Value:     []byte(fmt.Sprint(seen.Produced + number)),
				Headers:   []kgo.RecordHeader{{Key: "from", Value: []byte("franz-go")}},
			})
		}
		err = client.ProduceSync(ctx, records...).FirstErr()
		client.Close()
		if err != nil {
			return err
		}
		seen.Produced += recordsPerCodec
	}
	return nil
}

func consumeByAssignment(ctx context.Context, bootstrap, topic string, seen *report) error {
	assigned := map[string]map[int32]kgo.Offset{topic: {1: kgo.NewOffset().At(0)}}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(assigned))
	if err != nil {
		return err
	}
	defer client.Close()
	for seen.Consumed < seen.Produced {
		fetched := client.PollFetches(ctx)
		if errs := fetched.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			if string(record.Value) != fmt.Sprint(seen.Consumed) || record.Offset != int64(seen.Consumed) {
				seen.InOrder = false
			}
			seen.Headers = record.Headers[0].Key + "=" + string(record.Headers[0].Value)
			seen.Consumed++
		})
	}
	return nil
}

func administer(ctx context.Context, admin *kadm.Client, topic string, seen *report) error {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends.Each(func(offset kadm.ListedOffset) { seen.EndOffsets[offset.Partition] = offset.Offset })
	upTo := kadm.Offsets{}
	upTo.AddOffset(topic, 1, 123, -1)
	cut, err := admin.DeleteRecords(ctx, upTo)
	if err != nil {
		return err
	}
	cut.Each(func(answer kadm.DeleteRecordsResponse) { seen.LowAfter = answer.LowWatermark })
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			seen.Config = *config.Value
		}
	}
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return err
	}
	seen.Brokers = len(brokers)
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	// The broker that answers may hear of the deletion a moment after the controller.
	for !seen.Deleted {
		left, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		seen.Deleted = !left.Has(topic)
	}
	return nil
}

package main

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const perTransaction = 10

type transactionReport struct {
	Committed int    `json:"committed"`
	Aborted   int    `json:"aborted"`
	Copied    int    `json:"copied"`
	OnceEach  bool   `json:"once_each"`
	State     string `json:"state"`
	Position  int64  `json:"position"`
}

// Copies a topic to another in transactions that hold records and offsets; every third is aborted
// and tried again.
func transact(ctx context.Context, bootstrap, topic string) (*transactionReport, error) {
	plain, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	admin, seen, target := kadm.NewClient(plain), &transactionReport{}, topic+"-copy"
	if _, err := admin.CreateTopics(ctx, partitions, 1, nil, topic, target); err != nil {
		return nil, err
	}
	if err := produceToAll(ctx, plain, topic, recordsPerPartition); err != nil {
		return nil, err
	}
	if err := copyTopic(ctx, bootstrap, topic, target, partitions*recordsPerPartition, topic, seen); err != nil {
		return nil, err
	}
	described, err := admin.DescribeTransactions(ctx, topic)
	if err != nil {
		return nil, err
	}
	seen.State = described[topic].State
	offsets, err := admin.FetchOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	offsets.Each(func(one kadm.OffsetResponse) { seen.Position += one.At })
	return seen, readCopies(ctx, bootstrap, target, seen)
}

func copyTopic(ctx context.Context, bootstrap, source, target string, count int, group string, seen *transactionReport) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(source),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied, attempt := 0, 0; copied < count; attempt++ {
		fetched := session.PollRecords(ctx, perTransaction)
		if errs := fetched.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(attempt%3 != 2))
		if err != nil {
			return err
		}
		if committed {
			seen.Committed++
			copied += fetched.NumRecords()
		} else {
			seen.Aborted++
		}
	}
	return nil
}

func readCopies(ctx context.Context, bootstrap, target string, seen *transactionReport) error {
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(target), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer reader.Close()
	var values []string
	for len(values) < partitions*recordsPerPartition {
		fetched := reader.PollFetches(ctx)
		if errs := fetched.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		fetched.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	seen.Copied = len(values)
	slices.Sort(values)
	seen.OnceEach = len(slices.Compact(values)) == seen.Copied
	return nil
}

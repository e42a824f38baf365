package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4
const recordsPerPartition = 50

type groupReport struct {
	Read          int    `json:"read"`
	Shared        []int  `json:"shared"`
	ReadByHeir    int    `json:"read_by_heir"`
	AloneAgain    int    `json:"alone_again"`
	State         string `json:"state"`
	Committed     int64  `json:"committed"`
	StateAfter    string `json:"state_after"`
	DeletedGroups int    `json:"deleted_groups"`
}

// A member is polled from this thread only; callbacks say what it owns.
type member struct {
	client *kgo.Client
	owned  chan int
	count  int
	read   int
}

func join(bootstrap, topic, how string) (*member, error) {
	self := &member{owned: make(chan int, 100)}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, new map[string][]int32) {
			self.owned <- len(new[topic])
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, old map[string][]int32) {
			self.owned <- -len(old[topic])
		}),
	}
	switch how {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "server":
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	self.client = client
	return self, err
}

func (self *member) poll(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	fetched := self.client.PollFetches(short)
	for _, failed := range fetched.Errors() {
		if failed.Err != context.DeadlineExceeded {
			return failed.Err
		}
	}
	self.read += fetched.NumRecords()
	for {
		select {
		case change := <-self.owned:
			self.count += change
		default:
			return ctx.Err()
		}
	}
}

func pollUntil(ctx context.Context, isReached func() bool, members ...*member) error {
	for !isReached() {
		for _, one := range members {
			if err := one.poll(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func produceToAll(ctx context.Context, client *kgo.Client, topic string, count int) error {
	var records []*kgo.Record
	for number := 0; number < partitions*count; number++ {
		value := []byte(fmt.Sprint(number))
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: value})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func group(ctx context.Context, bootstrap, topic, how string) (*groupReport, error) {
	plain, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	admin, seen := kadm.NewClient(plain), &groupReport{}
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return nil, err
	}
	if err := produceToAll(ctx, plain, topic, recordsPerPartition); err != nil {
		return nil, err
	}
	first, err := join(bootstrap, topic, how)
	if err != nil {
		return nil, err
	}
	all := partitions * recordsPerPartition
	if err := pollUntil(ctx, func() bool { return first.read == all }, first); err != nil {
		return nil, err
	}
	if err := first.client.CommitUncommittedOffsets(ctx); err != nil {
		return nil, err
	}
	second, err := join(bootstrap, topic, how)
	if err != nil {
		return nil, err
	}
	isShared := func() bool { return first.count == 2 && second.count == 2 }
	if err := pollUntil(ctx, isShared, first, second); err != nil {
		return nil, err
	}
	seen.Shared = []int{first.count, second.count}
	if err := produceToAll(ctx, plain, topic, 1); err != nil {
		return nil, err
	}
	isRead := func() bool { return first.read+second.read == all+partitions }
	if err := pollUntil(ctx, isRead, first, second); err != nil {
		return nil, err
	}
	seen.Read, seen.ReadByHeir = first.read+second.read, second.read
	second.client.Close()
	if err := pollUntil(ctx, func() bool { return first.count == partitions }, first); err != nil {
		return nil, err
	}
	seen.AloneAgain = first.count
	if seen.State, err = stateOf(ctx, admin, topic, how); err != nil {
		return nil, err
	}
	first.client.Close()
	return seen, lookBack(ctx, admin, topic, how, seen)
}

func lookBack(ctx context.Context, admin *kadm.Client, topic, how string, seen *groupReport) error {
	committed, err := admin.FetchOffsets(ctx, topic)
	if err != nil {
		return err
	}
	committed.Each(func(one kadm.OffsetResponse) { seen.Committed += one.At })
	if seen.StateAfter, err = stateOf(ctx, admin, topic, how); err != nil {
		return err
	}
	deleted, err := admin.DeleteGroups(ctx, topic)
	if err == nil {
		err = deleted.Error()
	}
	seen.DeletedGroups = len(deleted)
	return err
}

func stateOf(ctx context.Context, admin *kadm.Client, name, how string) (string, error) {
	if how == "server" {
		described, err := admin.DescribeConsumerGroups(ctx, name)
		return described[name].State, err
	}
	described, err := admin.DescribeGroups(ctx, name)
	return described[name].State, err
}

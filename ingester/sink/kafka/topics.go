package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// topics knows how many partitions each topic has.
type topics struct {
	client *kafka.Client
	create CreateTopics

	mu    sync.Mutex
	known map[string]partitions
}

type partitions struct {
	count int
	asked time.Time
}

// freshFor is how long a number of partitions is taken for true. The client's cache
// of metadata is not older than its own time either.
const freshFor = 10 * time.Second

// errMissing says that a topic is not there and is not to be made.
var errMissing = errors.New("the topic does not exist: make it, or set create_topics.partitions")

// count returns how many partitions a topic has. A topic that is missing is made, if
// the options say so.
func (t *topics) count(ctx context.Context, topic string, now time.Time) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.known[topic]
	if known && now.Sub(old.asked) < freshFor {
		return old.count, nil
	}
	if ctx.Err() != nil { // others asked in vain while this one waited
		return 0, context.Cause(ctx)
	}
	n, err := t.ask(ctx, topic)
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		n, err = t.make(ctx, topic)
	case err != nil && known:
		// What produces will find out what is wrong, if anything is.
		return old.count, nil
	}
	if err != nil {
		return 0, err
	}
	t.known[topic] = partitions{n, now}
	return n, nil
}

func (t *topics) ask(ctx context.Context, topic string) (int, error) {
	m, err := t.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	for _, found := range m.Topics {
		if found.Name != topic {
			continue
		}
		if found.Error != nil {
			return 0, found.Error
		}
		if len(found.Partitions) > 0 {
			return len(found.Partitions), nil
		}
	}
	return 0, kafka.UnknownTopicOrPartition
}

func (t *topics) make(ctx context.Context, topic string) (int, error) {
	if t.create.Partitions == 0 {
		return 0, errMissing
	}
	r, err := t.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: t.create.Partitions, ReplicationFactor: t.create.ReplicationFactor,
	}}})
	if err != nil {
		return 0, fmt.Errorf("the topic does not exist and cannot be made: %w", err)
	}
	if err := r.Errors[topic]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
		return 0, fmt.Errorf("the topic does not exist and cannot be made: %w", err)
	}
	// Another ingester may have made it at the same time, or it may not be known
	// everywhere yet.
	for ctx.Err() == nil {
		n, err := t.ask(ctx, topic)
		if !errors.Is(err, kafka.UnknownTopicOrPartition) {
			return n, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return 0, fmt.Errorf("the topic was made and is not known to the brokers yet: %w", context.Cause(ctx))
}

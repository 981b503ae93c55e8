package main

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
)

// wanted says whether a scenario is to be run.
func (s *settings) wanted(name string) bool { return s.only.MatchString(name) }

// The names of the scenarios, which the targets refer to.
const (
	hotGranted   = "hot key granted"
	hotRefused   = "hot key refused"
	uniformKeys  = "100 000 uniform keys"
	longLeases   = "leases of a minute, 100 000 uniform keys"
	zipfKeys     = "100 000 keys by Zipf's law"
	threeLimits  = "three limits at once, uniform keys"
	oneInMemory  = "memory, one key"
	manyInMemory = "memory, 1 000 000 uniform keys"
)

func three(l contest.Limit) []contest.Limit { return []contest.Limit{l, l, l} }

func (s *settings) redisRows(ctx context.Context, r *results, redis *measure.Redis) error {
	callers := []int{1, 8, 64, 256}
	if s.short {
		callers = []int{1, 64, 256}
	}
	one := func(l contest.Limit) []contest.Limit { return []contest.Limit{l} }
	plan := s.plan
	plan.Stride = 16
	for _, scenario := range []measure.Scenario{
		{Name: hotGranted, Limits: one(contest.Ample), Keys: measure.Hot(), Callers: callers},
		{Name: hotRefused, Limits: one(contest.Tight), Keys: measure.Hot(), Callers: callers},
		{Name: uniformKeys, Limits: one(contest.Ample), Keys: measure.Uniform(100_000), Callers: callers},
		{Name: zipfKeys, Limits: one(contest.Ample), Keys: measure.Zipf(100_000), Callers: callers[len(callers)-2:]},
		{Name: threeLimits, Limits: three(contest.Ample), Keys: measure.Uniform(100_000), Callers: []int{64}},
	} {
		if !s.wanted(scenario.Name) {
			continue
		}
		if err := plan.Compete(ctx, scenario, contestants(contest.Redis), redis, &r.Redis); err != nil {
			return err
		}
	}
	return s.leaseRow(ctx, r, redis)
}

// leaseRow asks for leases that outlast the time between two questions for a key, once
// every key has been asked for often enough to have a share.
func (s *settings) leaseRow(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted(longLeases) {
		return nil
	}
	plan := s.plan
	plan.Stride, plan.Warm = 16, 40*plan.Duration
	return plan.Compete(ctx, measure.Scenario{
		Name: longLeases, Limits: []contest.Limit{contest.Ample}, Keys: measure.Uniform(100_000), Callers: []int{64},
	}, []contest.Contestant{contest.Patient}, redis, &r.Redis)
}

func (s *settings) memoryRows(ctx context.Context, r *results, _ *measure.Redis) error {
	many := 1_000_000
	if s.short {
		many = 100_000
	}
	plan := s.plan
	plan.Stride = 1024
	for _, scenario := range []measure.Scenario{
		{Name: oneInMemory, Limits: []contest.Limit{contest.Ample}, Keys: measure.Hot(), Callers: []int{1, 2, 8}, Keyless: true},
		{Name: manyInMemory, Limits: []contest.Limit{contest.Ample}, Keys: measure.Uniform(many), Callers: []int{1, 2}},
		{Name: "memory, one key refused", Limits: []contest.Limit{contest.Tight}, Keys: measure.Hot(), Callers: []int{1, 2}, Keyless: true},
	} {
		if !s.wanted(scenario.Name) {
			continue
		}
		if err := plan.Compete(ctx, scenario, contestants(contest.Memory), nil, &r.Memory); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) exactness(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted("exactness") {
		return nil
	}
	s.plan.Progress("exactness")
	for _, c := range contestants(contest.Redis) {
		for _, nodes := range []int{1, 2} {
			e, err := measure.Exact(ctx, c, nodes, redis)
			if err != nil {
				return err
			}
			r.Exactness = append(r.Exactness, e)
		}
	}
	for _, c := range contestants(contest.Memory) {
		if c.Blocking {
			continue
		}
		e, err := measure.Exact(ctx, c, 1, nil)
		if err != nil {
			return err
		}
		r.Exactness = append(r.Exactness, e)
	}
	return nil
}

func (s *settings) sizes(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted("bytes") {
		return nil
	}
	memory, inRedis := 1_000_000, 100_000
	if s.short {
		memory, inRedis = 100_000, 10_000
	}
	for _, c := range append(contestants(contest.Redis), contestants(contest.Memory)...) {
		if c.Keyless {
			continue
		}
		s.plan.Progress("bytes a key: " + c.Name)
		server, n := redis, inRedis
		if c.Kind == contest.Memory {
			server, n = nil, memory
		}
		size, err := measure.Bytes(ctx, c, n, server)
		if err != nil {
			return err
		}
		r.Sizes = append(r.Sizes, size)
	}
	s.plan.Progress("bytes a key: algorithms in Redis")
	var err error
	r.States, err = measure.AlgorithmBytes(ctx, redis, inRedis)
	return err
}

func (s *settings) growth(ctx context.Context, r *results, redis *measure.Redis) error {
	if !s.wanted("growth") {
		return nil
	}
	largest := 10_000_000
	if s.short {
		largest = 100_000
	}
	var err error
	if r.Growth, err = measure.GrowMemory(ctx, contest.Weir[0], largest, s.plan.Progress); err != nil {
		return err
	}
	return s.growRedis(ctx, r, redis)
}

// growRedis asks a store on Redis among more and more keys, and from more and
// more instances.
func (s *settings) growRedis(ctx context.Context, r *results, redis *measure.Redis) error {
	largest := 1_000_000
	if s.short {
		largest = 10_000
	}
	best := contestants(contest.Redis)[:1]
	plan := s.plan
	plan.Stride = 16
	for n := 1000; n <= largest; n *= 10 {
		if err := redis.Clear(); err != nil {
			return err
		}
		err := plan.Compete(ctx, measure.Scenario{
			Name: fmt.Sprintf("growth, %d uniform keys", n), Limits: []contest.Limit{contest.Ample}, Keys: measure.Uniform(n), Callers: []int{64},
		}, best, redis, &r.Redis)
		if err != nil {
			return err
		}
	}
	for _, instances := range []int{1, 2, 4} {
		err := plan.Compete(ctx, measure.Scenario{
			Name: fmt.Sprintf("growth, %d instances", instances), Limits: []contest.Limit{contest.Ample}, Keys: measure.Uniform(100_000), Callers: []int{64},
		}, []contest.Contestant{contest.Fleet(best[0], instances)}, redis, &r.Redis)
		if err != nil {
			return err
		}
	}
	return nil
}

package redisengine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// oldest is the oldest version of Redis that the store supports.
const oldest = 6.2

// A Finding is a problem with a server's settings, as the public package documents it.
type Finding struct {
	Node, Setting, Detail string
	Fatal                 bool
}

// String returns the finding as messages show it.
func (f Finding) String() string { return f.Node + ": " + f.Setting + ": " + f.Detail }

// Check inspects every server that the store uses, as the public package documents it.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, classify(err)
	}
	var found []Finding
	seen := make(map[string]bool)
	for i := 0; len(seen) < masters && i < clusterSlots; i++ {
		tag := "check " + strconv.Itoa(i)
		node, err := s.node(ctx, s.keys.join(tag, key{}))
		if err != nil {
			return found, classify(err)
		}
		address := ""
		if node != nil {
			address = node.Options().Addr
		}
		if seen[address] {
			continue
		}
		seen[address] = true
		more, err := s.inspect(ctx, node, tag)
		if found = append(found, more...); err != nil {
			return found, err
		}
	}
	return found, nil
}

// masters returns how many servers have hash slots, as far as the client knows.
func (s *Store) masters(ctx context.Context) (int, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return 1, nil
	}
	var masters atomic.Int64
	err := cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error {
		masters.Add(1)
		return nil
	})
	return int(masters.Load()), err
}

// node returns the server that has a key; nil if only the client knows it.
func (s *Store) node(ctx context.Context, name string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, name)
	}
	return nil, nil
}

// inspect checks one server, by keys with a hash tag that it owns.
func (s *Store) inspect(ctx context.Context, node *redis.Client, tag string) ([]Finding, error) {
	var found []Finding
	address := "redis"
	if node != nil {
		address = node.Options().Addr
		info, err := node.Info(ctx).Result()
		switch {
		case redis.IsPermissionError(err):
			found = append(found, Finding{address, "permissions", "version, role and maxmemory-policy are unknown: want +info", false})
		case err != nil:
			return nil, classify(err)
		default:
			_, clustered := s.client.(*redis.ClusterClient)
			found = append(found, read(info, address, clustered)...)
			if clustered {
				found = append(found, coverage(ctx, node, address)...)
			}
		}
	}
	if slices.ContainsFunc(found, func(f Finding) bool { return f.Fatal }) {
		return found, nil
	}
	err := s.try(ctx, tag)
	if cannotRun(err) {
		// A key may be lost between two calls, to an eviction for instance: once is no proof.
		err = s.try(ctx, tag)
	}
	if cannotRun(err) {
		return append(found, Finding{address, "permissions", "the store's scripts cannot run: " + err.Error(), true}), nil
	}
	return found, err
}

// coverage finds that a cluster's node answers for none of its slots while another node's are
// without a master. A node that does not tell its settings is no problem.
func coverage(ctx context.Context, node *redis.Client, address string) []Finding {
	const setting = "cluster-require-full-coverage"
	value, err := node.ConfigGet(ctx, setting).Result()
	if err != nil || value[setting] != "yes" {
		return nil
	}
	return []Finding{{address, setting, "yes: while one slot has no master, no slot has an answer: want no", false}}
}

// cannotRun reports whether the server answered, and does not do what the scripts need.
func cannotRun(err error) bool {
	return errors.Is(err, weir.ErrMisconfigured) || errors.Is(err, weir.ErrBackend)
}

// read returns the findings in the text of INFO.
func read(info, address string, clustered bool) []Finding {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	var found []Finding
	add := func(fatal bool, setting, format string, args ...any) {
		found = append(found, Finding{address, setting, fmt.Sprintf(format, args...), fatal})
	}
	if fields["cluster_enabled"] == "1" && !clustered {
		add(true, "topology", "a node of a cluster, used as a single server: want a cluster client")
	}
	if fields["role"] == "slave" {
		add(true, "role", "a replica, which accepts no writes: want its master")
	}
	version := fields["redis_version"]
	if major, minor, ok := strings.Cut(version, "."); ok && fields["valkey_version"] == "" {
		minor, _, _ = strings.Cut(minor, ".")
		if n, err := strconv.ParseFloat(major+"."+minor, 64); err == nil && n < oldest {
			add(false, "version", "%s: want %.1f or later", version, oldest)
		}
	}
	if policy := fields["maxmemory_policy"]; policy != "noeviction" && policy != "" && fields["maxmemory"] != "0" {
		add(false, "maxmemory-policy", "%s: evicted keys lose their counts, so that limits grant too much: want noeviction", policy)
	}
	return found
}

// try runs every kind of act on new keys with a hash tag.
func (s *Store) try(ctx context.Context, tag string) error {
	name := "check " + rand.Text()
	takes := make([]*weir.Act, len(algo.Steps))
	for id := range takes {
		l := weir.PerMinute(1)
		l.Algorithm = weir.Algorithm(id)
		takes[id] = &weir.Act{
			Charges:   []weir.Charge{{Key: name, HashTag: tag, Limit: l.MustCompile(), Cost: 1}},
			Decisions: make([]weir.Decision, 1),
		}
		if algo.TraitsOf(l.Algorithm).HoldsSlots {
			takes[id].ID, takes[id].NewID, takes[id].Scope.Owner = rand.Text(), true, name
			defer s.client.Del(ctx, s.keys.record(takes[id]))
		}
	}
	if err := s.must(ctx, acts.KindTake, takes); err != nil {
		return err
	}
	// The script reads a single key with GET, and several with MGET.
	for _, looks := range [][]*weir.Act{peeks(takes), peeks(takes[:1])} {
		if err := s.must(ctx, acts.KindTake, looks); err != nil {
			return err
		}
		for _, a := range looks {
			if a.Decisions[0].Remaining > 0 {
				return fmt.Errorf("%w: charges are not found again: want +get and +mget", weir.ErrMisconfigured)
			}
		}
	}
	if err := s.must(ctx, acts.KindRefund, takes); err != nil {
		return err
	}
	if err := s.must(ctx, acts.KindReset, takes); err != nil {
		return err
	}
	return s.tryRare(ctx, s.keys.name(&takes[0].Charges[0]))
}

// tryRare calls the commands that the scripts need only for states that are older than a
// moment, on a key that does not exist.
func (s *Store) tryRare(ctx context.Context, key string) error {
	for _, err := range []error{
		s.client.LSet(ctx, key, 0, "").Err(), s.client.LTrim(ctx, key, 0, 0).Err(), s.client.ZRem(ctx, key, "").Err(),
		s.client.BitPos(ctx, key, 1, 0, 0).Err(),
		s.client.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: "0", Max: "0"}).Err(),
	} {
		if redis.IsPermissionError(err) {
			return fmt.Errorf("%w: %w", weir.ErrMisconfigured, err)
		}
	}
	return nil
}

// must has acts done and returns their first error.
func (s *Store) must(ctx context.Context, kind weir.Kind, all []*weir.Act) error {
	for _, a := range all {
		if a.Kind = kind; kind == acts.KindReset {
			a.ID = ""
		}
		a.Charges[0].At = a.Decisions[0].At.UnixMicro()
	}
	s.Take(ctx, all)
	for _, a := range all {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

func peeks(takes []*weir.Act) []*weir.Act {
	looks := make([]*weir.Act, len(takes))
	for i, a := range takes {
		looks[i] = &weir.Act{Charges: slices.Clone(a.Charges), Decisions: make([]weir.Decision, 1)}
		looks[i].Charges[0].Cost = 0
	}
	return looks
}

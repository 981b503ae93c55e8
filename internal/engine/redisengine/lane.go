package redisengine

import (
	"context"
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirlimit/weir"
)

// lanes is how many script calls to have in flight to one server: while it runs one, the
// other is written and read.
const lanes = 2

var laneSeed = maphash.MakeSeed()

// Locate returns the address of the server that decides an act, and the lane of the act
// there: a number, the same for acts whose first charges have the same hash tag. Calls of
// different lanes can be in flight at once. If alone is false, other servers decide a part of
// the act. The address is empty if a cluster's client does not know the server.
func (s *Store) Locate(a *weir.Act) (node string, lane int, alone bool) {
	if len(a.Charges) == 0 {
		return s.address, 0, true
	}
	first := tagSource(&a.Charges[0])
	lane = int(maphash.String(laneSeed, first) % lanes)
	cluster, several := s.client.(*redis.ClusterClient)
	if !several {
		return s.address, lane, true
	}
	node = s.owner(cluster, &a.Charges[0])
	for i := 1; i < len(a.Charges); i++ {
		c := &a.Charges[i]
		if tagSource(c) != first && s.owner(cluster, c) != node {
			return node, lane, false
		}
	}
	return node, lane, true
}

// Nodes returns the addresses of all servers that decide a part of an act.
func (s *Store) Nodes(a *weir.Act) []string {
	cluster, several := s.client.(*redis.ClusterClient)
	if !several {
		return []string{s.address}
	}
	var names []string
	for i := range a.Charges {
		if name := s.owner(cluster, &a.Charges[i]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// owner returns the address of the master that has a charge's key.
func (s *Store) owner(cluster *redis.ClusterClient, c *weir.Charge) string {
	tag := make([]byte, 0, 2+tagLength)
	tag = append(appendBits(append(tag, '{'), uint64(s.keys.tagOf(tagSource(c))), tagLength), '}')
	if !s.located.Load() {
		// The client would load the cluster's slots now, and the caller would wait.
		return ""
	}
	node, err := cluster.MasterForKey(context.Background(), string(tag))
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// probeLimit keeps the key of a probe for a second or two.
var probeLimit = weir.Limit{Algorithm: weir.FixedWindow, Count: 1_000_000, Period: time.Second}.MustCompile()

// Probe makes a charge at a server, on a separate connection, and returns an error unless
// that succeeded before ctx ended. The node is a name that Locate has returned.
func (s *Store) Probe(ctx context.Context, node string) error {
	charge := weir.Charge{Key: "probe", Limit: probeLimit, Cost: 1}
	server, found := s.server(ctx, node, &charge)
	if !found {
		// The node has no keys any more, so no caller waits for it.
		return nil
	}
	probe := s
	if server != nil {
		options := *server.Options()
		options.PoolSize, options.MinIdleConns, options.MaxActiveConns = 1, 0, 1
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
		if deadline, bounded := ctx.Deadline(); bounded {
			// The client's own timeout may be shorter than the probe may take.
			options.ReadTimeout = max(options.ReadTimeout, time.Until(deadline))
		}
		// The other client may be writing to its configuration.
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		client := redis.NewClient(&options)
		defer client.Close()
		probe = &Store{
			client: client, keys: s.keys, timeout: s.timeout, punctual: true,
			scripts: s.scripts, extra: s.extra, logger: s.logger,
		}
	}
	act := weir.Act{Charges: []weir.Charge{charge}, Decisions: make([]weir.Decision, 1)}
	probe.Take(ctx, []*weir.Act{&act})
	return act.Err
}

// server returns the client of a node, nil if only the store's own client is known, and
// sets the charge's key to one that the node has. Found is false if it has none.
func (s *Store) server(ctx context.Context, node string, charge *weir.Charge) (server *redis.Client, found bool) {
	switch client := s.client.(type) {
	case *redis.Client:
		return client, true
	case *redis.ClusterClient:
		// The slots may have moved.
		client.ReloadState(ctx)
		if node == "" {
			return nil, true
		}
		for i := range maxProbeKeys {
			charge.Key = "probe" + strconv.Itoa(i)
			if s.owner(client, charge) == node {
				server, err := client.MasterForKey(ctx, s.keys.name(charge))
				return server, err == nil
			}
		}
		return nil, false
	}
	return nil, true
}

// maxProbeKeys is how many keys are tried to find one that a node has: a node with one
// of 16384 slots has one of so many almost surely.
const maxProbeKeys = 200_000

package app

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/server/internal/dashboard"
)

// sentinels are asked what they watch. The client for decisions has connections of
// its own to them.
type sentinels struct {
	master  string
	clients []*redis.SentinelClient
	addrs   []string
}

// newSentinels connects to nothing.
func newSentinels(t *target) *sentinels {
	s := &sentinels{master: t.master, addrs: t.addrs}
	for _, address := range t.addrs {
		s.clients = append(s.clients, redis.NewSentinelClient(&redis.Options{
			Addr: address, Username: t.sentinelUser, Password: t.sentinelPassword, TLSConfig: t.TLSConfig,
			MaxRetries: t.MaxRetries, DialerRetries: t.DialerRetries, ContextTimeoutEnabled: true, DisableIdentity: true,
			DialTimeout: t.DialTimeout, ReadTimeout: t.ReadTimeout, WriteTimeout: t.WriteTimeout, PoolSize: 1,
			MaintNotificationsConfig: t.MaintNotificationsConfig,
		}))
	}
	return s
}

func (s *sentinels) close() error {
	var err error
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// A watched is what one sentinel says.
type watched struct {
	master   map[string]string
	replicas []map[string]string
	err      error
}

// nodes returns the master, its replicas and the sentinels, as the first sentinel
// sees them that answers.
func (s *sentinels) nodes(ctx context.Context) []dashboard.Node {
	said := s.ask(ctx)
	var all []dashboard.Node
	for _, w := range said {
		if w.err == nil {
			all = append(all, seen(roleMaster, w.master))
			for _, r := range w.replicas {
				all = append(all, seen(roleReplica, r))
			}
			break
		}
	}
	for i, w := range said {
		if w.err != nil {
			all = append(all, unknown(s.addrs[i], roleSentinel, w.err, "+sentinel|master +sentinel|replicas"))
			continue
		}
		all = append(all, dashboard.Node{Address: s.addrs[i], Role: roleSentinel})
	}
	return all
}

// ask asks all sentinels at once.
func (s *sentinels) ask(ctx context.Context) []watched {
	said := make([]watched, len(s.clients))
	var asking sync.WaitGroup
	for i, client := range s.clients {
		asking.Go(func() {
			w := &said[i]
			if w.master, w.err = client.Master(ctx, s.master).Result(); w.err == nil {
				w.replicas, w.err = client.Replicas(ctx, s.master).Result()
			}
		})
	}
	asking.Wait()
	return said
}

// seen reads what a sentinel says of a server.
func seen(role string, of map[string]string) dashboard.Node {
	told := dashboard.Node{Address: net.JoinHostPort(of["ip"], of["port"]), Role: role}
	flags := "," + of["flags"] + ","
	switch {
	case strings.Contains(flags, ",o_down,"):
		told.Detail = "unreachable, as most sentinels say"
	case strings.Contains(flags, ",s_down,"):
		told.Detail = "unreachable, as one sentinel says"
	case strings.Contains(flags, ",disconnected,"):
		told.Detail = "not connected to a sentinel"
	case role == roleReplica && of["master-link-status"] != "ok":
		told.Detail = "not connected to its master"
	}
	told.Bad = told.Detail != ""
	return told
}

package store

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// nodesPause is the most that the known nodes may be out of date.
	nodesPause = 2 * time.Second
	// nodesTimeout bounds the wait for the servers.
	nodesTimeout = 300 * time.Millisecond
)

const (
	roleMaster   = "master"
	roleReplica  = "replica"
	roleSentinel = "sentinel"
	// roleServer is the role of a server that does not tell it.
	roleServer = "server"
)

// A Node is one server of a store in Redis.
type Node struct {
	// Address is host:port; it may be several, joined with commas, where only these
	// are known.
	Address string `json:"address"`
	// Role is master, replica, sentinel, server or cluster.
	Role string `json:"role"`
	// Detail is the hash slots of a master, the master of a replica, or what is wrong.
	Detail string `json:"detail,omitempty"`
	// Bad reports whether something is wrong.
	Bad bool `json:"bad,omitempty"`
}

// A topology is the servers of a store in Redis. It asks for them only when somebody
// watches.
type topology struct {
	ask   func(context.Context) []Node
	close func() error

	mu     sync.Mutex // guards the fields below; never held while waiting
	asked  time.Time
	known  []Node
	asking bool
}

// newTopology returns the topology of a target. It connects to nothing.
func newTopology(to *target, client redis.UniversalClient) *topology {
	t := &topology{close: func() error { return nil }}
	switch client := client.(type) {
	case *redis.ClusterClient:
		t.ask = func(ctx context.Context) []Node { return clusterNodes(ctx, client, to.addrs) }
	case *redis.Client:
		t.ask = func(ctx context.Context) []Node { return standaloneNodes(ctx, client) }
		if to.kind == "sentinel" {
			sentinels := newSentinels(to)
			t.ask, t.close = sentinels.nodes, sentinels.close
		}
	}
	return t
}

// nodes returns the servers as they are, or as they were within nodesPause.
func (t *topology) nodes(ctx context.Context) []Node {
	t.mu.Lock()
	known, wait := t.known, t.asking || time.Since(t.asked) < nodesPause
	t.asking = t.asking || !wait
	t.mu.Unlock()
	if wait {
		return known
	}
	// The answer is for later callers too, even if this one leaves.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nodesTimeout)
	defer cancel()
	known = t.ask(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.asked, t.asking = known, time.Now(), false
	return known
}

// unknown returns a server that could not be asked. The server needs the permissions
// want where it refused.
func unknown(address, role string, err error, want string) Node {
	if redis.IsPermissionError(err) {
		return Node{Address: address, Role: role, Detail: "cannot be looked at: want " + want}
	}
	return Node{Address: address, Role: role, Detail: "unreachable: " + err.Error(), Bad: true}
}

// standaloneNodes returns a server and the replicas that follow it.
func standaloneNodes(ctx context.Context, client *redis.Client) []Node {
	address := client.Options().Addr
	info, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return []Node{unknown(address, roleServer, err, "+info")}
	}
	return replication(address, info)
}

// replication reads a server and its replicas from INFO.
func replication(address, info string) []Node {
	all := []Node{{Address: address, Role: roleMaster}}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "role" && value == "slave":
			all[0].Role, all[0].Detail, all[0].Bad = roleReplica, "takes no writes", true
		case strings.HasPrefix(name, "slave") && strings.Contains(value, "ip="):
			of := pairs(value)
			all = append(all, Node{Address: net.JoinHostPort(of["ip"], of["port"]), Role: roleReplica, Detail: of["state"], Bad: of["state"] != "online"})
		}
	}
	return all
}

// pairs reads a=b,c=d.
func pairs(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// clusterNodes returns the nodes of a cluster as one of them sees the others.
func clusterNodes(ctx context.Context, client *redis.ClusterClient, addrs []string) []Node {
	text, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return []Node{unknown(strings.Join(addrs, ","), "cluster", err, "+cluster|nodes")}
	}
	return clusterView(text)
}

// A clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id, address, master, link string
	flags, slots              []string
}

// clusterView reads CLUSTER NODES: masters, each with its replicas behind it.
func clusterView(text string) []Node {
	var read []clusterNode
	addresses := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		address, _, _ := strings.Cut(f[1], "@")
		read = append(read, clusterNode{id: f[0], address: address, flags: strings.Split(f[2], ","), master: f[3], link: f[7], slots: f[8:]})
		addresses[f[0]] = address
	}
	slices.SortStableFunc(read, func(a, b clusterNode) int { return strings.Compare(a.order(addresses), b.order(addresses)) })
	all := make([]Node, 0, len(read))
	for i := range read {
		all = append(all, read[i].node(addresses))
	}
	return all
}

// order sorts replicas behind their masters.
func (n *clusterNode) order(addresses map[string]string) string {
	if master, known := addresses[n.master]; known {
		return master + " " + n.address
	}
	return n.address
}

func (n *clusterNode) node(addresses map[string]string) Node {
	node := Node{Address: n.address, Role: roleMaster}
	if slices.Contains(n.flags, "slave") {
		node.Role, node.Detail = roleReplica, "of "+addresses[n.master]
	} else if node.Detail = "no slots"; len(n.slots) > 0 {
		node.Detail = "slots " + strings.Join(n.slots, " ")
	}
	trouble := ""
	switch {
	case slices.Contains(n.flags, "fail"):
		trouble = "unreachable"
	case slices.Contains(n.flags, "fail?"):
		trouble = "does not answer another node"
	case slices.Contains(n.flags, "handshake"), slices.Contains(n.flags, "noaddr"):
		trouble = "not known well yet"
	case n.link == "disconnected" && !slices.Contains(n.flags, "myself"):
		trouble = "not connected to another node"
	}
	if trouble != "" {
		node.Detail, node.Bad = trouble+"; "+node.Detail, true
	}
	return node
}

// sentinels are clients of all sentinels. The client for decisions has connections of
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

// A report is one sentinel's view.
type report struct {
	master   map[string]string
	replicas []map[string]string
	err      error
}

// nodes returns the master and its replicas as the first sentinel that answers sees
// them, and the sentinels.
func (s *sentinels) nodes(ctx context.Context) []Node {
	reports := s.ask(ctx)
	var all []Node
	for _, w := range reports {
		if w.err == nil {
			all = append(all, seen(roleMaster, w.master))
			for _, r := range w.replicas {
				all = append(all, seen(roleReplica, r))
			}
			break
		}
	}
	for i, w := range reports {
		if w.err != nil {
			all = append(all, unknown(s.addrs[i], roleSentinel, w.err, "+sentinel|master +sentinel|replicas"))
			continue
		}
		all = append(all, Node{Address: s.addrs[i], Role: roleSentinel})
	}
	return all
}

// ask asks all sentinels at once.
func (s *sentinels) ask(ctx context.Context) []report {
	reports := make([]report, len(s.clients))
	var asking sync.WaitGroup
	for i, client := range s.clients {
		asking.Go(func() {
			w := &reports[i]
			if w.master, w.err = client.Master(ctx, s.master).Result(); w.err == nil {
				w.replicas, w.err = client.Replicas(ctx, s.master).Result()
			}
		})
	}
	asking.Wait()
	return reports
}

// seen reads a server from a sentinel's reply.
func seen(role string, of map[string]string) Node {
	node := Node{Address: net.JoinHostPort(of["ip"], of["port"]), Role: role}
	flags := "," + of["flags"] + ","
	switch {
	case strings.Contains(flags, ",o_down,"):
		node.Detail = "unreachable, as most sentinels say"
	case strings.Contains(flags, ",s_down,"):
		node.Detail = "unreachable, as one sentinel says"
	case strings.Contains(flags, ",disconnected,"):
		node.Detail = "not connected to a sentinel"
	case role == roleReplica && of["master-link-status"] != "ok":
		node.Detail = "not connected to its master"
	}
	node.Bad = node.Detail != ""
	return node
}

package app

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/server/internal/dashboard"
)

const (
	// nodesPause is how old what is known of the store's servers may be.
	nodesPause = 2 * time.Second
	// nodesTimeout is how long they are waited for.
	nodesTimeout = 300 * time.Millisecond
)

const (
	roleMaster   = "master"
	roleReplica  = "replica"
	roleSentinel = "sentinel"
	// roleServer is that of one which does not say more.
	roleServer = "server"
)

// nodes are the servers of the store. They are looked for when somebody watches.
type nodes struct {
	ask func(context.Context) []dashboard.Node

	mu      sync.Mutex // guards what follows; never held while waiting
	asked   time.Time
	known   []dashboard.Node
	looking bool
}

// look returns the servers, as they were a moment ago or as they are.
func (n *nodes) look(ctx context.Context) []dashboard.Node {
	n.mu.Lock()
	known, wait := n.known, n.looking || time.Since(n.asked) < nodesPause
	n.looking = n.looking || !wait
	n.mu.Unlock()
	if wait {
		return known
	}
	// Who asks first may go, and others want to know.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nodesTimeout)
	defer cancel()
	known = n.ask(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known, n.asked, n.looking = known, time.Now(), false
	return known
}

// unknown is a server of which is known why nothing more is.
func unknown(address, role string, err error, want string) dashboard.Node {
	if redis.IsPermissionError(err) {
		return dashboard.Node{Address: address, Role: role, Detail: "cannot be looked at: want " + want}
	}
	return dashboard.Node{Address: address, Role: role, Detail: "unreachable: " + err.Error(), Bad: true}
}

// aloneNodes returns a server and the replicas that follow it.
func aloneNodes(ctx context.Context, client *redis.Client) []dashboard.Node {
	address := client.Options().Addr
	info, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return []dashboard.Node{unknown(address, roleServer, err, "+info")}
	}
	return replication(address, info)
}

// replication reads what INFO says of a server and its replicas.
func replication(address, info string) []dashboard.Node {
	all := []dashboard.Node{{Address: address, Role: roleMaster}}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "role" && value == "slave":
			all[0].Role, all[0].Detail, all[0].Bad = roleReplica, "takes no writes", true
		case strings.HasPrefix(name, "slave") && strings.Contains(value, "ip="):
			of := pairs(value)
			all = append(all, dashboard.Node{Address: net.JoinHostPort(of["ip"], of["port"]), Role: roleReplica, Detail: of["state"], Bad: of["state"] != "online"})
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

// clusterNodes returns the nodes of a cluster, as one of them sees the others.
func clusterNodes(ctx context.Context, client *redis.ClusterClient, addrs []string) []dashboard.Node {
	text, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return []dashboard.Node{unknown(strings.Join(addrs, ","), "cluster", err, "+cluster|nodes")}
	}
	return clusterView(text)
}

// A clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id, address, master, link string
	flags, slots              []string
}

// clusterView reads CLUSTER NODES: masters, each with its replicas behind it.
func clusterView(text string) []dashboard.Node {
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
	slices.SortStableFunc(read, func(a, b clusterNode) int { return strings.Compare(a.place(addresses), b.place(addresses)) })
	all := make([]dashboard.Node, 0, len(read))
	for i := range read {
		all = append(all, read[i].tell(addresses))
	}
	return all
}

// place sorts replicas behind their masters.
func (n *clusterNode) place(addresses map[string]string) string {
	if master, known := addresses[n.master]; known {
		return master + " " + n.address
	}
	return n.address
}

func (n *clusterNode) tell(addresses map[string]string) dashboard.Node {
	told := dashboard.Node{Address: n.address, Role: roleMaster}
	if slices.Contains(n.flags, "slave") {
		told.Role, told.Detail = roleReplica, "of "+addresses[n.master]
	} else if told.Detail = "no slots"; len(n.slots) > 0 {
		told.Detail = "slots " + strings.Join(n.slots, " ")
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
		told.Detail, told.Bad = trouble+"; "+told.Detail, true
	}
	return told
}

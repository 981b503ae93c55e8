//go:build unix

package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clusterSlots is how many hash slots a cluster has.
const clusterSlots = 1 << 14

// A Cluster is a Redis Cluster that belongs to one test and ends with it. Its
// methods are for the test's own goroutine, but for Move.
type Cluster struct {
	// Masters are the nodes that have hash slots at first, in the slots' order.
	Masters []*Redis
	// Replicas are as many, or none; each follows the master at its index.
	Replicas []*Redis

	t   testing.TB
	ids map[*Redis]string
}

// StartCluster starts a cluster of masters and returns once all of them report it as ok.
// The test is skipped if redis-server is not installed, and under -short. Args are for each server.
func StartCluster(t testing.TB, masters int, args ...string) *Cluster {
	t.Helper()
	return Spec{}.Cluster(t, masters, args...)
}

// StartReplicatedCluster is StartCluster with a replica for each master.
func StartReplicatedCluster(t testing.TB, masters int, args ...string) *Cluster {
	t.Helper()
	return Spec{}.cluster(t, size{masters, masters}, args)
}

// Cluster is [StartCluster] with the settings.
func (s Spec) Cluster(t testing.TB, masters int, args ...string) *Cluster {
	t.Helper()
	return s.cluster(t, size{masters, 0}, args)
}

// A size is how many servers a cluster has.
type size struct{ masters, replicas int }

func (s Spec) cluster(t testing.TB, n size, args []string) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster takes seconds to agree")
	}
	masters, replicas := n.masters, n.replicas
	c := &Cluster{t: t, ids: make(map[*Redis]string)}
	given := len(args) > 0
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, args...)
	if s.TLS != (TLS{}) {
		args = append(args, "--tls-cluster", "yes")
	}
	for i := range masters + replicas {
		r := s.Redis(t, args...)
		c.ids[r] = r.must("CLUSTER", "MYID")
		r.must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			from, to := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
			r.must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
			c.Masters = append(c.Masters, r)
		} else {
			c.Replicas = append(c.Replicas, r)
		}
		if i > 0 {
			c.Masters[0].must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(r.own()))
		}
	}
	for _, r := range c.nodes() {
		r.until("knows all nodes", func() bool {
			return strings.Contains(r.must("CLUSTER", "INFO"), fmt.Sprintf("cluster_known_nodes:%d\r", masters+replicas))
		})
	}
	for i, r := range c.Replicas {
		r.must("CLUSTER", "REPLICATE", c.ids[c.Masters[i]])
	}
	for _, r := range c.nodes() {
		r.until("finds the cluster ok", func() bool {
			return strings.Contains(r.must("CLUSTER", "INFO"), "cluster_state:ok") &&
				strings.Count(r.must("CLUSTER", "NODES"), "slave") == len(c.Replicas)
		})
	}
	for _, r := range c.Replicas {
		r.until("follows its master", func() bool { return strings.Contains(r.must("INFO", "replication"), "master_link_status:up") })
	}
	if replicas == 0 && !given {
		// Nobody takes over, so no test waits for a node to be declared dead. One that gets no time
		// on a busy machine is none.
		for _, r := range c.Masters {
			r.must("CONFIG", "SET", "cluster-node-timeout", "60000")
		}
	}
	return c
}

func (c *Cluster) nodes() []*Redis { return append(append([]*Redis(nil), c.Masters...), c.Replicas...) }

// Addrs returns the masters' addresses, as host:port.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, r := range c.Masters {
		addrs = append(addrs, r.ownAddr())
	}
	return addrs
}

// URL returns redis+cluster://host:port,host:port.
func (c *Cluster) URL() string {
	return c.Masters[0].scheme() + "+cluster://" + strings.Join(c.Addrs(), ",")
}

// Owner returns the master that has a hash slot at first.
func (c *Cluster) Owner(slot int) *Redis {
	for i, r := range c.Masters {
		if slot < (i+1)*clusterSlots/len(c.Masters) {
			return r
		}
	}
	panic("testserver: no such slot")
}

// Begin begins to move a hash slot from one master to another, without its keys.
func (c *Cluster) Begin(slot int, from, to *Redis) error {
	if _, err := to.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ids[from]); err != nil {
		return err
	}
	_, err := from.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ids[to])
	return err
}

// Move moves a hash slot and its keys from one master to another, as resharding does, and
// returns once the masters agree on it: old gossip could undo it while the next move
// begins.
func (c *Cluster) Move(slot int, from, to *Redis) error {
	if err := c.Begin(slot, from, to); err != nil {
		return err
	}
	for {
		keys, err := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "64")
		if err != nil {
			return err
		}
		if keys == "" {
			break
		}
		host, port, _ := net.SplitHostPort(to.Addr())
		command := append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, strings.Split(keys, "\n")...)
		if _, err := from.Do(command...); err != nil {
			return err
		}
	}
	for _, r := range []*Redis{to, from} {
		if _, err := r.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to]); err != nil {
			return err
		}
	}
	return c.agree()
}

// agree waits until all masters have seen the same number of changes.
func (c *Cluster) agree() error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		epochs := map[string]bool{}
		for _, r := range c.Masters {
			info, err := r.Do("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			_, rest, _ := strings.Cut(info, "cluster_current_epoch:")
			epoch, _, _ := strings.Cut(rest, "\r")
			epochs[epoch] = true
		}
		if len(epochs) == 1 {
			return nil
		}
	}
	return errors.New("testserver: the masters do not agree")
}

// Do sends one command on a connection of its own and returns the reply: a string, a
// number in decimal, or the elements of a list, a line each. It can be called by any
// goroutine.
func (r *Redis) Do(args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", r.Addr(), startTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	request := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	reply, err := readReply(bufio.NewReader(conn))
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", r.Addr(), strings.Join(args, " "), err)
	}
	return reply, err
}

func readReply(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.Atoi(text)
	switch line[0] {
	case '-':
		return "", fmt.Errorf("%s", text)
	case '$':
		if n < 0 {
			return "", nil
		}
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(from, bulk)
		return string(bulk[:n]), err
	case '*':
		var elements []string
		for range n {
			element, err := readReply(from)
			if err != nil {
				return "", err
			}
			elements = append(elements, element)
		}
		return strings.Join(elements, "\n"), nil
	}
	return text, nil
}

// must is Do for commands that must not fail.
func (r *Redis) must(args ...string) string {
	r.t.Helper()
	reply, err := r.Do(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// until waits until a condition holds.
func (r *Redis) until(what string, holds func() bool) {
	r.t.Helper()
	await(r.t, 4*startTimeout, "redis-server at "+r.Addr()+": "+what, holds)
}

// Eventually waits until a condition holds. If it does not within half a minute, the test
// fails with what was expected.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await(t, 30*time.Second, what, holds)
}

func await(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

package testserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// A Fault is what a [Proxy] does to one request.
type Fault uint8

// The faults. All but Pass end the client's connection.
const (
	// Pass forwards the request and its reply.
	Pass Fault = iota
	// Refuse closes the connection instead of forwarding the request.
	Refuse
	// Drop closes the connection instead of forwarding the reply.
	Drop
	// Reset resets the connection instead of forwarding the reply.
	Reset
	// Cut closes the connection within the reply.
	Cut
	// Delay holds the reply back until the client closes the connection.
	Delay
	// Late holds the request back until the client closes the connection, and then
	// forwards it.
	Late
	// Faults is the number of the faults above.
	Faults
)

// A Proxy forwards requests of Redis clients to a server, and lets a test choose a fault
// for each. It handles a connection's requests one by one.
type Proxy struct {
	server   string
	choose   func(request []byte) Fault
	listener net.Listener
	clients  sync.WaitGroup
	done     [Faults]atomic.Int64
	mu       sync.Mutex
	open     map[net.Conn]bool // nil once the proxy is closed
}

// StartProxy starts a proxy for the Redis server at an address. It calls choose with every
// request, from many goroutines. The proxy ends with the test.
func StartProxy(t testing.TB, server string, choose func(request []byte) Fault) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{server: server, choose: choose, listener: listener, open: make(map[net.Conn]bool)}
	p.clients.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the proxy's address, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Done returns how many requests met a fault.
func (p *Proxy) Done(f Fault) int64 { return p.done[f].Load() }

// Close closes all connections and waits until the server has answered all requests that
// were forwarded, late ones included.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for client := range p.open {
		_ = client.Close()
	}
	p.open = nil
	p.mu.Unlock()
	p.clients.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.open == nil {
			_ = client.Close()
		} else {
			p.open[client] = true
			p.clients.Go(func() { p.serve(client) })
		}
		p.mu.Unlock()
	}
}

// serve handles a client's requests until a fault or until either side closes.
func (p *Proxy) serve(client net.Conn) {
	defer func() {
		_ = client.Close()
		p.mu.Lock()
		delete(p.open, client)
		p.mu.Unlock()
	}()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	requests, replies := bufio.NewReader(client), bufio.NewReader(server)
	for {
		request, err := readValue(requests)
		if err != nil {
			return
		}
		fault := p.choose(request)
		p.done[fault].Add(1)
		if fault == Refuse {
			return
		}
		if fault == Late {
			_, _ = io.Copy(io.Discard, requests)
		}
		if _, err := server.Write(request); err != nil {
			return
		}
		reply, err := readValue(replies)
		if err != nil || !answer(client, requests, reply, fault) {
			return
		}
	}
}

// answer forwards a reply, as far as the fault allows, and reports whether the connection
// stays open.
func answer(client net.Conn, requests io.Reader, reply []byte, fault Fault) bool {
	switch fault {
	case Pass:
		_, err := client.Write(reply)
		return err == nil
	case Reset:
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	case Cut:
		_, _ = client.Write(reply[:1+rand.IntN(len(reply)-1)])
	case Delay:
		_, _ = io.Copy(io.Discard, requests)
	}
	return false
}

var errProtocol = errors.New("testserver: not the Redis protocol")

// readValue reads the bytes of one value of the Redis protocol, version 2 or 3.
func readValue(r *bufio.Reader) ([]byte, error) {
	var value bytes.Buffer
	for left := 1; left > 0; left-- {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		value.Write(line)
		kind, text := line[0], bytes.TrimSpace(line[1:])
		n := 0
		if bytes.IndexByte([]byte("$=!*~>%|"), kind) >= 0 {
			if n, err = strconv.Atoi(string(text)); err != nil {
				return nil, errProtocol
			}
		}
		switch kind {
		case '$', '=', '!':
			if n < 0 {
				break
			}
			if _, err := io.CopyN(&value, r, int64(n)+2); err != nil {
				return nil, err
			}
		case '*', '~', '>':
			left += max(0, n)
		case '|':
			left += 2*n + 1
		case '%':
			left += 2 * n
		}
	}
	return value.Bytes(), nil
}

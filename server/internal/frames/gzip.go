package frames

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// leastPacked is the size of the smallest message that gzip makes, and of the smallest
	// reply that is worth it.
	leastGzip    = 18
	leastPacked  = 256
	gzipEncoding = "gzip"
	// brokenCost is what a message costs of its client's patience that is not what its gzip
	// says. One that grows by more than honest messages do costs its growth over freeGrowth.
	brokenCost = 50
	freeGrowth = 16
)

// A Failure is an error with a code of gRPC.
type Failure struct {
	Code uint32
	Text string
	// Oversized reports whether the message is larger than Options.MaxMessage.
	Oversized bool
}

// Error describes the failure.
func (f *Failure) Error() string { return f.Text }

// A packer compresses and decompresses one message at a time. A server has one for each
// processor, which bounds their memory and the processors that they use.
type packer struct {
	packed bytes.Reader
	reader gzip.Reader
	writer *gzip.Writer // nil until it is needed
}

// inflate returns a message without its compression. Its memory is charged to the call
// before the message is read.
func (c *Call) inflate(packed []byte) ([]byte, *Failure) {
	message, err := c.unpack(packed)
	cost := len(message) / len(packed) / freeGrowth
	if err != nil && !(err.Oversized && c.replyOversized()) {
		cost = brokenCost
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if failed := c.conn.charge(cost); failed != nil && c.conn.phase != closing {
		c.conn.fail(failed)
		c.conn.interrupt()
	}
	return message, err
}

var errGzip = &Failure{Code: codeInternal, Text: "the message is not what its gzip says"}

func (c *Call) unpack(packed []byte) ([]byte, *Failure) {
	if len(packed) < leastGzip {
		return nil, errGzip
	}
	size, s := int64(binary.LittleEndian.Uint32(packed[len(packed)-4:])), c.conn.server
	if most := s.options.most(c); size > most {
		s.count(ReasonMessage, c.conn.nc)
		return nil, tooLarge(size, most)
	}
	if c.Take(size) != nil {
		return nil, errFull
	}
	var p *packer
	select {
	case p = <-s.packers:
	case <-c.ctx.Done():
		return nil, ended(c.ctx)
	}
	defer func() { s.packers <- p }()
	p.packed.Reset(packed)
	message := make([]byte, size)
	if p.reader.Reset(&p.packed) != nil {
		return nil, errGzip
	}
	_, short := io.ReadFull(&p.reader, message)
	if _, long := io.ReadFull(&p.reader, make([]byte, 1)); short != nil || long != io.EOF {
		return nil, errGzip
	}
	return message, nil
}

// pack compresses the reply for a client that compresses its requests.
func (c *Call) pack() {
	if !c.gzip || c.code != 0 || len(c.reply) < leastPacked {
		return
	}
	s := c.conn.server
	p := <-s.packers
	defer func() { s.packers <- p }()
	var packed bytes.Buffer
	if p.writer == nil {
		p.writer, _ = gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	} else {
		p.writer.Reset(&packed)
	}
	// A buffer takes everything.
	_, _ = p.writer.Write(c.reply)
	_ = p.writer.Close()
	c.reply, c.packed = packed.Bytes(), true
}

func tooLarge(size, most int64) *Failure {
	return &Failure{codeResourceExhausted, fmt.Sprintf("a message of %d bytes: at most %d are taken", size, most), true}
}

// replyOversized answers a call whose message is too large, if Options.Oversized has a reply.
func (c *Call) replyOversized() bool {
	reply, ok := c.conn.server.options.Oversized[c.method]
	if ok {
		c.Reply(reply)
	}
	return ok
}

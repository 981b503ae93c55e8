package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

func TestQueueWritesInOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	q := newQueue(&out)
	var want strings.Builder
	for i := range 500 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		_, _ = q.Write([]byte(line))
	}
	q.close()
	_, _ = q.Write([]byte("late\n"))
	q.close()
	if out.String() != want.String()+"late\n" {
		t.Errorf("wrote %q", out.String())
	}
}

// gate lets nothing through until it is opened.
type gate struct {
	open chan struct{}
	out  bytes.Buffer
}

func (g *gate) Write(line []byte) (int, error) {
	<-g.open
	return g.out.Write(line)
}

// TestQueueDrops: a reader that does not read keeps nobody waiting, nor the end.
func TestQueueDrops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &gate{open: make(chan struct{})}
		q := newQueue(to)
		_, _ = q.Write([]byte("first\n"))
		synctest.Wait() // it is being written
		for range queueLines + 7 {
			_, _ = q.Write([]byte("more\n"))
		}
		q.close()
		close(to.open)
		<-q.done
		if got := to.out.String(); strings.Count(got, "more\n") != queueLines || !strings.Contains(got, `"lines":7`) {
			t.Errorf("wrote %d lines, and of the others: %q", strings.Count(got, "more\n"), got[:min(200, len(got))])
		}
	})
}

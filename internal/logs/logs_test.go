package logs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logs"
)

func TestSeldom(t *testing.T) {
	t.Parallel()
	for _, period := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &logs.Seldom{Period: period}
			for i := range 3 {
				if n, due := s.Due(); !due || n != int64(min(2*i, 2)) {
					t.Errorf("%v: due %v, %d left out", period, due, n)
				}
				for range 2 {
					if n, due := s.Due(); due || n != 0 {
						t.Errorf("%v: due twice, %d left out", period, n)
					}
				}
				time.Sleep(max(period, time.Second))
			}
		})
	}
}

// TestHandler: handlers that are derived from one another count together.
func TestHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(logs.Handler(slog.NewTextHandler(&out, nil)))
		for range 3 {
			for range 2 {
				log.Warn("one")
				log.With("a", 1).WithGroup("g").Warn("two")
			}
			time.Sleep(time.Second)
		}
		if got := out.String(); strings.Count(got, "\n") != 3 || strings.Count(got, "msg=one left_out=3\n") != 2 {
			t.Errorf("logged\n%s", got)
		}
	})
}

package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/bench/contest"
	"github.com/weirlimit/weir/server/bench/measure"
)

// results is everything that a run has measured.
type results struct {
	Machine   environment         `json:"machine"`
	Redis     []measure.Row       `json:"redis"`
	Memory    []measure.Row       `json:"memory"`
	Exactness []measure.Exactness `json:"exactness"`
	Sizes     []measure.Size      `json:"sizes"`
	States    []measure.StateSize `json:"states"`
	Growth    []measure.Growth    `json:"growth"`
	Servers   []measure.Row       `json:"servers,omitempty"`
	Idle      []idle              `json:"idle,omitempty"`
}

// idle is the memory of idle connections in a server.
type idle struct {
	Server      string  `json:"server"`
	TLS         bool    `json:"tls"`
	Connections int     `json:"connections"`
	Bytes       float64 `json:"bytes"` // of each
}

// environment is where a run took place, and with which versions.
type environment struct {
	Date     string            `json:"date"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Go       string            `json:"go"`
	Redis    string            `json:"redis"`
	Versions map[string]string `json:"versions"`
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

func machine(redis *measure.Redis) environment {
	e := environment{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: "unknown", Cores: runtime.NumCPU(),
		Go: runtime.Version(), Redis: redis.Version, Versions: map[string]string{},
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := modelName.FindSubmatch(info); m != nil {
			e.CPU = string(m[1])
		}
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return e
	}
	for _, c := range append(contest.RedisPeers, contest.MemoryPeers...) {
		for _, dep := range build.Deps {
			if dep.Path == c.Module {
				e.Versions[c.Module] = dep.Version
			}
		}
	}
	return e
}

// The figures of a cell.
func perSecond(c *measure.Cell) float64 { return c.PerSecond }
func p50(c *measure.Cell) float64       { return c.P50us }
func p99(c *measure.Cell) float64       { return c.P99us }
func clientCPU(c *measure.Cell) float64 { return c.ClientCPUus }
func serverCPU(c *measure.Cell) float64 { return c.ServerCPUus }
func redisCPU(c *measure.Cell) float64  { return c.RedisCPUus }

// find returns a row, or nil.
func find(rows []measure.Row, scenario, contestant string, callers int) *measure.Row {
	for i := range rows {
		if rows[i].Scenario == scenario && rows[i].Contestant == contestant && rows[i].Callers == callers {
			return &rows[i]
		}
	}
	return nil
}

// thousands writes a number with a thin group separator.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	var groups []string
	for len(s) > 3 {
		groups = append([]string{s[len(s)-3:]}, groups...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, groups...), " ")
}

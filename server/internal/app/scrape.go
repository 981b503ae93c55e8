package app

import (
	"net/http"
	"strings"
)

const (
	// DefaultMetricsPath is the path of the metrics at their own listener.
	DefaultMetricsPath = "/metrics"
	// maxScrapers bounds the connections of that listener.
	maxScrapers = 64
)

// MetricsOptions are the settings of a listener for the metrics alone.
type MetricsOptions struct {
	Address string // empty: Off
	Path    string
}

func (o *MetricsOptions) settings() several {
	return several{
		setting("metrics", &o.Address, Off,
			"Serve the metrics, and nothing else, at this address too; off for no such listener.",
			orOff(address("host:port, such as 127.0.0.1:9090, or off"))),
		setting("metrics-path", &o.Path, DefaultMetricsPath,
			"Serve them at this path of that listener.",
			func(path string) string {
				if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " {}") {
					return "a path such as " + DefaultMetricsPath
				}
				return ""
			}),
	}
}

// newScrape returns the listener for the metrics alone; nil if it is off.
func (a *App) newScrape() (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.Metrics.Address == Off {
		return nil, nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+o.Metrics.Path, t.metrics.Handler())
	s := newHTTPServer(o.Logger, 0)
	s.Handler = t.panics("metrics").HTTP(mux)
	return s.listener(o, "metrics", o.Metrics.Address, TLS{}, maxScrapers, t)
}

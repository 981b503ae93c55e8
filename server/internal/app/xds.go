package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/xds"
)

// XDSOptions are the settings of rules from a management server. The zero value takes
// them from files.
type XDSOptions struct {
	xds.Options          // without what the server fills in
	Pairs       []string // of metadata: key=value
	Fields      []string // of headers: key:value
	TLS         bool
	Files       xds.TLS
	Optional    bool
}

func (o *XDSOptions) settings() several {
	return slices.Concat(
		setting("rules-xds", &o.Server, "",
			"Take the rules from the management server at this host:port, such as Envoy Gateway, in\n"+
				"place of --config."),
		setting("rules-xds-node", &o.Node, xds.DefaultNode,
			"Ask for the rules of this node ID."),
		list("rules-xds-metadata", &o.Pairs, "Send this metadata with the node ID: key=value."),
		list("rules-xds-header", &o.Fields, "Send these headers to the management server: key:value."),
		toggle("rules-xds-tls", &o.TLS, false,
			"Connect to the management server over TLS 1.3; the files below imply it."),
		setting("rules-xds-tls-ca", &o.Files.CA, "",
			"Trust the certificate authorities in this file (default: those of the host)."),
		setting("rules-xds-tls-cert", &o.Files.Cert, "",
			"Present the client certificate in this file; it is read again for each connection."),
		secretFile("rules-xds-tls-key", &o.Files.Key,
			"Read the key of that certificate from this file."),
		setting("rules-xds-tls-server-name", &o.Files.ServerName, "",
			"Expect a server certificate for this name (default: the server's host)."),
		setting("rules-xds-backoff", &o.Backoff, xds.DefaultBackoff,
			"Wait this long before connecting again; the wait doubles with each failure and varies\n"+
				"by half of itself.", notNegative),
		setting("rules-xds-backoff-max", &o.MaxBackoff, xds.DefaultMaxBackoff,
			"Wait at most this long before connecting again.", notNegative),
		setting("rules-xds-max-bytes", &o.MaxMessageBytes, xds.DefaultMaxMessageBytes,
			"Accept rules of at most this size.", positive),
		toggle("rules-xds-optional", &o.Optional, false,
			"Pass health checks before the first rules have arrived; requests fail until then."),
		setting("rules-overlay", &o.Overlay, "",
			"Add Weir's keys, such as algorithm and burst, from this YAML file to the rules of the\n"+
				"management server."),
	)
}

// client returns the client of the management server.
func (o *XDSOptions) client(more *Options, apply func(*rules.Set)) (*xds.Client, error) {
	options := o.Options
	options.Metadata, options.Headers = map[string]string{}, map[string]string{}
	options.Merge, options.Apply, options.Logger = more.ConfigMerge, apply, more.Logger
	if o.TLS || o.Files != (xds.TLS{}) {
		options.TLS = &o.Files
	}
	for _, pair := range o.Pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, &weir.InvalidError{Field: "rules xds metadata", Value: fmt.Sprintf("%q", pair), Want: "key=value"}
		}
		options.Metadata[key] = value
	}
	for _, pair := range o.Fields {
		key, value, ok := strings.Cut(pair, ":")
		if key = strings.TrimSpace(key); !ok || key == "" {
			// The header may be a secret.
			return nil, &weir.InvalidError{Field: "rules xds header", Value: "without a colon", Want: "key:value"}
		}
		options.Headers[key] = strings.TrimSpace(value)
	}
	return xds.New(options)
}

// subscribe prepares rules from a management server.
func (r *ruleFiles) subscribe(o *Options) error {
	if o.Config != "" {
		return &weir.InvalidError{Field: "rules xds", Value: fmt.Sprintf("%q", o.XDS.Server), Want: "nothing beside --config: rules come from one source"}
	}
	r.Store(rules.NotLoaded())
	r.revision.Store(&revision{at: time.Now()})
	r.optional = o.XDS.Optional
	var err error
	r.xds, err = o.XDS.client(o, func(set *rules.Set) {
		r.follow(set)
		r.Store(set)
		r.received.Store(true)
		r.arrived()
	})
	return err
}

var errNoRules = errors.New("no rules have arrived yet")

// missing is nil unless health checks wait for the first rules.
func (r *ruleFiles) missing() error {
	if r.xds == nil || r.optional || r.received.Load() {
		return nil
	}
	return errNoRules
}

// xdsChecks are the parts of /readyz about a management server.
func (r *ruleFiles) xdsChecks() []httpapi.Check {
	if r.xds == nil {
		return nil
	}
	s := r.xds.Status()
	check := httpapi.Check{Name: "rules", Bearable: true, Info: describeRules(&s)}
	switch {
	case !s.Loaded && s.Rejected != nil:
		check.Err, check.Brief, check.Bearable = s.Rejected.Err, "the first rules are wrong", false
	case !s.Loaded:
		reason := cmp.Or(s.Err, errors.New("the server has not sent any"))
		check.Err, check.Brief, check.Bearable = fmt.Errorf("no rules have arrived from %s: %w", s.Server, reason), errNoRules.Error(), false
	case s.Stale():
		check.Err = fmt.Errorf("version %s of %s is wrong, version %s stays in force: %w", s.Rejected.Version, s.Server, s.Version, s.Rejected.Err)
		check.Brief = "the last good rules are in force"
	case !s.Connected:
		check.Err = fmt.Errorf("no stream to %s, version %s stays in force: %w", s.Server, s.Version, s.Err)
		check.Brief = "the management server is unreachable; the last good rules are in force"
	}
	checks := []httpapi.Check{check}
	if r.xds.Overlay() {
		checks = append(checks, httpapi.Check{Name: "overlay", Err: s.Overlay, Brief: "some of its lines change no rule", Bearable: true})
	}
	return checks
}

// describeRules says which rules are in force.
func describeRules(s *xds.Status) string {
	if !s.Loaded {
		return "no rules yet from " + s.Server
	}
	text := fmt.Sprintf("version %s of %s, %s old", s.Version, s.Server, time.Since(s.At).Round(time.Second))
	if s.Rejected != nil && !s.Rejected.Current {
		text += fmt.Sprintf("; version %s was rejected %s ago", s.Rejected.Version, time.Since(s.Rejected.At).Round(time.Second))
	}
	return text
}

// facts are the facts about a management server on the dashboard.
func (r *ruleFiles) facts() []dashboard.Fact {
	if r.xds == nil {
		return nil
	}
	s := r.xds.Status()
	facts := []dashboard.Fact{{Name: "Rules", Value: describeRules(&s), Bad: !s.Loaded || !s.Connected}}
	if s.Stale() {
		facts = append(facts, dashboard.Fact{Name: "Rejected rules", Value: fmt.Sprintf("version %s: %v", s.Rejected.Version, s.Rejected.Err), Bad: true})
	}
	return facts
}

// withSource adds the source of the rules to the headers of an answer.
func (r *ruleFiles) withSource(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.xds != nil {
			s := r.xds.Status()
			h := w.Header()
			h.Set("Weir-Rules-Source", "xds:"+s.Server)
			if s.Loaded {
				h.Set("Weir-Rules-Version", s.Version)
				h.Set("Weir-Rules-Age", time.Since(s.At).Round(time.Second).String())
			}
			if s.Rejected != nil {
				h.Set("Weir-Rules-Rejected", s.Rejected.Version)
			}
		}
		next.ServeHTTP(w, req)
	})
}

package callers

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/rules"
)

// AllDomains stands for every domain, those that have no rules yet included.
const AllDomains = ""

// Other is the name, in metrics, of all callers that are not in a file of callers.
const Other = "other"

// A Caller may do some things in some domains. It is immutable.
type Caller struct {
	Name string
	// Labels say who the caller is, sorted by their keys: its user, its team. A caller may have
	// none.
	Labels []Label

	vouched bool // by another party; it is in no file
	verbs   Verbs
	domains map[string]bool
	all     bool // domains
}

// A Label is one thing that is known of a caller, such as team=web.
type Label struct{ Key, Value string }

// team is the label by which metrics count callers that have labels.
const team = "team"

// counted returns the name of the caller in metrics. There may be many callers with labels, so
// that they are counted by their team.
func (c *Caller) counted() string {
	if len(c.Labels) == 0 {
		return c.Name
	}
	for _, l := range c.Labels {
		if l.Key == team {
			return l.Value
		}
	}
	return Other
}

// missing returns the verbs that the caller lacks in a domain.
func (c *Caller) missing(verbs Verbs, domain string) Verbs {
	if !c.all && (domain == AllDomains || !c.domains[domain]) {
		return verbs
	}
	return verbs &^ c.verbs
}

// A Set is the callers of one file. It is immutable.
type Set struct {
	byName        map[string]*Caller
	byToken       map[[sha256.Size]byte]*Caller
	byCertificate map[string]*Caller // names in lower case
	keys          map[string]bool    // of labels
}

// Len returns how many callers the set has.
func (s *Set) Len() int { return len(s.byName) }

// HasLabel reports whether a caller has a label of that key.
func (s *Set) HasLabel(key string) bool { return s.keys[key] }

// Values returns the values of a label, sorted, of the callers that also have another one; of all
// callers if that is zero.
func (s *Set) Values(of string, among Label) []string {
	values := map[string]bool{}
	for _, c := range s.byName {
		if among != (Label{}) && !slices.Contains(c.Labels, among) {
			continue
		}
		for _, l := range c.Labels {
			if l.Key == of {
				values[l.Value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(values))
}

// token returns the caller with a token; nil if there is none. It looks up digests, so
// that its time reveals nothing about the token.
func (s *Set) token(token string) *Caller {
	if len(token) < MinSecret {
		return nil
	}
	return s.byToken[sha256.Sum256([]byte(token))]
}

// certificate returns the caller with a certificate, by the first of its DNS names, or
// of its URIs, that a caller has; nil if there is none.
func (s *Set) certificate(c *x509.Certificate) *Caller {
	for _, name := range namesIn(c) {
		if found := s.byCertificate[name]; found != nil {
			return found
		}
	}
	return nil
}

// namesIn returns the DNS names of a certificate and then its URIs, in lower case.
func namesIn(c *x509.Certificate) []string {
	names := make([]string, 0, len(c.DNSNames)+len(c.URIs))
	for _, name := range c.DNSNames {
		names = append(names, strings.ToLower(name))
	}
	for _, uri := range c.URIs {
		names = append(names, strings.ToLower(uri.String()))
	}
	return names
}

// A ForbiddenError is the error of a caller that may not do something. Nothing was
// charged.
type ForbiddenError struct {
	Caller string
	// Verbs are those that the caller lacks.
	Verbs Verbs
	// Domain is the domain; [AllDomains] for every one.
	Domain string
}

// Error names the caller, the verbs and the domain.
func (e *ForbiddenError) Error() string {
	where := "in every domain"
	if e.Domain != AllDomains {
		where = fmt.Sprintf("in the domain %q", problem.Shorten(e.Domain))
	}
	return fmt.Sprintf("caller %q may not %s %s", e.Caller, e.Verbs, where)
}

// Problem describes the error to the caller.
func (e *ForbiddenError) Problem() *problem.Document {
	return &problem.Document{Status: http.StatusForbidden, Code: "forbidden", Detail: e.Error()}
}

// An Identity is a caller at one listener. A nil *Identity is any caller of a listener
// that asks for no credentials, and may do everything.
type Identity struct {
	caller *Caller // nil for one that may do everything
	by     *Authenticator
}

// Name returns the caller's name in the file; empty if it has none.
func (i *Identity) Name() string {
	if i == nil || i.caller == nil {
		return ""
	}
	return i.caller.Name
}

// Labels returns what is known of the caller, sorted by the keys. It is as the file was when the
// caller was authenticated. Do not change it.
func (i *Identity) Labels() []Label {
	if i == nil || i.caller == nil {
		return nil
	}
	return i.caller.Labels
}

// May returns nil if the current file of callers allows the caller all of the verbs in a
// domain, else a [*ForbiddenError]. It counts the request: call it once for each.
func (i *Identity) May(verbs Verbs, domain string) error {
	if i == nil {
		return nil
	}
	if i.caller == nil {
		i.by.options.Requests(Other, Admitted)
		return nil
	}
	if missing := i.missing(verbs, domain); missing != 0 {
		i.by.options.Requests(i.caller.counted(), Forbidden)
		return &ForbiddenError{i.caller.Name, missing, domain}
	}
	i.by.options.Requests(i.caller.counted(), Admitted)
	return nil
}

// Still reports whether the caller may still do what it has asked May for. It counts nothing.
func (i *Identity) Still(verbs Verbs, domain string) bool {
	return i == nil || i.caller == nil || i.missing(verbs, domain) == 0
}

// missing returns the verbs that the current file of callers does not allow a named caller, or
// that one whom another party vouches for never has.
func (i *Identity) missing(verbs Verbs, domain string) Verbs {
	if i.caller.vouched {
		return i.caller.missing(verbs, domain)
	}
	if now := i.by.options.File.set().byName[i.caller.Name]; now != nil {
		return now.missing(verbs, domain)
	}
	return verbs
}

type identityKey struct{}

// NewContext returns a context for the calls of an identity.
func NewContext(ctx context.Context, i *Identity) context.Context {
	if i == nil {
		return ctx
	}
	return context.WithValue(ctx, identityKey{}, i)
}

// FromContext returns the identity of a context; nil if there is none.
func FromContext(ctx context.Context) *Identity {
	i, _ := ctx.Value(identityKey{}).(*Identity)
	return i
}

// MayAsk is [Identity.May] for the verbs of a request and the identity of the context.
func MayAsk(ctx context.Context, r *rules.Request) error {
	return FromContext(ctx).MayAsk(r)
}

// MayAsk is [Identity.May] for the verbs of a request.
func (i *Identity) MayAsk(r *rules.Request) error {
	if i == nil {
		return nil
	}
	return i.May(verbsOf(r), r.Domain)
}

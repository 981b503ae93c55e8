package callers

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir"
)

// A Source says where a label comes from: the name of a header, or of a claim.
type Source struct{ Label, From string }

// ParseSources reads LABEL=NAME,… The error is a [*weir.InvalidError] about the field.
func ParseSources(field, text string) ([]Source, error) {
	wrong := func(why, want string) error {
		return &weir.InvalidError{Field: field, Value: strconv.Quote(text) + why, Want: want}
	}
	var all []Source
	for part := range strings.SplitSeq(text, ",") {
		label, from, found := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case !found || from == "":
			return nil, wrong("", "LABEL=NAME for each label, with commas between them, such as user=sub,team=dept")
		case slices.Contains(reservedLabels, label):
			return nil, wrong(", with a label called "+strconv.Quote(label), "another name: every request has "+strings.Join(reservedLabels, ", ")+" already")
		case !keyForm.MatchString(label) || len(label) > maxLabelKey:
			return nil, wrong(", with a label called "+strconv.Quote(label), fmt.Sprintf("at most %d lower-case letters, digits and underscores, first a letter", maxLabelKey))
		case slices.ContainsFunc(all, func(s Source) bool { return s.Label == label }):
			return nil, wrong(", with "+label+" again", "each label once")
		case len(all) == maxLabels:
			return nil, wrong("", fmt.Sprintf("at most %d labels", maxLabels))
		}
		all = append(all, Source{label, from})
	}
	return all, nil
}

// isLabel reports whether a text can be the value of a label.
func isLabel(value string) bool {
	return value != "" && len(value) <= maxLabelValue && !strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
}

// wantLabel says what the value of a label can be.
var wantLabel = fmt.Sprintf("1 … %d bytes of text that can be printed", maxLabelValue)

// Headers are those by which a trusted proxy says who calls. They are immutable.
type Headers struct {
	labels []Source
	// from is the name in the proxy's certificate; empty: every connection is the proxy's.
	from string
}

// takenHeaders are headers that mean something else.
var takenHeaders = []string{"Authorization", "X-Api-Key", "Host", "Content-Type", "Content-Length", "Connection", "Transfer-Encoding", "Weir-Wait", "Weir-Class"}

// NewHeaders reads which header has which label, and who may send them: the name of a client
// certificate, or unix:PATH for everybody at the socket at which the listener listens. The error
// is a [*weir.InvalidError].
func NewHeaders(labels, from, listen string, certificates bool) (*Headers, error) {
	const field = "identity header"
	switch {
	case labels == "" && from == "":
		return nil, nil
	case from == "":
		return nil, &weir.InvalidError{Field: field, Value: strconv.Quote(labels), Want: "--identity-from beside it: anybody could send these headers"}
	case labels == "":
		return nil, &weir.InvalidError{Field: "identity from", Value: strconv.Quote(from), Want: "--identity-header beside it"}
	}
	h := &Headers{}
	var err error
	if h.labels, err = ParseSources(field, labels); err != nil {
		return nil, err
	}
	for i := range h.labels {
		s := &h.labels[i]
		if !httpguts.ValidHeaderFieldName(s.From) || slices.Contains(takenHeaders, http.CanonicalHeaderKey(s.From)) {
			return nil, &weir.InvalidError{Field: field, Value: strconv.Quote(labels) + ", with the header " + strconv.Quote(s.From), Want: "the name of a header of its own, such as X-User"}
		}
		s.From = http.CanonicalHeaderKey(s.From)
		for _, other := range h.labels[:i] {
			if other.From == s.From {
				return nil, &weir.InvalidError{Field: field, Value: strconv.Quote(labels) + ", with the header " + s.From + " again", Want: "a header for each label"}
			}
		}
	}
	wrong := func(want string) error {
		return &weir.InvalidError{Field: "identity from", Value: strconv.Quote(from), Want: want}
	}
	if strings.HasPrefix(from, "unix:") {
		if from != listen {
			return nil, wrong("--listen " + from + ", too: everybody at that socket is trusted")
		}
		return h, nil
	}
	if !isCertificateName(from) {
		return nil, wrong("a name in the proxy's client certificate, such as spiffe://example.org/gateway, or unix:PATH; an address proves nothing")
	}
	if !certificates {
		return nil, wrong("--models-tls-client-ca beside it, which client certificates are verified with")
	}
	h.from = strings.ToLower(from)
	return h, nil
}

// isCertificateName reports whether a text can be a name in a certificate: a URI or a DNS name,
// and no address.
func isCertificateName(name string) bool {
	if strings.ContainsAny(name, "* \t\n") {
		return false
	}
	if scheme, rest, found := strings.Cut(name, "://"); found {
		return scheme != "" && rest != ""
	}
	_, err := netip.ParseAddr(name)
	return err != nil && !strings.ContainsAny(name, ":/") && strings.Contains(name, ".")
}

// HasLabel reports whether a header has a label of that key.
func (h *Headers) HasLabel(key string) bool { return h != nil && hasLabel(h.labels, key) }

func hasLabel(sources []Source, key string) bool {
	return slices.ContainsFunc(sources, func(s Source) bool { return s.Label == key })
}

// Remove removes the headers from those that go on.
func (h *Headers) Remove(from http.Header) {
	if h == nil {
		return
	}
	for _, s := range h.labels {
		from.Del(s.From)
	}
}

// trusts reports whether the client with a verified certificate, which may be nil, is the proxy.
func (h *Headers) trusts(c *x509.Certificate) bool {
	return h.from == "" || c != nil && slices.Contains(namesIn(c), h.from)
}

// A RefusedError says why a request shows nobody who may call.
type RefusedError struct {
	// Status is that of HTTP: 400 for a request that is wrong, 401 for one without credentials.
	Status int
	// Message says what was expected, and repeats nothing of the credentials.
	Message string
}

// Error returns the message.
func (e *RefusedError) Error() string { return e.Message }

// labelsOf returns the labels of a request; none if it is not from the proxy. The error is a
// [*RefusedError].
func (h *Headers) labelsOf(r *http.Request) ([]Label, error) {
	if !h.trusts(Genuine(r.TLS)) {
		for _, s := range h.labels {
			if _, sent := r.Header[s.From]; sent {
				return nil, &RefusedError{http.StatusBadRequest, "the header " + s.From + " says who calls: want it from the trusted proxy only"}
			}
		}
		return nil, nil
	}
	var all []Label
	for _, s := range h.labels {
		values := r.Header[s.From]
		switch {
		case len(values) == 0 || len(values) == 1 && values[0] == "":
			return nil, &RefusedError{http.StatusUnauthorized, "the header " + s.From + " is missing: want it from the trusted proxy"}
		case len(values) > 1:
			return nil, &RefusedError{http.StatusBadRequest, "the header " + s.From + " is repeated: want it once"}
		case !isLabel(values[0]):
			return nil, &RefusedError{http.StatusBadRequest, "the header " + s.From + " is no label: want " + wantLabel}
		}
		all = append(all, Label{s.Label, values[0]})
	}
	return all, nil
}

// FromProxy returns the caller whom a trusted proxy names in the headers of a request; nil if the
// request is not from the proxy and shows other credentials, if any. The error is a
// [*RefusedError].
func (a *Authenticator) FromProxy(r *http.Request) (*Identity, error) {
	if a == nil || a.options.Headers == nil {
		return nil, nil
	}
	labels, err := a.options.Headers.labelsOf(r)
	if err != nil {
		a.options.Requests(Other, Unauthenticated)
	}
	if labels == nil {
		return nil, err
	}
	return a.known(labels), nil
}

// known returns the caller that another party has authenticated, by its labels. It may do
// everything but administrate. Its name is the first label: no name of a file has a "=".
func (a *Authenticator) known(labels []Label) *Identity {
	c := &Caller{Name: labels[0].Key + "=" + labels[0].Value, Labels: labels, verbs: everything &^ (AdminRead | AdminChange), all: true, vouched: true}
	slices.SortFunc(c.Labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	return &Identity{c, a}
}

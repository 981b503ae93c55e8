// Package meter limits what requests to language models use. It reads a request, estimates
// it, holds requests, tokens, dollars and slots in one act, forwards the request, and
// settles the act once from the usage that the provider reports. It refuses a request that the
// provider may read otherwise. An answer that ends without a report costs the bound of its
// request; one that is cut off costs what was seen, or the bound if output may be hidden.
package meter

import (
	"slices"
	"strings"
)

// A Form is the form in which a provider speaks.
type Form uint8

// The forms.
const (
	OpenAI Form = iota
	Anthropic
)

// String returns the form as metrics have it.
func (f Form) String() string { return [...]string{"openai", "anthropic"}[f] }

// An endpoint is one kind of request.
type endpoint uint8

const (
	unknown endpoint = iota
	chat
	completions
	responses
	embeddings
	messages
	countTokens
	catalog // the list of models, which costs nothing
	me      // what the caller has left, which Weir answers
)

// endpoints are the paths of requests that are metered. Every one takes a POST.
var endpoints = map[string]endpoint{
	"/v1/chat/completions":      chat,
	"/v1/completions":           completions,
	"/v1/responses":             responses,
	"/v1/embeddings":            embeddings,
	"/v1/messages":              messages,
	"/v1/messages/count_tokens": countTokens,
}

// Paths returns the paths of requests that are metered, for spans.
func Paths() []string {
	var all []string
	for path := range endpoints {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

const (
	catalogPath = "/v1/models"
	mePath      = "/v1/me"
)

// endpointOf returns the endpoint of a request by its path as it was sent, byte for byte:
// a path that the provider reads otherwise must not be a way around the limits.
func endpointOf(method, path string) endpoint {
	switch {
	case method == "POST":
		return endpoints[path]
	case method != "GET":
	case path == mePath:
		return me
	case path == catalogPath:
		return catalog
	case strings.HasPrefix(path, catalogPath+"/"):
		if isModel(path[len(catalogPath)+1:]) {
			return catalog
		}
	}
	return unknown
}

// formOf returns the form by the path.
func formOf(path string) Form {
	if path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") {
		return Anthropic
	}
	return OpenAI
}

// bounds are the fields by which a request of the endpoint bounds its output, first the one
// that Weir sets; none if there is no output.
func (e endpoint) bounds() []string {
	switch e {
	case chat:
		return []string{"max_completion_tokens", "max_tokens"}
	case completions, messages:
		return []string{"max_tokens"}
	case responses:
		return []string{"max_output_tokens"}
	}
	return nil
}

// reportsOnDemand says that a stream of the endpoint has no usage unless it is asked for.
func (e endpoint) reportsOnDemand() bool { return e == chat || e == completions }

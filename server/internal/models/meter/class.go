package meter

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weirlimit/weir/server/internal/callers"
)

// classHeader is the header by which a client lowers the class of a request.
const classHeader = "Weir-Class"

// labelClass is the label that has the class of a caller.
const labelClass = "class"

// classed returns the labels of a caller with the class of a request: that of the caller, the
// first one if it has none, or the lower one in the header. Classes are those of the rules, the
// highest first. The error is a [*refusal].
func classed(labels []callers.Label, classes []string, h http.Header) ([]callers.Label, error) {
	values, sent := h[classHeader]
	refuse := func(about, want string) ([]callers.Label, error) {
		return nil, misunderstood(http.StatusBadRequest, "invalid_class", invalidRequest, "the header "+classHeader+" is "+about+": want "+want)
	}
	if len(classes) == 0 {
		if sent {
			return refuse("there", "none, because the rules have no classes")
		}
		return labels, nil
	}
	at := slices.IndexFunc(labels, func(l callers.Label) bool { return l.Key == labelClass })
	own := classes[0]
	if at >= 0 {
		own = labels[at].Value
	}
	class, rank := own, slices.Index(classes, own)
	if sent {
		class = values[0]
		about := shorten(class)
		if about == "" {
			about = "empty"
		}
		switch lower := slices.Index(classes, class); {
		case rank < 0:
			return refuse("there", fmt.Sprintf("none, because the class of the caller, %q, is none of %s", own, strings.Join(classes, ", ")))
		case len(values) > 1:
			return refuse("repeated", "it once")
		case lower < 0:
			return refuse(about, "one of "+strings.Join(classes[rank:], ", "))
		case lower < rank:
			return refuse(about, "one of "+strings.Join(classes[rank:], ", ")+": the caller has "+own+", and a request may not be of a higher class")
		}
	}
	if at >= 0 && class == own {
		return labels, nil
	}
	all := slices.Clone(labels) // those of the caller are shared by its requests
	if at >= 0 {
		all[at].Value = class
		return all, nil
	}
	next := slices.IndexFunc(all, func(l callers.Label) bool { return l.Key > labelClass })
	if next < 0 {
		next = len(all)
	}
	return slices.Insert(all, next, callers.Label{Key: labelClass, Value: class}), nil
}
